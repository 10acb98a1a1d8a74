"""What is done to a whole folder: moved in and out of quarantine, made read-only, pruned."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from lastgood.stores.base import ForeignEntry, KeyExists, StoreError
from lastgood.stores.keys import Path
from lastgood.stores.tree import (
    ATTEMPTS,
    FILE,
    WRITE_BITS,
    Tree,
    link,
    remove,
    remove_folder,
    shown,
    with_write_bit,
)


def move(tree: Tree, source: Path, target: Path) -> None:
    """Move a folder by one rename; nothing to do if it is gone from `source`. If both are there (a
    late write made the folder anew), what lies in `source` joins `target` without replacing
    anything."""
    for _ in range(ATTEMPTS):
        try:
            with tree.folder(source[:-1]) as from_folder:
                os.stat(source[-1], dir_fd=from_folder, follow_symlinks=False)
                _move_into(tree, from_folder, source[-1], target)
                return
        except NotADirectoryError as error:
            if not _is_there(tree, source):
                return
            key = shown(b"/".join(source))
            reason = f"it cannot be moved: something above {shown(b'/'.join(target))} is no folder"
            raise StoreError(store=tree.store, key=key, reason=reason) from error
        except FileNotFoundError:
            if not _is_there(tree, source):
                return


def _move_into(tree: Tree, from_folder: int, name: bytes, target: Path) -> None:
    with tree.folder(target[:-1], create=True) as to_folder:
        try:
            _rename_folder(tree, from_folder, name, to_folder, target[-1])
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            _join(tree, from_folder, name, to_folder, target[-1])
        os.fsync(to_folder)
        os.fsync(from_folder)


def _rename_folder(
    tree: Tree, from_folder: int, name: bytes, to_folder: int, new_name: bytes
) -> None:
    """Rename a folder, never replacing one that holds anything. Its own write bit is needed,
    because its `..` changes with it."""
    moved = tree.open_folder(from_folder, name)
    try:
        with_write_bit(
            from_folder,
            lambda: with_write_bit(
                to_folder,
                lambda: with_write_bit(
                    moved,
                    lambda: os.rename(name, new_name, src_dir_fd=from_folder, dst_dir_fd=to_folder),
                ),
            ),
        )
    finally:
        os.close(moved)


def _join(tree: Tree, from_folder: int, name: bytes, to_folder: int, new_name: bytes) -> None:
    source = tree.open_folder(from_folder, name)
    target = tree.open_folder(to_folder, new_name)
    try:
        for entry in map(os.fsencode, os.listdir(source)):
            if stat.S_ISDIR(os.stat(entry, dir_fd=source, follow_symlinks=False).st_mode):
                try:
                    _rename_folder(tree, source, entry, target, entry)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    _join(tree, source, entry, target, entry)
            else:
                _move_file(tree, source, entry, target)
        os.fsync(target)
    finally:
        os.close(source)
        os.close(target)
    with suppress(FileNotFoundError):
        remove_folder(from_folder, name)


def _move_file(tree: Tree, source: int, name: bytes, target: int) -> None:
    try:
        link(source, name, target, name)
    except FileExistsError as error:
        ours = os.stat(name, dir_fd=source, follow_symlinks=False)
        if not os.path.samestat(ours, os.stat(name, dir_fd=target, follow_symlinks=False)):
            raise KeyExists(store=tree.store, key=shown(name)) from error
    remove(source, name)


def _is_there(tree: Tree, path: Path) -> bool:
    try:
        with tree.folder(path[:-1]) as folder:
            os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def prune_below(tree: Tree, folder: int) -> None:
    """Remove every folder below an open one that holds nothing."""
    for name in map(os.fsencode, os.listdir(folder)):
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                continue
            child = tree.open_folder(folder, name)
            try:
                prune_below(tree, child)
            finally:
                os.close(child)
            try:
                remove_folder(folder, name)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise


def protect_below(tree: Tree, path: Path) -> None:
    """Take the write bits from every file and folder, and bring them to the disk. What is no
    regular file is left alone. ForeignEntry for what another account owns and keeps to itself."""
    with suppress(FileNotFoundError, NotADirectoryError), tree.folder(path) as folder:
        _protect(tree, folder)


def _protect(tree: Tree, folder: int) -> None:
    for name in map(os.fsencode, os.listdir(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        try:
            _protect_entry(tree, folder, name, status.st_mode)
        except PermissionError as error:
            if status.st_uid == os.geteuid():
                raise
            what = (
                f"something of another account (uid {status.st_uid}, mode"
                f" {stat.filemode(status.st_mode)}), which this one (uid {os.geteuid()}) may not"
                " read or not make read-only"
            )
            raise ForeignEntry(store=tree.store, key=shown(name), what=what) from error
    _make_read_only(folder)


def _protect_entry(tree: Tree, folder: int, name: bytes, mode: int) -> None:
    if stat.S_ISDIR(mode):
        fd = tree.open_folder(folder, name)
    elif stat.S_ISREG(mode):
        fd = tree.open_file(folder, name, FILE)
    else:
        return
    try:
        if stat.S_ISDIR(mode):
            _protect(tree, fd)
        else:
            _make_read_only(fd)
    finally:
        os.close(fd)


def _make_read_only(fd: int) -> None:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & WRITE_BITS:
        os.fchmod(fd, mode & ~WRITE_BITS)
    os.fsync(fd)
