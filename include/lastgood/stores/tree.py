"""A directory tree that nobody can lead out of.

Every path is opened component by component relative to the root's descriptor with O_NOFOLLOW, so a
symbolic link below the root is refused wherever it stands and whenever it was put there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath
from typing import TypeVar

from lastgood.stores.base import AccessRefused, ForeignEntry, StoreError
from lastgood.stores.folder_questions import still_answers
from lastgood.stores.keys import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that somebody left there must not wait for its other end.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
WRITE_BITS = 0o222
CHMOD_ATTEMPTS = 16
T = TypeVar("T")
ATTEMPTS = 64  # of a step that a concurrent pruning of empty folders may undo


class Tree:
    """The folder of one store. Errors of the operating system come out as StoreError, except
    FileNotFoundError and NotADirectoryError, whose meaning only the caller knows."""

    def __init__(self, store: str, root: FilePath) -> None:
        self.store = store
        self.root = root

    @contextmanager
    def folder(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the folder; with `create`, it and its parents are made, durably."""
        fd = self._open_root()
        try:
            for part in path:
                child = self._enter(fd, part, create=create)
                os.close(fd)
                fd = child
            yield fd
        finally:
            os.close(fd)

    def _open_root(self) -> int:
        try:
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            # Never "no such key": a disk that is not mounted holds no proof of absence.
            reason = f"the store's folder {self.root} cannot be opened: {error.strerror}"
            raise StoreError(store=self.store, key="", reason=reason) from error

    def _enter(self, fd: int, part: bytes, *, create: bool) -> int:
        try:
            return self.open_folder(fd, part)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=fd)
            os.fsync(fd)
        return self.open_folder(fd, part)

    def open_folder(self, fd: int, name: bytes) -> int:
        """A descriptor of a folder in a folder. ForeignEntry for a symbolic link."""
        still_answers()
        try:
            return os.open(name, FOLDER, dir_fd=fd)
        except OSError as error:
            self._refuse_symlink(fd, name, error)
            raise

    def lstat(self, path: Path) -> os.stat_result | None:
        """What stands at a path, itself and not what it points to; None where nothing does."""
        try:
            with self.folder(path[:-1]) as folder:
                return os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, fd: int, name: bytes, flags: int = FILE) -> int:
        """A descriptor of a regular file in a folder. ForeignEntry for anything else."""
        try:
            opened = os.open(name, flags, 0o666, dir_fd=fd)
        except OSError as error:
            self._refuse_symlink(fd, name, error)
            raise
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise ForeignEntry(store=self.store, key=shown(name), what="no regular file")
        return opened

    def _refuse_symlink(self, fd: int, name: bytes, error: OSError) -> None:
        # With O_DIRECTORY a symbolic link answers ENOTDIR, as a file does.
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            return
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                raise ForeignEntry(
                    store=self.store, key=shown(name), what="a symbolic link"
                ) from error

    def spelled(self, path: Path) -> Path:
        """A path as the file system spells it, of one as listings show it."""
        for depth in range(len(path)):
            with self.folder(path[:depth]) as folder:
                path = (*path[:depth], spelled(folder, path[depth]), *path[depth + 1 :])
        return path

    def prune(self, path: Path, floor: int) -> None:
        """Remove the folder and its parents as far as they are empty, down to `floor`
        components."""
        for depth in range(len(path), floor, -1):
            try:
                with self.folder(path[: depth - 1]) as parent:
                    remove_folder(parent, path[depth - 1])
                    os.fsync(parent)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                    return
                raise

    def link_new(self, source: int, name: bytes, path: Path) -> bool:
        """Publish `name` of the folder `source` under `path`, durably; False if something is there.
        FileNotFoundError if the source is gone."""
        for _ in range(ATTEMPTS):
            try:
                with self.folder(path[:-1], create=True) as folder:
                    link(source, name, folder, path[-1])
                    os.fsync(folder)
                    return True
            except FileExistsError:
                return False
            except FileNotFoundError:  # a folder on the way was pruned, or the source went
                os.stat(name, dir_fd=source, follow_symlinks=False)
            except NotADirectoryError as error:
                key = shown(b"/".join(path))
                reason = "a part of the key before its last `/` is an object"
                raise StoreError(store=self.store, key=key, reason=reason) from error
        reason = "its folder was removed again and again while it was published"
        raise StoreError(store=self.store, key=shown(b"/".join(path)), reason=reason)

    @contextmanager
    def translated(self, key: str, action: str) -> Iterator[None]:
        """Turn what the operating system says into what a store says."""
        try:
            yield
        except PermissionError as error:
            reason = f"{error.strerror} for uid {os.geteuid()} below {self.root}"
            raise AccessRefused(store=self.store, key=key, action=action, reason=reason) from error
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            reason = f"{action}: {error.strerror or error}"
            raise StoreError(store=self.store, key=key, reason=reason) from error


def with_write_bit(folder: int, change: Callable[[], T]) -> T:
    """Change a folder's entries although it may have been made read-only, as committed copies
    are."""
    for _ in range(CHMOD_ATTEMPTS):
        with suppress(PermissionError):
            return change()
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        if mode & 0o200:
            continue  # not ours, or somebody else is doing the same and just gave it the bit
        os.fchmod(folder, mode | 0o200)
        try:
            with suppress(PermissionError):
                return change()
        finally:
            os.fchmod(folder, mode)
    return change()


def link(source: int, name: bytes, folder: int, new_name: bytes) -> None:
    """Hard-link a file into a folder, never replacing (FileExistsError)."""
    with_write_bit(
        folder,
        lambda: os.link(
            name, new_name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False
        ),
    )


def remove(folder: int, name: bytes) -> None:
    """Unlink a file of a folder, also of a read-only one."""
    with_write_bit(folder, lambda: os.unlink(name, dir_fd=folder))


def remove_folder(parent: int, name: bytes) -> None:
    """Remove an empty folder, also from a read-only parent."""
    with_write_bit(parent, lambda: os.rmdir(name, dir_fd=parent))


def shown(name: bytes) -> str:
    """A file's name for people; bytes that are no UTF-8 appear as `\\xNN`."""
    return name.decode("utf-8", "backslashreplace")


def spelled(folder: int, name: bytes) -> bytes:
    """The entry of a folder that `shown` shows so. FileExistsError if several look alike."""
    entries = [os.fsencode(entry) for entry in os.listdir(folder)]
    alike = [entry for entry in entries if shown(entry).encode() == name]
    if len(alike) > 1:
        raise FileExistsError(errno.EEXIST, "several names look alike; remove them by hand")
    return alike[0] if alike else name


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write at an offset, whatever the kernel takes at a time."""
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def read_small(fd: int, limit_bytes: int) -> bytes:
    """At most `limit_bytes` from the start of a file."""
    chunks: list[bytes] = []
    offset = 0
    while offset < limit_bytes and (
        chunk := os.pread(fd, min(1 << 20, limit_bytes - offset), offset)
    ):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
