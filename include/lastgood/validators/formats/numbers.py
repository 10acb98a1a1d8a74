"""Element types, and reading values in small pieces to look for NaN and infinity.

A float is not finite when all bits of its exponent are set. So a block is clean when the largest
of its bit patterns, the sign left out, is below that of infinity: one pass over memory in cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lastgood.validators.formats.base import (
    Broken,
    Checkpoint,
    Problem,
    Severity,
    shown_numbers,
)

_BLOCK_BYTES = 256 << 10
_RECORD_BYTES = 64 << 20  # a larger record is no record but a way to take memory


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type. `infinity` is the least pattern of a float that is not finite, `value` the
    bits that count; None for types that are always finite. `part_bits` is the size of what is
    looked at, where an element is two floats. `nan` is the only pattern that is not finite, where
    there is one. `extended`: C's long double, whose layout is the platform's."""

    name: str
    bits: int
    value: int | None = None
    infinity: int | None = None
    part_bits: int | None = None
    nan: int | None = None
    extended: bool = False

    @property
    def is_always_finite(self) -> bool:
        return self.infinity is None and self.nan is None and not self.extended

    @property
    def unsigned(self) -> str:
        return f"u{(self.part_bits or self.bits) // 8}"


def _float(name: str, bits: int, infinity: int, part_bits: int | None = None) -> Dtype:
    return Dtype(name, bits, (1 << ((part_bits or bits) - 1)) - 1, infinity, part_bits)


_F32_INFINITY, _F64_INFINITY = 0x7F80_0000, 0x7FF0_0000_0000_0000
DTYPES = {
    one.name: one
    for one in (
        _float("F64", 64, _F64_INFINITY),
        _float("F32", 32, _F32_INFINITY),
        _float("F16", 16, 0x7C00),
        _float("BF16", 16, 0x7F80),
        _float("F8_E5M2", 8, 0x7C),
        _float("F8_E4M3", 8, 0x7F),  # has no infinity
        Dtype("F8_E8M0", 8, 0xFF, 0xFF),  # a scale without a sign
        Dtype("F8_E4M3FNUZ", 8, nan=0x80),  # the pattern of minus zero
        Dtype("F8_E5M2FNUZ", 8, nan=0x80),
        _float("C32", 32, 0x7C00, 16),
        _float("C64", 64, _F32_INFINITY, 32),
        _float("C128", 128, _F64_INFINITY, 64),
        *(Dtype(name, bits) for name, bits in (("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6))),
        *(Dtype(f"{sign}{bits}", bits) for sign in "IU" for bits in (8, 16, 32, 64)),
        Dtype("F4_X2", 8),  # two in a byte
        Dtype("F128", 128, extended=True),
        Dtype("C256", 256, part_bits=128, extended=True),
        Dtype("BOOL", 8),
    )
}
_MOST = 1 << 62  # no file has so many bytes, and no number beyond it has to be worked out


def element_count(path: str, tensor: str | None, shape: Sequence[int]) -> int:
    """How many elements a tensor of this shape has. Raises Broken for more than any file holds: a
    product of numbers without end would only cost time."""
    if 0 in shape:
        return 0
    count = 1
    for size in shape:
        count *= size
        if count > _MOST:
            raise Broken(
                path, tensor, f"shape {shown_numbers(shape)} is of more than 2^62 elements"
            )
    return count


def tensor_bytes(path: str, tensor: str, dtype: Dtype, shape: Sequence[int]) -> int | None:
    """The bytes of a tensor; None if its elements do not fill whole bytes. Raises Broken."""
    bits = element_count(path, tensor, shape) * dtype.bits
    return None if bits % 8 else bits // 8


@dataclass(frozen=True, slots=True)
class Leaf:
    """A number, or an array of them, in each of many records."""

    name: str
    dtype: Dtype
    offset: int
    size_bytes: int
    order: str = "<"


def _blocks(values: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(values), _BLOCK_BYTES):
        yield values[start : start + _BLOCK_BYTES]


def _extended_not_finite(block: NDArray[np.uint8], order: str) -> int:
    """C's long double in 16 bytes: x87's, of which ten count and six may hold anything, or IEEE's
    quadruple. A file does not tell which; x87's has a bit that says whether the number is normal.
    """
    elements = block[: len(block) - len(block) % 16].reshape(-1, 16)
    if order == ">":
        elements = np.ascontiguousarray(elements[:, ::-1])
    words = elements.view("<u2")
    every = np.uint16(0x7FFF)  # bits of an exponent, all set in what is not finite
    exponent, is_normal = words[:, 4] & every, words[:, 3] >> 15 == 1
    nought = ~words[:, :5].any(axis=1)  # of x87, or the low bits of a plain quadruple
    quadruple = words[:, 7] & every == every
    if (nought | (is_normal == (exponent != 0))).all():
        return int(np.count_nonzero(np.where(nought, quadruple, exponent == every)))
    return int(np.count_nonzero(quadruple))


class Values:
    """Reads values of one checkpoint; its buffers are used again and again."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        block = bytearray(_BLOCK_BYTES)
        self._bytes = memoryview(block)
        self._block = np.frombuffer(block, dtype=np.uint8)
        self._masked = np.empty(_BLOCK_BYTES, dtype=np.uint8)

    def check(
        self,
        path: str,
        tensor: str,
        dtype: Dtype,
        stream: BinaryIO,
        size_bytes: int,
        *,
        order: str = "<",
    ) -> Iterator[Problem]:
        """Read a tensor's bytes from where the stream stands, and yield a problem if some of its
        values are not finite and the policy minds. Raises Broken if the stream ends early."""
        count = 0
        minds = self.minds(dtype)
        left = size_bytes
        while left:
            size = min(left, _BLOCK_BYTES)
            fill(stream, self._bytes[:size], path, tensor)
            left -= size
            if minds:
                count += self._not_finite(dtype, self._block[:size], order)
        self._checkpoint.bytes_read += size_bytes
        yield from self.told(path, tensor, count)

    def minds(self, dtype: Dtype) -> bool:
        """Whether values of this type are looked at."""
        return self._checkpoint.non_finite != "ignore" and not dtype.is_always_finite

    def told(self, path: str, tensor: str, count: int) -> Iterator[Problem]:
        """The problem of a tensor with so many values that are not finite; none for none."""
        if count:
            severity: Severity = "fail" if self._checkpoint.non_finite == "fail" else "warn"
            yield Problem(path, tensor, f"{count} values are NaN or infinite", severity)

    def check_records(
        self,
        path: str,
        tensor: str,
        stream: BinaryIO,
        count: int,
        record_bytes: int,
        leaves: Sequence[Leaf],
    ) -> Iterator[Problem]:
        """`check` for records: so many, each of so many bytes. `leaves` are their numbers."""
        if record_bytes > _RECORD_BYTES:
            raise Broken(path, tensor, f"one record has {record_bytes} bytes")
        bad = dict.fromkeys((one.name for one in leaves), 0)
        at_once = max(1, _BLOCK_BYTES // max(1, record_bytes))
        records = np.empty((at_once, record_bytes), dtype=np.uint8)
        while count:
            part = records[: min(count, at_once)]
            fill(stream, part.data.cast("B"), path, tensor)
            count -= len(part)
            self._checkpoint.bytes_read += part.nbytes
            for one in leaves:
                if self.minds(one.dtype):
                    held = np.ascontiguousarray(part[:, one.offset : one.offset + one.size_bytes])
                    for block in _blocks(held.reshape(-1)):
                        bad[one.name] += self._not_finite(one.dtype, block, one.order)
        for name, number in bad.items():
            yield from self.told(path, f"{tensor}.{name}" if name else tensor, number)

    def _not_finite(self, dtype: Dtype, block: NDArray[np.uint8], order: str) -> int:
        if dtype.extended:
            return _extended_not_finite(block, order)
        if dtype.nan is not None:
            return int(np.count_nonzero(block == dtype.nan))
        kind = np.dtype(order + dtype.unsigned)
        size = len(block) - len(block) % kind.itemsize
        patterns: NDArray[Any] = block[:size].view(kind)
        masked: NDArray[Any] = self._masked[:size].view(kind.newbyteorder("="))
        np.bitwise_and(patterns, masked.dtype.type(dtype.value), out=masked)
        if not len(masked) or masked.max() < dtype.infinity:
            return 0
        return int(np.count_nonzero(masked >= masked.dtype.type(dtype.infinity)))


def fill(stream: BinaryIO, view: memoryview, path: str, tensor: str | None) -> None:
    """Read until the view is full. Raises Broken if the bytes end before."""
    read = 0
    while read < len(view):
        size = stream.readinto(view[read:])  # type: ignore[attr-defined]
        if not size:
            raise Broken(path, tensor, f"the file ends {len(view) - read} bytes too early")
        read += size
