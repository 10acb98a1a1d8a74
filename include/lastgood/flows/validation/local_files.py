"""The objects of a copy as files of this machine, for what can only work with files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.flows.validation.findings import Finding, absent_or_failed, unreadable
from lastgood.rules import layout
from lastgood.stores.base import Key, KeyMissing, Prefix, Store, StoreError

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 256 << 20  # of the disk that a download leaves to others


class _Differs(Exception):
    """An object that was read is not what was committed."""

    def __init__(self, path: str, problem: str, expected: object, found: object) -> None:
        super().__init__(path, problem)
        self.facts = {"path": path, "problem": problem, "expected": expected, "found": found}


_PREFIX = "lastgood-validation-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for one validation, below LASTGOOD_SCRATCH or where temporary files go; removed at
    the end with all that was put there. What killed validations left there is removed first."""
    where = Path(os.environ.get("LASTGOOD_SCRATCH", "").strip() or tempfile.gettempdir())
    remove_abandoned(where)
    folder, held = _new_folder(where)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(held)


def remove_abandoned(where: Path) -> list[Path]:
    """Remove the folders of validations that are no more: a living one holds a lock on its own,
    which the kernel takes from it when it dies."""
    removed = []
    for folder in where.glob(f"{_PREFIX}*"):
        held = _locked(folder)
        if held is not None:
            _remove(folder)
            os.close(held)
            removed.append(folder)
    return removed


def _new_folder(where: Path) -> tuple[Path, int]:
    """A new folder and the lock on it. Another validator may have removed it before it was locked,
    and then there is another try."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
        held = _locked(folder)
        if held is not None:
            return folder, held


def _locked(folder: Path) -> int | None:
    """A lock on a folder of ours; None if it is somebody's, held, or not there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        held = os.open(folder, flags)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there, ours = os.stat(folder, follow_symlinks=False), os.fstat(held)
        if os.path.samestat(there, ours) and ours.st_uid == os.geteuid():
            return held
    except OSError:
        pass
    os.close(held)
    return None


def _remove(folder: Path) -> None:
    """However deep a program made it, and whatever it took from us: Python's own way down is a
    recursion, and stops at what it may not list."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)
    if folder.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True)


def in_place(store: Store, copy: Copy) -> Path | None:
    """The folder of the copy's objects in the store itself; None where it has no files."""
    folder = store.local_path(Prefix(copy.prefix))
    return None if folder is None else Path(folder) / layout.OBJECTS_NAME


def download(
    store: Store, copy: Copy, objects: Sequence[CopyObject], folder: Path
) -> Finding | None:
    """Copy every object below a new folder, verified as it comes; what was found instead of the
    copy that was committed, or None for nothing."""
    needed = sum(one.size_bytes for one in objects)
    try:
        folder.mkdir()
        free = shutil.disk_usage(folder).free
        if free < needed + _SPARE_BYTES:
            where = folder.parent.parent
            return Finding("inconclusive", f"{needed} bytes to download, {free} free in {where}")
        for one in objects:
            file = folder / one.path
            file.parent.mkdir(parents=True, exist_ok=True)
            _download_one(store, copy, one, file)
    except _Differs as error:
        reason = f"{error.facts['problem']} of {error.facts['path']}"
        return absent_or_failed(store, reason, [error.facts], 0)
    except KeyMissing as error:
        return absent_or_failed(store, str(error), [], 0)
    except StoreError as error:
        return unreadable(error)
    except OSError as error:
        return Finding("inconclusive", f"it could not be downloaded to {folder}: {error}")
    return None


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
        raise _Differs(one.path, "size-differs", one.size_bytes, size_bytes)
    if digest.hexdigest() != one.sha256:
        raise _Differs(one.path, "sha256-differs", one.sha256, digest.hexdigest())
