"""Saving into the attempt's own folder on a file system that the job and the workers share."""

from __future__ import annotations

import os
from pathlib import Path

from lastgood.runner.durable import NEW_OR_OLD, make_folders, sync_folder, write_hashed
from lastgood.runner.files import SourceFile, new_buffer
from lastgood.runner.problems import FolderUnreachable
from lastgood.runner.progress import Progress
from lastgood.runner.stopping import Stop
from lastgood.runner.ticket import ObjectRecord, Ticket


def write_direct(
    ticket: Ticket, file: SourceFile, rank: int | None, progress: Progress, stop: Stop
) -> ObjectRecord:
    """Copy one file in while it is hashed; it is durable when this returns.

    Raises FolderUnreachable, FileChanged, or OSError as the file system says it.
    """
    folder = direct_folder(ticket.direct_path)
    target = folder / file.path
    make_folders(folder, target.parent)
    fd = os.open(target, NEW_OR_OLD, 0o666)
    try:
        with file.reading() as source:
            chunks = file.chunks(source, 0, file.size_bytes, new_buffer(), stop)
            sha256 = write_hashed(fd, chunks, progress)
    finally:
        os.close(fd)
    sync_folder(target.parent)
    return ObjectRecord(file.path, file.size_bytes, sha256, rank)


def direct_folder(path: str | None) -> Path:
    """The folder that the coordinator named, if it can be seen from here. It is never made here:
    where the file system is not mounted, that would write to the wrong disk."""
    if path is None or not Path(path).is_dir():
        raise FolderUnreachable(folder=path)
    return Path(path)
