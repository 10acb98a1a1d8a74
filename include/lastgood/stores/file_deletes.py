"""Deleting files of a store, folder by folder, with one outcome for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from lastgood.stores.attestations import forget
from lastgood.stores.base import KeyOutcome, Outcome, StoredObject
from lastgood.stores.keys import QUARANTINE, Path, path_of
from lastgood.stores.tree import Tree, remove, spelled
from lastgood.stores.walk import NOT_UTF8


def deleted(
    tree: Tree, objects: Sequence[StoredObject], *, prune: Callable[[Path], None]
) -> Iterator[KeyOutcome]:
    """See `base.Store.delete`; `prune` takes each folder that something was deleted from."""

    def folder_of(one: StoredObject) -> tuple[Path, bool]:
        return _place(tree, one)[:-1], one.foreign == NOT_UTF8

    for (folder, is_spelled), together in groupby(objects, key=folder_of):
        yield from _from_folder(tree, folder, is_spelled, list(together), prune)


def _from_folder(
    tree: Tree,
    folder: Path,
    is_spelled: bool,
    objects: Sequence[StoredObject],
    prune: Callable[[Path], None],
) -> list[KeyOutcome]:
    """`is_spelled`: the names are as listings show them, for they are no UTF-8."""
    try:
        if is_spelled:
            folder = tree.spelled(folder)
        with tree.translated(objects[0].key, "delete"), tree.folder(folder) as opened:
            outcomes = [_one(tree, opened, one) for one in objects]
            os.fsync(opened)
    except (FileNotFoundError, NotADirectoryError):
        outcomes = [KeyOutcome(one.key, one.version_id, Outcome.ABSENT) for one in objects]
    prune(folder)
    return outcomes


def _one(tree: Tree, folder: int, one: StoredObject) -> KeyOutcome:
    name = _place(tree, one)[-1]
    try:
        if one.foreign == NOT_UTF8:
            name = spelled(folder, name)
        if not one.hidden or tree.lstat(path_of(tree.store, one.key)) is None:
            forget(tree, one.key)
        remove(folder, name)
    except FileNotFoundError:
        return KeyOutcome(one.key, one.version_id, Outcome.ABSENT)
    except OSError as error:
        return KeyOutcome(one.key, one.version_id, Outcome.REFUSED, error.strerror)
    return KeyOutcome(one.key, one.version_id, Outcome.GONE)


def _place(tree: Tree, one: StoredObject) -> Path:
    path = path_of(tree.store, one.key)
    return (QUARANTINE, *path) if one.hidden else path
