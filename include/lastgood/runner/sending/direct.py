"""Saving into the attempt's own folder on a file system that the job and the workers share."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lastgood.runner.disk.durable import NEW_OR_OLD, make_folders, sync_folder, write_hashed
from lastgood.runner.disk.files import SourceFile, new_buffer
from lastgood.runner.disk.shared import shared_folder
from lastgood.runner.problems import FolderNotOurs
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.stopping import Stop

_WRITE_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def write_direct(
    ticket: Ticket, file: SourceFile, rank: int | None, progress: Progress, stop: Stop
) -> ObjectRecord:
    """Copy one file in while it is hashed; it is durable and read-only when this returns, and the
    store's group may read it, where one shares the store.

    Raises FolderUnreachable, FolderNotOurs, FileChanged, or OSError as the file system says it.
    """
    folder = shared_folder(ticket.direct_path)
    target = folder / file.path
    try:
        make_folders(folder, target.parent)
        fd = _opened(target)
    except PermissionError as error:
        around = folder.stat()
        if around.st_uid == os.geteuid() or not around.st_mode & _WRITE_BITS:  # sealed meanwhile
            raise
        raise _not_ours(folder, os.geteuid()) from error
    try:
        mode = _finished_mode(fd, folder)
        with file.reading() as source:
            chunks = file.chunks(source, 0, file.size_bytes, new_buffer(), stop)
            sha256 = write_hashed(fd, chunks, progress)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
    sync_folder(target.parent)
    return ObjectRecord(file.path, file.size_bytes, sha256, rank)


def _opened(target: Path) -> int:
    try:
        return os.open(target, NEW_OR_OLD, 0o666)
    except PermissionError:
        if not target.is_file():
            raise
    target.unlink()  # an earlier try finished it, and made it read-only
    return os.open(target, NEW_OR_OLD, 0o666)


def _finished_mode(fd: int, folder: Path) -> int:
    """What a file's mode becomes once it is whole. Nobody but its owner can change it afterwards.
    Raises FolderNotOurs where the coordinator could neither read nor delete it then."""
    file, around = os.fstat(fd), folder.stat()
    readable = stat.S_IMODE(file.st_mode) & ~_WRITE_BITS
    if around.st_mode & stat.S_ISGID:
        return readable | stat.S_IRGRP
    if file.st_uid != around.st_uid:
        raise _not_ours(folder, file.st_uid)
    return readable


def _not_ours(folder: Path, uid: int) -> FolderNotOurs:
    return FolderNotOurs(uid=uid, folder=folder, owner=folder.stat().st_uid)
