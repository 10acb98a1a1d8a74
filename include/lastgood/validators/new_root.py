"""A root folder of which only what a program is given can be seen.

A socket that has a name in the file system is in reach of whoever sees the name, whatever network
it is in. So the name is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lastgood.validators import kernel

_PLACE = "/dev/shm"  # a folder that is there on every Linux, to build the root at
_LEFT = ".left"
_LINKS = {"/dev/fd": "/proc/self/fd", "/dev/stdout": "/proc/self/fd/1"}


def enter_new_root(paths: Iterable[str], folder: str) -> None:
    """Give this process, in mounts of its own, a root that holds `paths` read-only, `folder`, and
    an empty place for shared memory. Raises OSError where that is refused."""
    shown = {path for path in paths if os.path.exists(path)} | {folder}
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in shown}
    try:
        kernel.mount("lastgood-root", _PLACE, "tmpfs", kernel.MS_NOSUID, "size=4m,mode=755")
        try:
            _fill(kept)
            os.mkdir(f"{_PLACE}/{_LEFT}")
            kernel.pivot_root(_PLACE, f"{_PLACE}/{_LEFT}")
        except OSError:
            kernel.unmount(_PLACE)
            raise
        os.chdir("/")
        kernel.unmount(f"/{_LEFT}")
        os.rmdir(f"/{_LEFT}")
        kernel.set_read_only("/", True, recursive=True)
        kernel.set_read_only(folder, False, recursive=False)
    finally:
        for descriptor in kept.values():
            os.close(descriptor)


def _fill(kept: Mapping[str, int]) -> None:
    for path in sorted(kept, key=lambda path: (path.count("/"), path)):
        place = _place_for(path)
        if os.path.isdir(f"/proc/self/fd/{kept[path]}"):
            place.mkdir(parents=True, exist_ok=True)
        elif not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        source = f"/proc/self/fd/{kept[path]}"
        kernel.mount(source, str(place), None, kernel.MS_BIND | kernel.MS_REC)
    Path(f"{_PLACE}{_PLACE}").mkdir(parents=True, exist_ok=True)
    for name, target in _LINKS.items():
        link = Path(f"{_PLACE}{name}")
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _place_for(path: str) -> Path:
    """Where a path comes to lie. Links on the way to it are made there, too: a program may know it
    by another name than its real one."""
    parts = Path(path).parts
    for number in range(2, len(parts) + 1):
        here = os.path.join(*parts[:number])
        if os.path.islink(here):
            target = os.readlink(here)
            link = Path(f"{_PLACE}{here}")
            if not link.is_symlink() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
            real = os.path.join(os.path.dirname(here), target, *parts[number:])
            return _place_for(os.path.normpath(real))
    return Path(f"{_PLACE}{path}")
