"""The room that a checkpoint's manifest and completion marker will take, before there is one.

They lie beside the objects, and what a prepare claims has to have room for them, too. How large
they become is known at the commit alone: whoever prepares declares paths and bytes, and nothing yet
of what the manifest says beside them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lastgood.rules.canonical import canonical_json
from lastgood.rules.layout import marker_bytes
from lastgood.rules.manifest_parts import ManifestObject
from lastgood.rules.names import ManifestDigest
from lastgood.rules.paths import EXACT_INTEGER_LIMIT

_DIGEST = "0" * 64
_MARKER_BYTES = len(marker_bytes(ManifestDigest(_DIGEST)))
_PART_BYTES = len(canonical_json([_DIGEST, _DIGEST])) - len(canonical_json([_DIGEST]))
_REST_BYTES = 1 << 10
"""Of a manifest that says of itself only what it must, with names that are not short."""


def _object_bytes() -> int:
    """Of one object without its path and its parts, with numbers of the greatest length."""
    most = EXACT_INTEGER_LIMIT
    one = ManifestObject("", most, _DIGEST, rank=most, part_bytes=most, part_sha256=())
    return len(canonical_json(one.to_json())) + len(",")


_OBJECT_BYTES = _object_bytes()


def manifest_room(objects: Iterable[tuple[str, int]], newest_bytes: int = 0) -> int:
    """The bytes to claim for the manifest and the marker of a checkpoint with these objects, each
    by its path and the number of its parts (0: it is not sent in parts). `newest_bytes` is what the
    manifest of the stage's newest checkpoint takes: the next one is like it."""
    listed = sum(
        _OBJECT_BYTES + len(path.encode()) + parts * _PART_BYTES for path, parts in objects
    )
    return max(_REST_BYTES + listed, newest_bytes) + _MARKER_BYTES
