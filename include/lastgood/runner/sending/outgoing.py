"""One file on its way out: its parts are begun in order, and hashed as they are read.

The SHA-256 of a file is computed in order. A file that one worker sends is hashed while it is sent,
and read once. The parts of one that several workers send are hashed one after another, each right
before it is sent: so it is read a second time, from the file system's cache, and no part is ever
held in memory.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from lastgood.runner.disk.files import SourceFile, new_buffer
from lastgood.runner.sending.ticket import ObjectRecord, Slot
from lastgood.runner.working.stopping import Stop

SEND_BUFFER_BYTES = 256 << 10  # stays in a core's cache between kernel, hash and kernel


class PartReader:
    """Reads one part, as often as it takes, and hashes it as it goes; with `whole`, the hash of
    everything before it, that of everything up to its end, too."""

    def __init__(
        self, file: SourceFile, fd: int, slot: Slot, number: int, stop: Stop, whole: Any = None
    ) -> None:
        self.slot = slot
        self.number = number
        self.is_read = False  # to its end, since it was last begun
        self.whole = self._before = whole
        self._part = hashlib.sha256()
        self._file = file
        self._fd = fd
        self._stop = stop
        self._buffer = new_buffer(SEND_BUFFER_BYTES)

    @property
    def size_bytes(self) -> int:
        return self.slot.part_size(self.number)

    @property
    def sha256(self) -> str:
        """Of the part, as it was last read."""
        return self._part.hexdigest()

    def chunks(self) -> Iterator[memoryview]:
        """The part from its beginning."""
        self.is_read = False
        self._part = hashlib.sha256()
        hashes = [self._part]
        if self._before is not None and self.slot.parts == 1:
            self.whole = self._part  # the same bytes: no need to hash them twice
        elif self._before is not None:
            self.whole = self._before.copy()
            hashes.append(self.whole)
        for chunk in self._read():
            for one in hashes:
                one.update(chunk)
            yield chunk
        self.is_read = True

    def again(self) -> Iterator[memoryview]:
        """The part from its beginning, when its digest is known."""
        return self._read()

    def hashed(self) -> str:
        """Read the part without sending it; its digest."""
        for _ in self.chunks():
            pass
        return self.sha256

    def known_sha256(self) -> str:
        """Its digest; it is read for that unless it has been."""
        return self.sha256 if self.is_read else self.hashed()

    def follow(self) -> None:
        """Compute `whole` alone."""
        self.whole = self._before.copy()
        for chunk in self._read():
            self.whole.update(chunk)

    def leave_whole(self) -> None:
        """From now on, hash the part alone."""
        self.whole = self._before = None

    def _read(self) -> Iterator[memoryview]:
        start = (self.number - 1) * (self.slot.part_bytes or 0)
        return self._file.chunks(self._fd, start, self.size_bytes, self._buffer, self._stop)


class Outgoing:
    """One file and what is known of its parts. `shared`: more than one thread sends them."""

    def __init__(
        self, file: SourceFile, slot: Slot, rank: int | None, stop: Stop, *, shared: bool
    ) -> None:
        self.slot = slot
        self.is_shared = shared
        self._file = file
        self._rank = rank
        self._stop = stop
        self._turn = threading.Lock()  # of what goes in order: the parts begun, and the hash
        self._begun = 0
        self._whole = hashlib.sha256()
        self._lock = threading.Lock()  # of the rest
        self._fd: int | None = None
        self._digests: dict[int, str] = {}

    def begin_part(self, needs_digest: Callable[[str, int], bool]) -> PartReader:
        """The next part. Of a shared file it is hashed here, when its turn comes; the part's own
        digest only where it has to be known before the part is sent."""
        with self._turn:
            self._stop.check()
            self._begun += 1
            if self._fd is None:
                self._fd = self._file.open()
            part = PartReader(self._file, self._fd, self.slot, self._begun, self._stop, self._whole)
            if self.is_shared:
                if needs_digest(self.slot.path, part.number):
                    part.hashed()
                else:
                    part.follow()
                self._whole = part.whole
                part.leave_whole()
            return part

    def end_part(self, part: PartReader) -> None:
        """The part has arrived. With the last one, raises FileChanged if the file did."""
        with self._lock:
            self._digests[part.number] = part.sha256
            if not self.is_shared:
                self._whole = part.whole
            if len(self._digests) == self.slot.parts and self._fd is not None:
                self._file.check(self._fd)
                self._close()

    def record(self) -> ObjectRecord:
        """The object as the manifest will name it, once every part has arrived."""
        path, size_bytes, sha256 = self.slot.path, self.slot.size_bytes, self._whole.hexdigest()
        if self.slot.part_bytes is None:
            return ObjectRecord(path, size_bytes, sha256, self._rank)
        digests = tuple(self._digests[number] for number in range(1, self.slot.parts + 1))
        return ObjectRecord(path, size_bytes, sha256, self._rank, self.slot.part_bytes, digests)

    def close(self) -> None:
        """Close the file, if it is open."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
