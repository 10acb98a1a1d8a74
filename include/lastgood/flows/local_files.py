"""The objects of a copy as files of this machine, for what can only work with files."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lastgood.catalog.copies import Copy, CopyObject
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix, Store

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 256 << 20  # of the disk that a download leaves to others


class NoRoom(Exception):
    """The scratch disk cannot take the copy: a machine's limit, not the copy's fault."""


class Differs(Exception):
    """An object that was read is not what was committed."""

    def __init__(self, path: str, problem: str, expected: object, found: object) -> None:
        super().__init__(path, problem)
        self.facts = {"path": path, "problem": problem, "expected": expected, "found": found}


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for one validation, below LASTGOOD_SCRATCH or where temporary files go; removed at
    the end with all that was put there."""
    where = os.environ.get("LASTGOOD_SCRATCH", "").strip() or None
    folder = Path(tempfile.mkdtemp(prefix="lastgood-validation-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def in_place(store: Store, copy: Copy) -> Path | None:
    """The folder of the copy's objects in the store itself; None where it has no files."""
    folder = store.local_path(Prefix(copy.prefix))
    return None if folder is None else Path(folder) / layout.OBJECTS_NAME


def download(store: Store, copy: Copy, objects: Sequence[CopyObject], folder: Path) -> int:
    """Copy every object below `folder`, verified as it comes; answers the bytes read. Raises
    Differs for the first that is not what was committed, NoRoom, and StoreError."""
    needed = sum(one.size_bytes for one in objects)
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE_BYTES:
        raise NoRoom(f"{needed} bytes to download, {free} free in {folder.parent}")
    for one in objects:
        file = folder / one.path
        file.parent.mkdir(parents=True, exist_ok=True)
        _download_one(store, copy, one, file)
    return needed


def _download_one(store: Store, copy: Copy, one: CopyObject, file: Path) -> None:
    digest, size_bytes = hashlib.sha256(), 0
    key = Key(layout.object_key(copy.prefix, one.path))
    with store.open(key, version_id=one.version_id) as source, file.open("xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
            if size_bytes > one.size_bytes:
                break
            target.write(chunk)
    if size_bytes != one.size_bytes:
        raise Differs(one.path, "size", one.size_bytes, size_bytes)
    if digest.hexdigest() != one.sha256:
        raise Differs(one.path, "sha256", one.sha256, digest.hexdigest())
