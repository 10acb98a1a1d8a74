"""What a file system accounts for a folder: its blocks, a project quota, deleted files that some
process still holds open."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lastgood.rules.accounting import Covers, Number
from lastgood.rules.quantities import counted
from lastgood.stores.keys import QUARANTINE, RESERVED
from lastgood.stores.tree import FOLDER, Tree
from lastgood.stores.walk import DEPTH_LIMIT

PROC = Path("/proc")
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own
_DELETED = " (deleted)"


def file_numbers(tree: Tree, part_bytes: int) -> list[Number]:
    """`du`, `statvfs`, and a project quota where the folder has one. `part_bytes` are those of
    pending uploads, which a listing shows beside the objects."""
    blocks = _Blocks()
    with tree.folder(()) as root:
        blocks.add_folder(root, own=False, top=True)
    beside = {
        "folders": blocks.folder_bytes,
        "own-records": blocks.own_bytes - part_bytes,
    }
    whole = blocks.file_bytes + blocks.own_bytes + blocks.folder_bytes
    found = [Number("du", whole, Covers.STORE, beside=beside, allocated=True)]
    held = deleted_open(tree.root)
    beside = {**beside, "deleted-but-open": held.size_bytes}
    disk = os.statvfs(tree.root)
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    is_quota = disk.f_blocks < os.statvfs(mount_point(tree.root)).f_blocks
    how = "project-quota" if is_quota else "statvfs"
    because = held.note()
    found.append(
        Number(how, used, Covers.FILE_SYSTEM, beside=beside, allocated=True, because=because)
    )
    return found


def mount_point(path: Path) -> Path:
    """The folder at which the file system of `path` is mounted. A quota of one folder's project
    makes the folder look like a smaller file system than its mount point."""
    found = path.resolve()
    while not os.path.ismount(found):
        found = found.parent
    return found


@dataclass(slots=True)
class _Blocks:
    """Bytes on disk, each inode counted once: of listed files, of the store's own, of folders."""

    file_bytes: int = 0
    own_bytes: int = 0
    folder_bytes: int = 0
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def add_folder(self, fd: int, *, own: bool, top: bool = False, depth: int = 0) -> None:
        self.folder_bytes += os.fstat(fd).st_blocks * BLOCK_BYTES
        with os.scandir(fd) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        for name in sorted(names, key=lambda name: name in RESERVED):
            reserved = own or (top and name in RESERVED and name != QUARANTINE)
            with suppress(FileNotFoundError):
                self._add(fd, name, own=reserved, depth=depth)

    def _add(self, fd: int, name: bytes, *, own: bool, depth: int) -> None:
        file = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(file.st_mode):
            if depth < DEPTH_LIMIT:
                child = os.open(name, FOLDER, dir_fd=fd)
                try:
                    self.add_folder(child, own=own, depth=depth + 1)
                finally:
                    os.close(child)
            return
        if file.st_nlink > 1:
            inode = (file.st_dev, file.st_ino)
            if inode in self._seen:
                return
            self._seen.add(inode)
        if own:
            self.own_bytes += file.st_blocks * BLOCK_BYTES
        else:
            self.file_bytes += file.st_blocks * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class DeletedOpen:
    """Deleted files of one folder's file system that are still open: bytes on disk below the folder
    and elsewhere, the processes that hold them, and how many processes could not be looked into."""

    size_bytes: int
    elsewhere_bytes: int
    holders: Sequence[str]
    unseen: int | None  # None: there is no /proc

    def note(self) -> str:
        """In words; empty where there is nothing to say."""
        said = []
        if self.unseen is None:
            said.append("without /proc, deleted files that are open stay unseen")
        if self.holders:
            said.append(f"deleted files are held open by {', '.join(self.holders)}")
        if self.unseen:
            said.append(f"{counted(self.unseen, 'process', 'processes')} could not be looked into")
        return "; ".join(said)


def deleted_open(root: Path, proc: Path = PROC) -> DeletedOpen:
    """Look through the open files of every process for deleted ones on the file system of `root`.
    Without root's rights other users' processes stay unseen, and the sum is the least there is."""
    if not proc.is_dir():
        return DeletedOpen(0, 0, (), None)
    device = os.stat(root).st_dev
    below: dict[int, int] = {}
    elsewhere: dict[int, int] = {}
    holders: set[str] = set()
    unseen = 0
    for process in sorted(proc.glob("[0-9]*"), key=lambda one: int(one.name)):
        try:
            for link, file in _deleted_files(process, device):
                is_below = Path(link).is_relative_to(root.resolve())
                size = file.st_blocks * BLOCK_BYTES
                (below if is_below else elsewhere)[file.st_ino] = size
                if is_below:
                    holders.add(f"process {process.name}")
        except PermissionError:
            unseen += 1
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESRCH):
                raise
    return DeletedOpen(sum(below.values()), sum(elsewhere.values()), sorted(holders), unseen)


def _deleted_files(process: Path, device: int) -> Iterator[tuple[str, os.stat_result]]:
    """(name before it was deleted, status) of each; an open file is found by its descriptor."""
    for descriptor in os.listdir(process / "fd"):
        path = process / "fd" / descriptor
        with suppress(FileNotFoundError):
            link = os.readlink(path)
            if not link.endswith(_DELETED):
                continue
            file = os.stat(path)
            if file.st_dev == device and file.st_nlink == 0 and stat.S_ISREG(file.st_mode):
                yield re.sub(re.escape(_DELETED) + "$", "", link), file
