"""A file that fills with an object's bytes, from several connections at once, each byte of it
hashed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.disk.durable import NEW_OR_OLD, begin_writing, write_all
from lastgood.runner.disk.files import new_buffer
from lastgood.runner.receiving.leftover import leftover, parts_left, read_chunks
from lastgood.runner.receiving.proof import ByPart, InOrder, Proof
from lastgood.runner.wire.spans import Span
from lastgood.runner.working.progress import Progress

BUFFER_BYTES = 512 << 10  # stays in a core's cache between kernel, hash and kernel
_STRETCH_BYTES = 8 << 20  # what the disk is given at once
Take = Callable[[memoryview], None]


class Arriving:
    """One object on its way into the file `target`. It begins with what an earlier try left there;
    each of the missing spans is received by one thread: they are the object's parts, or of at most
    `most` bytes. `durable`: it is to outlive a power cut."""

    def __init__(
        self,
        target: Path,
        item: ManifestObject,
        most: int | None,
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
        self._lock = threading.Lock()  # of the descriptor
        self._excess_bytes = 0
        self._is_proven = True  # what was there is right, whatever comes
        try:
            self._proof = self._begun()
            self._progress.add(self._proof.spans.arrived_bytes)
        except BaseException:
            self.close()
            raise

    def _begun(self) -> Proof:
        if self._most is None:
            return ByPart(self.item, parts_left(self._opened(), self.item))
        found = leftover(self._opened(), self.item, self._most)
        self._is_proven = found.is_proven
        return InOrder(self.item, found, self._read)

    @property
    def missing(self) -> list[Span]:
        """The spans that are still to be received, in order."""
        return self._proof.spans.missing

    @contextmanager
    def receiving(self, span: Span) -> Iterator[Take]:
        """For the block, a function that takes the span's bytes as they come. Those beyond the span
        are counted, but not written."""
        fd = self._opened()
        with self._proof.following(span) as update:

            def take(chunk: memoryview) -> None:
                fitting = chunk[: span.end - span.at]
                self._write(fd, span, fitting)
                update(fitting)
                self._progress.add(len(fitting))
                if len(fitting) < len(chunk):
                    self._excess_bytes += len(chunk) - len(fitting)

            yield take

    def _write(self, fd: int, span: Span, chunk: memoryview) -> None:
        write_all(fd, chunk, span.at)
        before = span.at // _STRETCH_BYTES
        span.at += len(chunk)
        if self._durable and span.at // _STRETCH_BYTES > before:
            begin_writing(fd, before * _STRETCH_BYTES, _STRETCH_BYTES)

    def end(self, span: Span) -> bool:
        """Nothing more of the span will come. Whether it is decided what the object is."""
        return self._proof.end(span)

    def is_right(self) -> bool:
        """Whether this is the object that the manifest names. For when that is decided."""
        return not self._excess_bytes and self._proof.is_right()

    @property
    def found(self) -> str:
        """What came, in words."""
        if self._excess_bytes:
            return f"{self.item.size_bytes + self._excess_bytes} bytes"
        return self._proof.found

    @property
    def may_be_righted(self) -> bool:
        """Whether what was left by an earlier try may be at fault, and not what came."""
        return not self._is_proven

    def restart(self) -> None:
        """Begin again with nothing."""
        os.ftruncate(self._opened(), 0)
        self._progress.add(-self._proof.spans.arrived_bytes)
        self._excess_bytes = 0
        self._proof = self._begun()

    def give_up(self) -> None:
        """Leave only what a later try can tell from what is wrong: parts that have digests."""
        if self.item.part_sha256 is None:
            self.restart()

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

    def _read(self, start: int, end: int) -> Iterator[memoryview]:
        return read_chunks(self._opened(), start, end, new_buffer(BUFFER_BYTES))

    def _opened(self) -> int:
        with self._lock:
            if self._fd is None:
                self._fd = os.open(self._target, NEW_OR_OLD, 0o666)
            return self._fd
