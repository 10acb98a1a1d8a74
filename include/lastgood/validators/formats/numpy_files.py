"""NumPy's `.npy` and `.npz`, never with a pickle in them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

from lastgood.validators.formats.base import Broken, Checkpoint, Problem, Tensor, shown_numbers
from lastgood.validators.formats.numbers import (
    DTYPES,
    Dtype,
    Leaf,
    Values,
    element_count,
)
from lastgood.validators.formats.zips import Entry, directory

_DEFLATE_RATIO = 1032  # the most that deflate can reach
_SMALL_BYTES = 1 << 16
_HEADER_LIMIT_CHARACTERS = 100_000
_HEADERS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # its text is UTF-8: only names of fields are read otherwise
}
_KINDS = {"f": "F", "c": "C", "i": "I", "u": "U"}


class NumpyFiles:
    """Each `.npy` and `.npz` file."""

    name = "numpy"
    version = "3"
    reads_last = False

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        return [[path] for path in checkpoint.sizes if path.endswith((".npy", ".npz"))]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        (path,) = paths
        with checkpoint.open(path) as file:
            size_bytes = file.seek(0, 2)
            file.seek(0)
            if path.endswith(".npy"):
                yield from _check_array(checkpoint, path, path, file, size_bytes)
            else:
                yield from _check_archive(checkpoint, path, file, size_bytes)


def _check_archive(
    checkpoint: Checkpoint, path: str, file: BinaryIO, size_bytes: int
) -> Iterator[Problem]:
    entries = directory(path, file, size_bytes)
    with zipfile.ZipFile(file) as archive:
        for entry in entries:
            name = entry.name.removesuffix(".npy")
            _require_possible(path, name, entry)
            try:
                with archive.open(entry.name) as member:
                    stream = cast(BinaryIO, member)
                    yield from _check_array(checkpoint, path, name, stream, entry.size_bytes)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise Broken(path, name, f"it does not unpack: {error}") from None


def _require_possible(path: str, name: str, entry: Entry) -> None:
    if entry.method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Broken(path, name, f"it is packed by method {entry.method}, which NumPy does not use")
    if entry.size_bytes > entry.packed_bytes * _DEFLATE_RATIO + _SMALL_BYTES:
        raise Broken(
            path,
            name,
            f"{entry.packed_bytes} bytes cannot unpack to {entry.size_bytes}: a zip bomb",
        )


def _check_array(
    checkpoint: Checkpoint, path: str, name: str, stream: BinaryIO, size_bytes: int
) -> Iterator[Problem]:
    kind, shape, header_bytes = _header(path, name, stream)
    if kind.hasobject:
        raise Broken(path, name, "it is an array of objects, a pickle that could run code")
    count = element_count(path, name, shape)
    array_bytes, held_bytes = count * kind.itemsize, size_bytes - header_bytes
    if array_bytes != held_bytes:
        said = f"shape {shown_numbers(shape)} of {str(kind)[:100]}"
        raise Broken(path, name, f"{said} is {array_bytes} bytes, there are {held_bytes}")
    dtype = _dtype(kind)
    checkpoint.found(path, name, Tensor(dtype.name, shape))
    values = Values(checkpoint)
    if kind.names is not None or kind.subdtype is not None:
        leaves = list(_leaves(kind, "", 0))
        yield from values.check_records(path, name, stream, count, kind.itemsize, leaves)
    else:
        order = _order(kind)
        yield from values.check(path, name, dtype, stream, array_bytes, order=order)


def _leaves(kind: np.dtype[Any], name: str, offset: int) -> Iterator[Leaf]:
    """The numbers of a record, through records in it."""
    if kind.names is not None:
        for field in kind.names:
            inner, place = kind.fields[field][:2]  # type: ignore[index]
            yield from _leaves(inner, f"{name}.{field}" if name else field, offset + place)
    elif kind.base.names is not None:
        for number in range(kind.itemsize // max(1, kind.base.itemsize)):
            yield from _leaves(kind.base, name, offset + number * kind.base.itemsize)
    else:
        yield Leaf(name, _dtype(kind.base), offset, kind.itemsize, _order(kind.base))


def _order(kind: np.dtype[Any]) -> str:
    return ">" if kind.byteorder == ">" else "<"


def _header(path: str, name: str, stream: BinaryIO) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    counted = _Counted(stream)
    try:
        version = npy.read_magic(counted)
        read = _HEADERS.get(version)
        if read is None:
            raise ValueError(f"version {version}")
        shape, _, kind = read(counted, max_header_size=_HEADER_LIMIT_CHARACTERS)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the header is a Python literal, with as many ways to be wrong
        raise Broken(path, name, f"its header is not NumPy's: {error!s:.200}") from None
    if any(type(size) is not int or size < 0 for size in shape):
        raise Broken(path, name, f"its shape is {shape!s:.100}")
    return kind, tuple(shape), counted.read_bytes


class _Counted:
    """Counts what a header takes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.read_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(size)
        self.read_bytes += len(content)
        return content


def _dtype(kind: np.dtype[Any]) -> Dtype:
    if kind.kind == "b":
        return DTYPES["BOOL"]
    if kind.names is not None:
        return Dtype("RECORD", kind.itemsize * 8)
    known = DTYPES.get(f"{_KINDS.get(kind.kind, '?')}{kind.itemsize * 8}")
    return known or Dtype(str(kind)[:40], kind.itemsize * 8)
