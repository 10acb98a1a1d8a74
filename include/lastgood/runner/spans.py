"""How an object is cut into requests.

While there are more objects than workers, each is fetched in one stream and hashed as it comes. A
larger one is cut, so that no worker is idle: into four spans or more for each worker, because then
all end at about the same time and the hash, which goes in order, keeps up. A span is at most
64 MiB, the usual part of an upload, and at least 8 MiB, beside which a request costs little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SMALLEST_BYTES = 8 << 20
LARGEST_BYTES = 64 << 20
_FOR_EACH_WORKER = 4


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


def is_large(size_bytes: int, total_bytes: int, workers: int) -> bool:
    """Whether an object among `total_bytes` is work for more than one worker."""
    return workers > 1 and size_bytes * 2 * workers > total_bytes


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
