"""What a group of processes uses, read from /proc. Elsewhere than on Linux it is not known."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_FILES_LIMIT = 100_000  # more files than this are taken for a full disk
_PATH_LIMIT = 4000  # below a longer path nothing can be looked at: taken for a full disk as well
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Census:
    """Anonymous and shared memory (what a file backs can be read again), threads, processor time
    with that of the dead, and files that were unlinked while open."""

    memory_bytes: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0
    unlinked_bytes: int = 0


def of_group(first: int, *, with_open_files: bool = False) -> Census:
    """The process and all its descendants."""
    memory = tasks = ticks = 0
    unlinked: dict[tuple[int, int], int] = {}
    for process in members(first):
        with suppress(OSError, ValueError, IndexError):
            used, threads = _memory_and_threads(process)
            ticks += _ticks(process)
            memory += used
            tasks += threads
            if with_open_files:
                unlinked.update(_unlinked(process))
    return Census(memory, tasks, ticks / _TICKS, sum(unlinked.values()))


def members(first: int) -> Iterator[int]:
    """The process and its descendants, as they are found."""
    found = [first]
    while found:
        process = found.pop()
        yield process
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                with suppress(OSError):
                    children = Path(f"/proc/{process}/task/{thread}/children").read_text()
                    found += [int(child) for child in children.split()]


def _memory_and_threads(process: int) -> tuple[int, int]:
    kilobytes = 0
    threads = 1
    with open(f"/proc/{process}/status", "rb") as status:
        for line in status:
            name, _, value = line.partition(b":")
            if name in (b"RssAnon", b"RssShmem"):
                kilobytes += int(value.split()[0])
            elif name == b"Threads":
                threads = int(value)
    return kilobytes << 10, threads


def _ticks(process: int) -> int:
    text = Path(f"/proc/{process}/stat").read_bytes()
    fields = text[text.rindex(b")") + 2 :].split()
    return sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime


def _unlinked(process: int) -> Iterator[tuple[tuple[int, int], int]]:
    folder = f"/proc/{process}/fd"
    for name in os.listdir(folder):
        with suppress(OSError):
            file = os.stat(f"{folder}/{name}")
            if stat.S_ISREG(file.st_mode) and file.st_nlink == 0:
                yield (file.st_dev, file.st_ino), file.st_blocks * _BLOCK_BYTES


def free_bytes(folder: str) -> int:
    """What is left on the disk of a folder, for those who are not root."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def used_bytes(folder: str) -> int:
    """What the files below a folder take on the disk, counted to a limit, links not followed."""
    total = files = 0
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        if files > _FILES_LIMIT or any(len(path) > _PATH_LIMIT for path in waiting[-1:]):
            return 1 << 62
    return total
