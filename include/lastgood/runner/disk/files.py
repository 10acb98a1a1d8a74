"""The files of a checkpoint on this machine: named, measured, and read exactly as they were
found."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lastgood.rules.paths import check_object_paths
from lastgood.runner.problems import FileChanged, UnusableFiles
from lastgood.runner.working.stopping import Stop

Source = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
BUFFER_BYTES = 1 << 20
SNAPSHOT_FOLDERS = (
    ".lastgood-snapshot-"  # what folders of ours begin with; never part of a checkpoint
)


@dataclass(frozen=True, slots=True)
class Version:
    """What changes when a file is written to or replaced."""

    size_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Version:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    def difference(self, later: Version) -> str | None:
        """What is not the same any more, in words."""
        if self.inode != later.inode:
            return "another file took its place"
        if self.size_bytes != later.size_bytes:
            return f"it has {later.size_bytes} bytes instead of {self.size_bytes}"
        if self.modified_ns != later.modified_ns:
            return "it was written to"
        return None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One object's file as it was when the save began."""

    path: str  # in the checkpoint
    file: Path
    version: Version

    @property
    def size_bytes(self) -> int:
        return self.version.size_bytes

    @contextmanager
    def reading(self) -> Iterator[int]:
        """A descriptor of the file. Raises FileChanged if it is not, or at the end of the block is
        no longer, the file that was measured."""
        fd = self.open()
        try:
            yield fd
            self.check(fd)
        finally:
            os.close(fd)

    def open(self) -> int:
        """A descriptor of the file, to be closed by the caller. Raises FileChanged if it is not the
        file that was measured."""
        fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.check(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def check(self, fd: int) -> None:
        """Raise FileChanged if the descriptor's file is no longer as it was measured."""
        difference = self.version.difference(Version.of(os.fstat(fd)))
        if difference is not None:
            raise self._changed(difference)

    def chunks(
        self, fd: int, start: int, size_bytes: int, buffer: memoryview, stop: Stop
    ) -> Iterator[memoryview]:
        """The bytes from `start`, each chunk in the same buffer. Raises FileChanged where they end
        early, and the reason of `stop`."""
        done = 0
        while done < size_bytes:
            stop.check()
            read = os.preadv(fd, [buffer[: size_bytes - done]], start + done)
            if not read:
                raise self._changed(f"it ends at byte {start + done}")
            yield buffer[:read]
            done += read

    def _changed(self, what: str) -> FileChanged:
        return FileChanged(path=self.path, file=self.file, what=what)


def measured(source: Source) -> list[SourceFile]:
    """The files of a folder (all below it, by their relative paths) or of a mapping from object
    path to file, largest first.

    Raises UnusableFiles for anything but regular files (links to them are followed) and for none at
    all, and InvalidPath for paths that a checkpoint cannot have.
    """
    named = _named(source)
    if not named:
        raise UnusableFiles(where=source, reason="there is no file to save")
    check_object_paths(named, lambda index: f"files[{index}]")
    found = [_measure(path, file) for path, file in named.items()]
    return sorted(found, key=lambda file: (-file.size_bytes, file.path))


def new_buffer(size_bytes: int = BUFFER_BYTES) -> memoryview:
    """A buffer to be read into again and again."""
    return memoryview(bytearray(size_bytes))


def sizes_of(files: Iterable[SourceFile]) -> dict[str, int]:
    """Bytes by object path."""
    return {file.path: file.size_bytes for file in files}


def _named(source: Source) -> dict[str, Path]:
    if isinstance(source, Mapping):
        return {path: Path(file) for path, file in source.items()}
    folder = Path(source)
    if not folder.is_dir():
        raise UnusableFiles(where=folder, reason="not a folder")
    return {file.relative_to(folder).as_posix(): file for file in _below(folder)}


def _below(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(SNAPSHOT_FOLDERS):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            else:
                yield Path(entry.path)


def _measure(path: str, file: Path) -> SourceFile:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFiles(where=file, reason="not a regular file")
    return SourceFile(path, file, Version.of(status))
