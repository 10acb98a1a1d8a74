"""Element types, and reading values in small pieces to look for NaN and infinity.

A float is not finite when all bits of its exponent are set. So a block is clean when the largest
of its bit patterns, the sign left out, is below that of infinity: one pass over memory in cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lastgood.validators.formats.base import Broken, Checkpoint, Problem, Severity

_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type. `infinity` is the least pattern of a float that is not finite, `value` the
    bits that count; None for types that are always finite. `part_bits` is the size of what is
    looked at, where an element is two floats."""

    name: str
    bits: int
    value: int | None = None
    infinity: int | None = None
    part_bits: int | None = None

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
        Dtype("F8_E4M3FNUZ", 8),  # its only NaN is the pattern of minus zero
        Dtype("F8_E5M2FNUZ", 8),
        _float("C64", 64, _F32_INFINITY, 32),
        _float("C128", 128, _F64_INFINITY, 64),
        *(Dtype(name, bits) for name, bits in (("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6))),
        *(Dtype(f"{sign}{bits}", bits) for sign in "IU" for bits in (8, 16, 32, 64)),
        Dtype("BOOL", 8),
    )
}


def tensor_bytes(dtype: Dtype, shape: Sequence[int]) -> int | None:
    """The bytes of a tensor; None if its elements do not fill whole bytes."""
    bits = math.prod(shape) * dtype.bits
    return None if bits % 8 else bits // 8


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
        minds = self._checkpoint.non_finite != "ignore" and dtype.infinity is not None
        left = size_bytes
        while left:
            size = min(left, _BLOCK_BYTES)
            fill(stream, self._bytes[:size], path, tensor)
            left -= size
            if minds:
                count += self._not_finite(dtype, size, order)
        self._checkpoint.bytes_read += size_bytes
        if count:
            severity: Severity = "fail" if self._checkpoint.non_finite == "fail" else "warn"
            yield Problem(path, tensor, f"{count} values are NaN or infinite", severity)

    def _not_finite(self, dtype: Dtype, size: int, order: str) -> int:
        kind = np.dtype(order + dtype.unsigned)
        size -= size % kind.itemsize
        patterns: NDArray[Any] = self._block[:size].view(kind)
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
