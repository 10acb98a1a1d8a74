"""What a file store saw of an object's bytes while it received them.

One small record per key under `.attested/`. It is bound to the file's inode, size and modification
time, so that any later write to the file, and any file put in its place, leaves it without effect.
It proves what was received, not what the disk still holds: rot is found by reading the bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress

from lastgood.stores.base import Key, Part
from lastgood.stores.keys import ATTESTED, Path
from lastgood.stores.tree import FILE, NEW_FILE, Tree, read_small, write_all

RECORD_LIMIT_BYTES = 4 << 20  # 10,000 parts take about 1 MiB


def attest(tree: Tree, key: Key, file: os.stat_result, parts: Sequence[Part]) -> None:
    """Record the digests of the file's parts. A record lost in a crash only means reading the
    bytes."""
    folder, name = _place(key)
    record = {
        "key": key,
        "file": _identity(file),
        "parts": [[part.number, part.size_bytes, part.sha256] for part in parts],
    }
    with tree.folder(folder, create=True) as fd:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)
        opened = tree.open_file(fd, name, NEW_FILE)
        try:
            write_all(opened, json.dumps(record).encode(), 0)
        finally:
            os.close(opened)


def attested(tree: Tree, key: Key, file: os.stat_result) -> tuple[Part, ...] | None:
    """The parts recorded for exactly this file, or None."""
    folder, name = _place(key)
    try:
        with tree.folder(folder) as fd:
            opened = tree.open_file(fd, name, FILE)
            try:
                record = json.loads(read_small(opened, RECORD_LIMIT_BYTES))
            finally:
                os.close(opened)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("key") != key:
        return None
    if record.get("file") != _identity(file):
        return None
    return tuple(Part(number, size, sha256=sha256) for number, size, sha256 in record["parts"])


def forget(tree: Tree, key: Key) -> None:
    """Drop the record of a key; before its file goes, so that no record outlives its file."""
    folder, name = _place(key)
    with suppress(FileNotFoundError), tree.folder(folder) as fd:
        os.unlink(name, dir_fd=fd)
        tree.prune(folder, 1)


def whole_sha256(parts: Sequence[Part] | None) -> str | None:
    """The digest of the whole object: only an object of one part has one."""
    return parts[0].sha256 if parts is not None and len(parts) == 1 else None


def _place(key: Key) -> tuple[Path, bytes]:
    digest = hashlib.sha256(key.encode()).hexdigest().encode()
    return (ATTESTED, digest[:2]), digest


def _identity(file: os.stat_result) -> list[int]:
    return [file.st_ino, file.st_size, file.st_mtime_ns]
