"""Bytes that are hashed on their way to the disk, and are there after a power cut."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from lastgood.runner.working.progress import Progress

_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)  # of Linux
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and do not wait
NEW_OR_OLD = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def write_hashed(fd: int, chunks: Iterable[memoryview], progress: Progress) -> str:
    """Write the chunks from the file's start on and make it durable; their SHA-256, in hex."""
    digest = hashlib.sha256()
    offset = 0
    for chunk in chunks:
        digest.update(chunk)
        write_all(fd, chunk, offset)
        offset += len(chunk)
        progress.add(len(chunk))
    os.ftruncate(fd, offset)  # a file of an earlier try may have been longer
    os.fsync(fd)
    return digest.hexdigest()


def write_all(fd: int, view: memoryview, offset: int) -> None:
    """Write at an offset, however much the file system takes at a time."""
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)


def begin_writing(fd: int, offset: int, size_bytes: int) -> None:
    """Have the disk begin with these bytes, so that a sync at the end finds little left to wait
    for. Only a hint: where it cannot be given, the sync does it all."""
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(fd, ctypes.c_int64(offset), ctypes.c_int64(size_bytes), _WRITE)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(root: Path, folder: Path) -> None:
    """Make `folder` and what is missing between it and the existing `root`, durably."""
    if folder == root or folder.is_dir():
        return
    make_folders(root, folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
