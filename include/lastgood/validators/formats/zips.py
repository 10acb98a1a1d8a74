"""Zip files, read by their directory first: what it claims is held against what there is."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from lastgood.validators.formats.base import Broken
from lastgood.validators.formats.numbers import fill

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENTRIES_LIMIT = 1_000_000


class Window(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: BinaryIO, start: int, size_bytes: int) -> None:
        self._file, self._start, self._size_bytes = file, start, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._size_bytes)[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = max(0, min(len(buffer), self._size_bytes - self._position))
        self._file.seek(self._start + self._position)
        read: int = self._file.readinto(memoryview(buffer)[:size])  # type: ignore[attr-defined]
        self._position += read
        return read


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a zip: where its bytes begin, how many they are there and how many unpacked."""

    name: str
    start: int
    packed_bytes: int
    size_bytes: int
    method: int

    @property
    def stored(self) -> bool:
        return self.method == zipfile.ZIP_STORED


def window(file: BinaryIO, start: int, size_bytes: int) -> BinaryIO:
    """A part of an open file; each read seeks, so that windows of one file may be read in turn."""
    return cast(BinaryIO, Window(file, start, size_bytes))


def directory(path: str, file: BinaryIO, size_bytes: int) -> list[Entry]:
    """The entries of a zip, by their place. Raises Broken for what is no zip, for names given
    twice and for entries that share bytes: a zip bomb unpacks the same bytes many times."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError) as e:
        raise Broken(path, None, f"it is not a whole zip file: {e}") from None
    if len(infos) > _ENTRIES_LIMIT:
        raise Broken(path, None, f"{len(infos)} entries in a zip; {_ENTRIES_LIMIT} is the limit")
    entries = sorted((_entry(path, file, info) for info in infos), key=lambda e: (e.start, e.name))
    _require_apart(path, entries, size_bytes)
    return entries


def _entry(path: str, file: BinaryIO, info: zipfile.ZipInfo) -> Entry:
    if info.flag_bits & 1:
        raise Broken(path, info.filename, "it is encrypted")
    header = bytearray(_LOCAL_HEADER.size)
    file.seek(info.header_offset)
    fill(file, memoryview(header), path, info.filename)
    fields = _LOCAL_HEADER.unpack(header)
    if fields[0] != b"PK\x03\x04":
        raise Broken(path, info.filename, "the zip's directory points to no entry")
    start = info.header_offset + _LOCAL_HEADER.size + fields[9] + fields[10]
    return Entry(info.filename, start, info.compress_size, info.file_size, info.compress_type)


def _require_apart(path: str, entries: Sequence[Entry], size_bytes: int) -> None:
    reached = 0
    for entry in entries:
        if entry.start < reached:
            raise Broken(path, entry.name, "it shares bytes with another entry of the zip")
        reached = entry.start + entry.packed_bytes
        if reached > size_bytes:
            raise Broken(path, entry.name, "it ends beyond the end of the file")
        if entry.stored and entry.packed_bytes != entry.size_bytes:
            raise Broken(path, entry.name, "it is stored as it is, but has two sizes")
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Broken(path, twice, "the zip has this name twice")
