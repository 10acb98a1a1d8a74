"""How what arrives is shown to be the object that the manifest names: by its parts, each for
itself, or as one, in order."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.receiving.leftover import Leftover
from lastgood.runner.wire.spans import Span, Spans

Update = Callable[[memoryview], None]
Read = Callable[[int, int], Iterator[memoryview]]  # the bytes that are there from, up to


class Proof(Protocol):
    """What is known of an object's bytes. Each span is received by one thread."""

    spans: Spans

    def following(self, span: Span) -> AbstractContextManager[Update]:
        """For the block of a thread that receives the span, what takes its bytes as they come."""

    def end(self, span: Span) -> bool:
        """The span is over. Whether it is decided what the object is: by the last one, or because
        no other can make it right."""

    def is_right(self) -> bool:
        """Whether this is the object. For when that is decided."""

    @property
    def found(self) -> str:
        """What came, in words."""


class ByPart:
    """Each span is a part whose digest the manifest has: it is hashed as it comes."""

    def __init__(self, item: ManifestObject, spans: list[Span]) -> None:
        self.spans = Spans(spans)
        self._size_bytes = item.size_bytes
        numbers = enumerate(zip(spans, item.part_sha256 or (), strict=True), 1)
        self._named = {span.start: (number, sha256) for number, (span, sha256) in numbers}
        self._digests = {span.start: hashlib.sha256() for span in self.spans.missing}
        self._wrong: str | None = None

    @contextmanager
    def following(self, span: Span) -> Iterator[Update]:
        yield self._digests[span.start].update

    def end(self, span: Span) -> bool:
        number, sha256 = self._named[span.start]
        came = self._digests.pop(span.start).hexdigest()
        if not span.is_whole:
            self._wrong = f"{span.at} bytes, which ends in part {number}"
        elif came != sha256:
            self._wrong = f"part {number} with SHA-256 {came} in place of {sha256}"
        return self.spans.end(span) or self._wrong is not None

    def is_right(self) -> bool:
        return self._wrong is None and self.spans.arrived_bytes == self._size_bytes

    @property
    def found(self) -> str:
        return self._wrong or f"{self.spans.arrived_bytes} bytes"


class InOrder:
    """One hash goes over all of the object. What comes in order is hashed from memory; what came
    ahead of it is read again, from the file system's cache, as soon as the hash gets there. So
    memory is a buffer for each connection, whatever the size of the object."""

    def __init__(self, item: ManifestObject, begun: Leftover, read: Read) -> None:
        self.spans = Spans(begun.spans)
        self._item = item
        self._read = read
        self._digest, self._hashed_bytes = begun.digest, begun.hashed_bytes
        self._hashing = threading.Lock()  # of the hash, and of how far it is

    @contextmanager
    def following(self, span: Span) -> Iterator[Update]:
        leads = self._takes_the_lead(span)
        try:
            yield self._update if leads else _nothing
        finally:
            if leads:
                self._hashing.release()

    def _takes_the_lead(self, span: Span) -> bool:
        """Whether the span is the next to be hashed; then nobody else hashes."""
        if not self._hashing.acquire(blocking=False):
            return False
        if self._hashed_bytes == span.at:
            return True
        self._hashing.release()
        return False

    def _update(self, chunk: memoryview) -> None:
        self._digest.update(chunk)
        self._hashed_bytes += len(chunk)

    def end(self, span: Span) -> bool:
        is_last = self.spans.end(span)
        # Whoever hashes looks again after letting go, so that nothing is left that came meanwhile.
        while self._next() and self._hashing.acquire(blocking=False):
            try:
                self._hash_on()
            finally:
                self._hashing.release()
        return is_last

    def is_right(self) -> bool:
        with self._hashing:
            self._hash_on()
        item = self._item
        return (self._hashed_bytes, self._digest.hexdigest()) == (item.size_bytes, item.sha256)

    @property
    def found(self) -> str:
        came_bytes = self.spans.arrived_bytes
        if came_bytes != self._item.size_bytes:
            return f"{came_bytes} bytes"
        return f"{came_bytes} bytes with SHA-256 {self._digest.hexdigest()}"

    def _next(self) -> Span | None:
        return self.spans.arrived_at(self._hashed_bytes)

    def _hash_on(self) -> None:
        while span := self._next():
            for chunk in self._read(span.start, span.end):
                self._digest.update(chunk)
            self._hashed_bytes = span.end


def _nothing(_: memoryview) -> None:
    """For a span that comes before its turn."""
