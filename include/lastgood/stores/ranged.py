"""A stream over a range of a file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from lastgood.stores.base import Key
from lastgood.stores.tree import Tree

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class RangedReader(io.RawIOBase):
    """Reads `size_bytes` from `start` of a descriptor that somebody else closes (None: to the end).
    Unbuffered: `readinto` fills the caller's buffer straight from the kernel."""

    def __init__(self, tree: Tree, key: Key, fd: int, start: int, size_bytes: int | None) -> None:
        self._tree = tree
        self._key = key
        self._fd = fd
        self._offset = start
        self._end = None if size_bytes is None else start + size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._end is not None:
            view = view[: max(0, self._end - self._offset)]
        try:  # not `translated`: every instruction here is one that another thread waits for
            count = os.preadv(self._fd, (view,), self._offset) if len(view) else 0
        except OSError as error:
            with self._tree.translated(self._key, "read"):
                raise error from None
        self._offset += count
        return count
