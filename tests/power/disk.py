"""A disk whose power can be cut.

It is an ext4 file system in an image file. What programs wrote and did not sync is in the kernel's
memory, and not in the image: a copy of the image is what a power cut at that moment would leave.
Needs root, to mount it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

_SIZE_BYTES = 1 << 30  # of which only what is written takes room
_TRIES = 100
_CLONE_NEWNS = 0x00020000


class Disk:
    """One mounted file system; its root is `folder`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image
        device = folder.stat().st_dev
        self._stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")

    def writes(self) -> int:
        """How many writes have reached the disk."""
        return self._counters()[0]

    def sync(self) -> None:
        """Have all that was written reach the disk."""
        _run("sync", "--file-system", str(self.folder))

    def cut(self, image: Path) -> None:
        """Keep in `image` what a power cut would leave now. Every process that this one started
        stands still meanwhile."""
        with _others_standing_still():
            for _ in range(_TRIES):
                before = self._counters()
                _run("cp", "--sparse=always", str(self._image), str(image))
                if self._counters() == before and not before[1]:
                    return
        raise AssertionError(f"the disk was written to during each of {_TRIES} copies")

    def _counters(self) -> tuple[int, int]:
        """The writes that ended, and the requests on their way."""
        fields = self._stat.read_text().split()
        return int(fields[4]), int(fields[8])


@contextmanager
def new_disk(folder: Path) -> Iterator[Disk]:
    """An empty disk at `folder`, which is made."""
    image = folder.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(_SIZE_BYTES)
    _run("mkfs.ext4", "-q", "-F", str(image))
    with mounted(image, folder) as disk:
        yield disk


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Disk]:
    """The disk of an image, as the next start of the machine finds it."""
    folder.mkdir(mode=0o755, exist_ok=True)
    _run("mount", "-o", "loop", str(image), str(folder))
    try:
        folder.chmod(0o755)
        yield Disk(image, folder)
    finally:
        _run("umount", str(folder))


@cache
def why_not() -> str | None:
    """Why no disk can be had here, if so. Mounts end with this process, even when it is killed."""
    if os.geteuid() != 0:
        return "needs root, to mount a disk"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        return f"needs mounts of its own: {os.strerror(ctypes.get_errno())}"
    try:
        _run("mount", "--make-rprivate", "/")
        _run("mkfs.ext4", "-V")
        _run("losetup", "--find")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"needs mkfs.ext4 and a loop device: {error}"
    return None


@contextmanager
def _others_standing_still() -> Iterator[None]:
    stopped = []
    try:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.suspend()
                stopped.append(process)
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
