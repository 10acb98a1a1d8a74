"""A stream over a range of a file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class RangedReader(io.RawIOBase):
    """Reads `size_bytes` from `start` of a descriptor that somebody else closes (None: to the end).
    Unbuffered: `readinto` fills the caller's buffer straight from the kernel."""

    def __init__(self, fd: int, start: int = 0, size_bytes: int | None = None) -> None:
        self._fd = fd
        self._offset = start
        self._end = None if size_bytes is None else start + size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._end is not None:
            view = view[: max(0, self._end - self._offset)]
        count = os.preadv(self._fd, [view], self._offset) if len(view) else 0
        self._offset += count
        return count
