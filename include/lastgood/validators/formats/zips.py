"""Zip files, read by their directory first: what it claims is held against what there is."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from lastgood.validators.formats.base import Broken, shown
from lastgood.validators.formats.numbers import fill

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENTRIES_LIMIT = 1_000_000
_SIZES_FOLLOW, _IS_UTF8 = 1 << 3, 1 << 11
_ZIP64, _IN_EXTRA = 1, 0xFFFF_FFFF


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

    def read(self, size: int = -1) -> bytes:
        """No more than there is, whatever is asked for: the memory would be taken first."""
        left = max(0, self._size_bytes - self._position)
        return super().read(left if size < 0 else min(size, left)) or b""

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
            listed_at = archive.start_dir
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError) as e:
        raise Broken(path, None, f"it is not a whole zip file: {e}") from None
    if len(infos) > _ENTRIES_LIMIT:
        raise Broken(path, None, f"{len(infos)} entries in a zip; {_ENTRIES_LIMIT} is the limit")
    entries = sorted((_entry(path, file, info) for info in infos), key=lambda e: (e.start, e.name))
    _require_apart(path, entries, min(size_bytes, listed_at))
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
    names = bytearray(fields[9] + fields[10])
    fill(file, memoryview(names), path, info.filename)
    _require_the_same(path, info, fields, bytes(names[: fields[9]]), bytes(names[fields[9] :]))
    start = info.header_offset + _LOCAL_HEADER.size + len(names)
    return Entry(info.filename, start, info.compress_size, info.file_size, info.compress_type)


def _require_the_same(
    path: str, info: zipfile.ZipInfo, fields: tuple[Any, ...], name: bytes, extra: bytes
) -> None:
    """What an entry says of itself is what the directory says of it: a reader may believe either.
    Sizes that follow the data (flag 3) are nought here."""
    _, _, flags, method, _, _, _, packed, size, *_ = fields
    listed = info.orig_filename.encode("utf-8" if info.flag_bits & _IS_UTF8 else "cp437")
    if name != listed:
        told = name.decode(errors="replace")
        raise Broken(path, info.filename, f"the entry itself has the name {shown(told, 100)}")
    if method != info.compress_type:
        raise Broken(path, info.filename, f"the entry itself is packed by method {method}")
    wide = _wide_sizes(extra)
    if size == _IN_EXTRA:
        size, wide = (wide[0], wide[1:]) if wide else (size, wide)
    if packed == _IN_EXTRA:
        packed = wide[0] if wide else packed
    if not flags & _SIZES_FOLLOW and (packed, size) != (info.compress_size, info.file_size):
        said = f"the entry itself has {packed} bytes that unpack to {size}"
        directory = f"the directory says {info.compress_size} and {info.file_size}"
        raise Broken(path, info.filename, f"{said}, {directory}")


def _wide_sizes(extra: bytes) -> tuple[int, ...]:
    """The sizes of zip64 in an entry's extra field: unpacked first."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == _ZIP64:
            held = extra[4 : 4 + length]
            return struct.unpack_from(f"<{len(held) // 8}Q", held)
        extra = extra[4 + length :]
    return ()


def _require_apart(path: str, entries: Sequence[Entry], size_bytes: int) -> None:
    reached = 0
    for entry in entries:
        if entry.start < reached:
            raise Broken(path, entry.name, "it shares bytes with another entry of the zip")
        reached = entry.start + entry.packed_bytes
        if reached > size_bytes:
            raise Broken(path, entry.name, "it ends beyond where the zip's directory begins")
        if entry.stored and entry.packed_bytes != entry.size_bytes:
            raise Broken(path, entry.name, "it is stored as it is, but has two sizes")
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Broken(path, twice, "the zip has this name twice")
