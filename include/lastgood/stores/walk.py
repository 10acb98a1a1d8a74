"""Walking a folder in the order of keys, and adding up what it holds."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lastgood.rules.shards import WHOLE, Shard
from lastgood.stores.base import AccessRefused, Key, StoredObject, StoreError
from lastgood.stores.folder_questions import still_answers
from lastgood.stores.keys import RESERVED
from lastgood.stores.tree import FOLDER, Tree, shown

NOT_UTF8 = "name-not-utf8"  # listed with `\\xNN` for the bytes that are none
DEPTH_LIMIT = 100  # folders; a descriptor is open for each while one walks
NAMED_LIMIT = 20  # folders that an error names


def objects_below(
    tree: Tree, fd: int, prefix: str, *, hidden: bool = False, shard: Shard = WHOLE
) -> Iterator[StoredObject]:
    """Every file of the shard below an open folder, as keys below `prefix`, ascending by the keys'
    UTF-8 bytes. Memory: one folder's names per level. What vanishes meanwhile is skipped; folders
    that cannot be read are an error that names them, after everything else was listed, never a
    short list. What is no regular file is listed and never followed."""
    walk = _Walk(tree, hidden, shard)
    yield from walk.below(fd, prefix, depth=0, foreign=None, raw=None)
    if walk.unreadable:
        raise AccessRefused(
            store=tree.store,
            key=walk.unreadable[0],
            action="listing",
            reason=f"{len(walk.unreadable)} folders cannot be read: "
            + ", ".join(repr(one) for one in walk.unreadable[:NAMED_LIMIT]),
        )


@dataclass(slots=True)
class _Walk:
    tree: Tree
    hidden: bool
    shard: Shard
    unreadable: list[str] = field(default_factory=list)

    def below(
        self, fd: int, prefix: str, depth: int, foreign: str | None, raw: bytes | None
    ) -> Iterator[StoredObject]:
        """`raw` is the exact prefix where it is not what `prefix` shows."""
        still_answers()
        try:
            names = _names(fd, skip_reserved=prefix == "")
        except PermissionError:
            self.unreadable.append(prefix or str(self.tree.root))
            return
        for order, name in names:
            is_text = _is_utf8(name)
            alien = foreign or (None if is_text else NOT_UTF8)
            key = prefix + shown(name)
            exact = None if raw is None and is_text else (raw or prefix.encode()) + name
            if order.endswith(b"/"):
                yield from self._folder(fd, name, key, depth, alien, exact)
            elif self.shard.holds(key):
                try:
                    file = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield listed(self.tree, key, file, hidden=self.hidden, foreign=alien, raw_key=exact)

    def _folder(
        self, fd: int, name: bytes, key: str, depth: int, foreign: str | None, raw: bytes | None
    ) -> Iterator[StoredObject]:
        if not self.shard.may_hold_below(f"{key}/"):
            return
        if depth == DEPTH_LIMIT:
            if self.shard.holds(key):
                yield StoredObject(Key(key), 0, hidden=self.hidden, foreign="folder-too-deep")
            return
        try:
            child = os.open(name, FOLDER, dir_fd=fd)
        except FileNotFoundError:
            return
        except PermissionError:
            self.unreadable.append(f"{key}/")
            return
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise _changed(self.tree, key) from error
            raise
        try:
            exact = None if raw is None else raw + b"/"
            yield from self.below(child, f"{key}/", depth + 1, foreign, exact)
        finally:
            os.close(child)


def _names(fd: int, *, skip_reserved: bool) -> list[tuple[bytes, bytes]]:
    """(what orders it, name): a folder is ordered with its `/`, so `a.b` comes before `a/b`."""
    names = []
    with os.scandir(fd) as entries:
        for entry in entries:
            raw = os.fsencode(entry.name)
            if skip_reserved and raw in RESERVED:
                continue
            order = raw if _is_utf8(raw) else shown(raw).encode()
            names.append((order + b"/" if entry.is_dir(follow_symlinks=False) else order, raw))
    names.sort()
    return names


def listed(
    tree: Tree,
    key: str,
    file: os.stat_result,
    *,
    hidden: bool = False,
    foreign: str | None = None,
    sha256: str | None = None,
    raw_key: bytes | None = None,
) -> StoredObject:
    """A file as a store lists it."""
    if stat.S_ISDIR(file.st_mode):
        raise _changed(tree, key)
    return StoredObject(
        Key(key),
        file.st_size,
        allocated_bytes=file.st_blocks * 512,
        hidden=hidden,
        modified_at=datetime.fromtimestamp(file.st_mtime, UTC),
        sha256=sha256,
        foreign=_kind(file.st_mode) or foreign,
        inode=(file.st_dev, file.st_ino) if file.st_nlink > 1 else None,
        raw_key=raw_key,
    )


def _kind(mode: int) -> str | None:
    kinds = {
        stat.S_IFREG: None,
        stat.S_IFLNK: "symlink",
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
    }
    return kinds.get(stat.S_IFMT(mode), "device")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _changed(tree: Tree, key: str) -> StoreError:
    reason = "a file and a folder changed places while it was listed; list again"
    return StoreError(store=tree.store, key=key, reason=reason)


@dataclass(slots=True)
class Tally:
    """Sizes of files, each inode counted once."""

    used_bytes: int = 0
    allocated_bytes: int = 0
    repeated_bytes: int = 0  # of further names of an inode that was counted before
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def add(self, file: os.stat_result) -> bool:
        """Count a file; False if another name of it was counted before."""
        if file.st_nlink > 1:
            inode = (file.st_dev, file.st_ino)
            if inode in self._seen:
                return False
            self._seen.add(inode)
        self.used_bytes += file.st_size
        self.allocated_bytes += file.st_blocks * 512
        return True

    def add_below(self, fd: int, *, skip_reserved: bool = False, depth: int = 0) -> None:
        """Count everything below an open folder."""
        for _, raw in _names(fd, skip_reserved=skip_reserved):
            self.add_entry(fd, raw, depth)

    def add_entry(self, fd: int, name: bytes, depth: int = 0) -> None:
        """Count a file of an open folder, or everything below a folder of it; what vanished is
        nothing."""
        with suppress(FileNotFoundError):
            file = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISDIR(file.st_mode):
                if not self.add(file):
                    self.repeated_bytes += file.st_size
            elif depth < DEPTH_LIMIT:
                child = os.open(name, FOLDER, dir_fd=fd)
                try:
                    self.add_below(child, depth=depth + 1)
                finally:
                    os.close(child)
