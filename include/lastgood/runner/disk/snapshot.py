"""Holding a checkpoint's files still while training goes on.

"link"  a hard link to each file, in a private folder beside it. Costs nothing, but holds only the
        *name*: safe where the trainer writes each checkpoint into new files, or replaces them by
        rename. A file that is rewritten in place meanwhile is detected, and the save fails with
        FileChanged. Files that cannot be linked are copied.
"copy"  a copy of each file: a reflink where the file system has them, else the bytes. Safe for
        every trainer, and the trainer waits for the copying.
"none"  the files themselves: the trainer promises to leave them alone until the save is over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

from lastgood.runner.disk.files import SNAPSHOT_FOLDERS, SourceFile, Version, new_buffer
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.stopping import Stop

Snapshot = Literal["link", "copy", "none"]
_OWNER = "owner.lock"  # locked while the process that made the folder uses it
_FICLONE = 0x40049409  # ioctl(2): share the blocks of another file
_THREADS = 4


@contextmanager
def snapshot_of(files: Sequence[SourceFile], how: Snapshot) -> Iterator[list[SourceFile]]:
    """The same objects, held as `how` says until the block ends. Raises FileChanged or OSError."""
    if how == "none":
        yield list(files)
        return
    with ExitStack() as folders:
        places = _private_folders(files, folders)
        held = in_parallel(
            lambda item: _hold(item[1], places[item[1].file.parent] / str(item[0]), how),
            enumerate(files),
            workers=_THREADS,
            stop=Stop(),
        )
        yield held


def _private_folders(files: Sequence[SourceFile], folders: ExitStack) -> dict[Path, Path]:
    """One folder on each file system, beside the first of its files."""
    by_device: dict[int, Path] = {}
    places: dict[Path, Path] = {}
    for parent in {file.file.parent: None for file in files}:
        device = parent.stat().st_dev
        if device not in by_device:
            by_device[device] = folders.enter_context(_private_folder(_beside(parent, device)))
        places[parent] = by_device[device]
    return places


def _beside(folder: Path, device: int) -> Path:
    """Outside of the folder, which the trainer may remove; inside, if it is a file system's
    root."""
    outside = folder.absolute().parent
    return outside if outside.stat().st_dev == device else folder


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=SNAPSHOT_FOLDERS, dir=parent))
    try:
        with (folder / "new").open("wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            (folder / "new").rename(folder / _OWNER)  # never there unlocked: see _remove_abandoned
            yield folder
    finally:
        shutil.rmtree(folder)


def _remove_abandoned(parent: Path) -> None:
    """Clear what killed processes left, so that their files do not take space for ever."""
    for folder in parent.glob(f"{SNAPSHOT_FOLDERS}*"):
        with suppress(FileNotFoundError, BlockingIOError), (folder / _OWNER).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


def _hold(file: SourceFile, place: Path, how: Snapshot) -> SourceFile:
    if how == "link":
        with suppress(OSError):  # another owner's file, or a file system without links: copy it
            os.link(file.file, place, follow_symlinks=True)
            return replace(file, file=place)
    _copy(file, place)
    return replace(file, file=place, version=Version.of(place.stat()))


def _copy(file: SourceFile, place: Path) -> None:
    with file.reading() as fd, place.open("xb") as target:
        if not _reflink(fd, target):
            for chunk in file.chunks(fd, 0, file.size_bytes, new_buffer(), Stop()):
                target.write(chunk)


def _reflink(fd: int, target: BinaryIO) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, fd)
    except OSError:
        return False
    return True
