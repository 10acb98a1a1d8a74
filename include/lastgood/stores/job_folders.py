"""Folders of a `direct` store that jobs write into, also jobs of other accounts.

A set-group-ID bit on the store's own folder says that its group shares the store: members may pass
to the folder of an open attempt and write there, whatever the umask of who made it. Every folder
for the objects is made here, because only who owns a folder can make it read-only and can empty it
again. Without that bit nothing is given to anybody, and jobs run as the account of the workers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from lastgood.stores.base import Prefix, StoreError
from lastgood.stores.keys import Path
from lastgood.stores.tree import Tree

PASS, WRITE = stat.S_IXGRP, stat.S_IRWXG


@runtime_checkable
class MakesJobFolders(Protocol):
    """A store whose jobs write files in place."""

    def make_direct(self, prefix: Prefix, objects: Iterable[str]) -> str:
        """Make the folder that an attempt's job writes into, and those of its objects in it; the
        path of the first. `objects` are their paths below it. StoreError where the store's group
        could not be let in."""


def make_for_jobs(tree: Tree, folder: Path, below: Iterable[Path]) -> None:
    """Open an existing folder to the group that shares the store, if one does, and make the folders
    `below` it open to that group too."""
    with tree.folder(()) as root:
        status = os.fstat(root)
    if not status.st_mode & stat.S_ISGID:
        return
    for depth in range(1, len(folder)):
        _let_in(tree, folder[:depth], status.st_gid, PASS)
    _let_in(tree, folder, status.st_gid, WRITE)
    for path in below:
        for depth in range(1, len(path) + 1):
            _let_in(tree, (*folder, *path[:depth]), status.st_gid, WRITE)


def _let_in(tree: Tree, path: Path, group: int, bits: int) -> None:
    with tree.folder(path, create=True) as folder:
        status = os.fstat(folder)
        if not status.st_mode & stat.S_IWUSR:
            return  # committed meanwhile, and made read-only
        wanted = stat.S_IMODE(status.st_mode) | stat.S_ISGID | bits
        if stat.S_IMODE(status.st_mode) != wanted:
            with suppress(PermissionError):  # somebody else's: told below, unless it is open anyway
                os.fchmod(folder, wanted)
            status = os.fstat(folder)
    if status.st_gid != group or stat.S_IMODE(status.st_mode) & wanted != wanted:
        reason = (
            f"its group (gid {group}) shares it, but could not be let into a folder of uid"
            f" {status.st_uid} and gid {status.st_gid}: the account of the coordinator and of its"
            " workers has to be in the group, and to own all folders"
        )
        raise StoreError(store=tree.store, key=os.fsdecode(b"/".join(path)), reason=reason)
