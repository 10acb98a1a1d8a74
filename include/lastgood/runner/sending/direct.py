"""Saving into the attempt's own folder on a file system that the job and the workers share."""

from __future__ import annotations

import os

from lastgood.runner.disk.durable import NEW_OR_OLD, make_folders, sync_folder, write_hashed
from lastgood.runner.disk.files import SourceFile, new_buffer
from lastgood.runner.disk.shared import shared_folder
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.stopping import Stop


def write_direct(
    ticket: Ticket, file: SourceFile, rank: int | None, progress: Progress, stop: Stop
) -> ObjectRecord:
    """Copy one file in while it is hashed; it is durable when this returns.

    Raises FolderUnreachable, FileChanged, or OSError as the file system says it.
    """
    folder = shared_folder(ticket.direct_path)
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
