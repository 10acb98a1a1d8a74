"""JSON files beside the tensors: configurations, trainer states, indexes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lastgood.validators.formats.base import Broken, Checkpoint, Problem

LIMIT_BYTES = 256 << 20


class JsonFiles:
    """Each `.json` file: it parses, and no key stands twice."""

    name = "json"
    version = "1"
    reads_last = False

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        return [[path] for path in checkpoint.sizes if path.endswith(".json")]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        (path,) = paths
        load_json(checkpoint, path)
        return iter(())


def load_json(checkpoint: Checkpoint, path: str) -> Any:
    """Parse a file. Python's `NaN` and `Infinity`, which trainers write, are read; Broken for what
    is not JSON, has a key twice, or is too large to be a side file."""
    with checkpoint.open(path) as file:
        size_bytes = file.seek(0, 2)
        if size_bytes > LIMIT_BYTES:
            raise Broken(path, None, f"{size_bytes} bytes of JSON; {LIMIT_BYTES} is the limit")
        file.seek(0)
        content = b"".join(iter(lambda: file.read(1 << 20), b""))
    checkpoint.bytes_read += len(content)
    try:
        return json.loads(content, object_pairs_hook=lambda pairs: _distinct(path, pairs))
    except (ValueError, RecursionError) as error:
        raise Broken(path, None, f"it is not JSON: {error}") from None


def _distinct(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in content if names.count(name) > 1)
        raise Broken(path, twice, "the key stands twice in one object")
    return content
