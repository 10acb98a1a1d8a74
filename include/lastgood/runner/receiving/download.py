"""Fetching a checkpoint into a folder that appears only when it is whole and verified.

The objects are received into a hidden folder beside the destination, hashed as they come. A
download that was interrupted goes on there: what had arrived is hashed again, not fetched again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.runner.checkpoint import Checkpoint
from lastgood.runner.disk.durable import sync_folder
from lastgood.runner.problems import DestinationTaken
from lastgood.runner.receiving.reading import Reading, reading
from lastgood.runner.receiving.receiver import Receiver
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.progress import Progress, Report
from lastgood.runner.working.stopping import Stop


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A checkpoint that is on this machine, every byte verified."""

    checkpoint: Checkpoint
    manifest: Manifest
    folder: Path


def download(
    coordinator: Coordinator,
    workload: str,
    stage: str,
    which: str,
    dest: Path,
    *,
    reader: str,
    pace: Pace,
    progress: Report | None,
    durable: bool,
) -> Downloaded:
    """Fetch a checkpoint ("latest", or workload/stage/generation.sequence) into `dest`.

    Raises DestinationTaken, NotFound, RestoreBlocked, CopyGone, CorruptObject, Unreachable,
    OSError.
    """
    check_free(dest)
    asking = coordinator.until(Stop())
    with reading(asking, workload, stage, which, reader) as source:
        return receive_all(asking, source, dest, pace=pace, progress=progress, durable=durable)


def receive_all(
    asking: Coordinator,
    source: Reading,
    dest: Path,
    *,
    pace: Pace,
    progress: Report | None,
    durable: bool = True,
) -> Downloaded:
    """Fetch what a lease lets its holder read into `dest`. Raises as `download` does."""
    lease = source.lease
    with _staging(dest, lease.checkpoint) as staging:
        total = Progress(lease.manifest.size_bytes, progress)
        receiver = Receiver(asking, source, staging, total, pace, durable=durable)
        receiver.receive(sorted(lease.manifest.objects, key=lambda item: -item.size_bytes))
        _publish(staging, dest, lease.manifest.objects, durable=durable)
    return Downloaded(lease.checkpoint, lease.manifest, dest)


def check_free(dest: Path) -> None:
    """Raises DestinationTaken unless `dest` is an empty folder or not there."""
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        raise DestinationTaken(dest=dest, reason="is there and is no folder")
    if dest.is_dir() and any(dest.iterdir()):
        raise DestinationTaken(dest=dest, reason="is not empty")


@contextmanager
def _staging(dest: Path, checkpoint: Checkpoint) -> Iterator[Path]:
    """A folder that only this process uses. Its name is the checkpoint's, so that what an earlier
    process received of it is found again."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    folder = dest.parent / f".{dest.name}.lastgood-{checkpoint.manifest_digest[:16]}"
    folder.mkdir(exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _lock(fd, dest)
        check_free(dest)  # again: whoever held the lock may have put it in place
        yield folder
    finally:
        os.close(fd)


def _lock(fd: int, dest: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DestinationTaken(dest=dest, reason="is being downloaded by another process") from None


def _publish(
    staging: Path, dest: Path, objects: tuple[ManifestObject, ...], *, durable: bool
) -> None:
    folders = {staging, *(parent for item in objects for parent in (staging / item.path).parents)}
    for folder in folders:
        if durable and folder.is_relative_to(staging):
            sync_folder(folder)
    try:
        staging.rename(dest)
    except OSError:
        check_free(dest)
        raise
    if durable:
        sync_folder(dest.parent)
