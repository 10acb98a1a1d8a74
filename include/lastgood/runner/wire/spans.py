"""How an object is cut into requests.

While there are more objects than workers, each is fetched in one stream and hashed as it comes. A
larger one is cut, so that no worker is idle. Where the manifest has digests of its parts, and they
are two or more for each worker, the spans are the parts: each is proven by itself, whatever the
order. Otherwise they are four or more for each worker, because then all end at about the same time
and the hash, which goes in order, keeps up; such a span is at most 64 MiB, the usual part of an
upload, and at least 8 MiB, beside which a request costs little. One that is longer than that and
has no digests of parts is fetched in one stream: a later try can go on where that ended, and could
not tell what is there of spans.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lastgood.rules.manifest import ManifestObject

SMALLEST_BYTES = 8 << 20
LARGEST_BYTES = 64 << 20
_FOR_EACH_WORKER = 4
_PARTS_FOR_EACH_WORKER = 2


@dataclass(slots=True)
class Span:
    """The bytes from `start` up to `end`, of which those before `at` have arrived."""

    start: int
    end: int
    at: int

    @property
    def is_whole(self) -> bool:
        return self.at == self.end

    @property
    def arrived_bytes(self) -> int:
        return self.at - self.start


class Spans:
    """The spans of one object, in order, and which of them are over: nothing more of those comes.
    For many threads."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = {span.start: span for span in spans}
        self._over = {span.start for span in spans if span.is_whole}
        self._lock = threading.Lock()

    @property
    def missing(self) -> list[Span]:
        return [span for span in self._spans.values() if not span.is_whole]

    @property
    def arrived_bytes(self) -> int:
        return sum(span.arrived_bytes for span in self._spans.values())

    def end(self, span: Span) -> bool:
        """The span is over. Whether it was the last one."""
        with self._lock:
            self._over.add(span.start)
            return len(self._over) == len(self._spans)

    def arrived_at(self, start: int) -> Span | None:
        """The span that begins there, if all of it is there."""
        span = self._spans.get(start)
        return span if span is not None and span.is_whole and start in self._over else None


def is_large(size_bytes: int, total_bytes: int, workers: int) -> bool:
    """Whether an object among `total_bytes` is work for more than one worker."""
    return workers > 1 and size_bytes * 2 * workers > total_bytes


def goes_by_part(item: ManifestObject, total_bytes: int, workers: int) -> bool:
    """Whether each part of the object, one among `total_bytes`, is fetched and proven by itself."""
    parts = len(item.part_sha256 or ())
    enough = parts >= _PARTS_FOR_EACH_WORKER * workers
    return enough and is_large(item.size_bytes, total_bytes, workers)


def most_bytes(size_bytes: int, total_bytes: int, workers: int) -> int:
    """The longest span of an object of `size_bytes` among `total_bytes` to fetch."""
    if not is_large(size_bytes, total_bytes, workers):
        return max(1, size_bytes)
    share = -(-size_bytes // (_FOR_EACH_WORKER * workers))
    return min(max(share, SMALLEST_BYTES), LARGEST_BYTES)


def cut(start: int, end: int, most: int) -> Iterator[Span]:
    """The spans of nearly equal length, at most `most` bytes, from `start` up to `end`."""
    length = end - start
    count = -(-length // most)
    for number in range(count):
        begin = start + length * number // count
        yield Span(begin, start + length * (number + 1) // count, begin)
