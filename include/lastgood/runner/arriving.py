"""A file that fills with an object's bytes, from several connections at once, and the hash that
follows in order.

What comes in order is hashed from memory. What came ahead of it is read again, from the file
system's cache, as soon as the hash gets there: so memory is a buffer for each connection, whatever
the size of the object.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.durable import NEW_OR_OLD, begin_writing, write_all
from lastgood.runner.files import new_buffer
from lastgood.runner.leftover import Leftover, leftover, nothing_left, read_chunks
from lastgood.runner.progress import Progress
from lastgood.runner.spans import Span

BUFFER_BYTES = 512 << 10  # stays in a core's cache between kernel, hash and kernel
_STRETCH_BYTES = 8 << 20  # what the disk is given at once
Take = Callable[[memoryview], None]


class Arriving:
    """One object on its way into the file `target`. It begins with what an earlier try left there;
    each of the missing spans, of at most `most` bytes, is received by one thread. `durable`: it is
    to outlive a power cut."""

    def __init__(
        self,
        target: Path,
        item: ManifestObject,
        most: int,
        progress: Progress,
        *,
        durable: bool = True,
    ) -> None:
        self.item = item
        self._durable = durable
        self.replacement_url: str | None = None  # in the place of one that the store refused
        self._target = target
        self._most = most
        self._progress = progress
        self._fd: int | None = None
        self._lock = threading.Lock()  # of the descriptor, and of which spans are over
        self._hashing = threading.Lock()  # of the hash, and of how far it is
        self._begin_with(leftover(self._opened(), item, most))

    def _begin_with(self, found: Leftover) -> None:
        self.is_proven = found.is_proven
        self._spans = {span.start: span for span in found.spans}
        self._over = {span.start for span in found.spans if span.is_whole}
        self._digest, self._hashed_bytes = found.digest, found.hashed_bytes
        self._excess_bytes = 0
        self._progress.add(self._arrived_bytes)

    @property
    def missing(self) -> list[Span]:
        """The spans that are still to be received, in order."""
        return [span for span in self._spans.values() if not span.is_whole]

    @contextmanager
    def receiving(self, span: Span) -> Iterator[Take]:
        """For the block, a function that takes the span's bytes as they come. Those beyond the span
        are counted, but not written."""
        fd = self._opened()
        leads = self._takes_the_lead(span)

        def take(chunk: memoryview) -> None:
            fitting = chunk[: span.end - span.at]
            self._write(fd, span, fitting)
            if leads:
                self._digest.update(fitting)
                self._hashed_bytes += len(fitting)
            self._progress.add(len(fitting))
            if len(fitting) < len(chunk):
                self._excess_bytes += len(chunk) - len(fitting)

        try:
            yield take
        finally:
            if leads:
                self._hashing.release()

    def _write(self, fd: int, span: Span, chunk: memoryview) -> None:
        write_all(fd, chunk, span.at)
        before = span.at // _STRETCH_BYTES
        span.at += len(chunk)
        if self._durable and span.at // _STRETCH_BYTES > before:
            begin_writing(fd, before * _STRETCH_BYTES, _STRETCH_BYTES)

    def _takes_the_lead(self, span: Span) -> bool:
        """Whether the span is the next to be hashed; then nobody else hashes."""
        if not self._hashing.acquire(blocking=False):
            return False
        if self._hashed_bytes == span.at:
            return True
        self._hashing.release()
        return False

    def end(self, span: Span) -> bool:
        """Nothing more of the span will come. Whether it was the last one that was missing."""
        with self._lock:
            self._over.add(span.start)
            is_last = len(self._over) == len(self._spans)
        # Whoever hashes looks again after letting go, so that nothing is left that came meanwhile.
        while self._next() and self._hashing.acquire(blocking=False):
            try:
                self._hash_on()
            finally:
                self._hashing.release()
        return is_last

    def is_right(self) -> bool:
        """Whether this is the object that the manifest names. For when no span is missing."""
        with self._hashing:
            self._hash_on()
        return (
            self._came_bytes == self.item.size_bytes
            and self._digest.hexdigest() == self.item.sha256
        )

    @property
    def found(self) -> str:
        """What came, in words."""
        if self._came_bytes != self.item.size_bytes:
            return f"{self._came_bytes} bytes"
        return f"{self._came_bytes} bytes with SHA-256 {self._digest.hexdigest()}"

    def _next(self) -> Span | None:
        """The span that the hash comes to next, if all of it is there."""
        span = self._spans.get(self._hashed_bytes)
        return span if span is not None and span.is_whole and span.start in self._over else None

    def _hash_on(self) -> None:
        buffer = new_buffer(BUFFER_BYTES)
        while span := self._next():
            for chunk in read_chunks(self._opened(), span.start, span.end, buffer):
                self._digest.update(chunk)
            self._hashed_bytes = span.end

    def restart(self) -> None:
        """Throw away what has arrived."""
        os.ftruncate(self._opened(), 0)
        self._progress.add(-self._arrived_bytes)
        self._begin_with(nothing_left(self.item, self._most))

    def keep(self) -> None:
        """Close the file; once it is on the disk, unless that is left to the file system."""
        self._close(durably=self._durable)

    def close(self) -> None:
        """Close the file, if it is open."""
        self._close(durably=False)

    def _close(self, *, durably: bool) -> None:
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            try:
                if durably:
                    os.fsync(fd)
            finally:
                os.close(fd)

    @property
    def _came_bytes(self) -> int:
        return self._arrived_bytes + self._excess_bytes

    @property
    def _arrived_bytes(self) -> int:
        return sum(span.arrived_bytes for span in self._spans.values())

    def _opened(self) -> int:
        with self._lock:
            if self._fd is None:
                self._fd = os.open(self._target, NEW_OR_OLD, 0o666)
            return self._fd
