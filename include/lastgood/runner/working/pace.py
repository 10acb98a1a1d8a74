"""How many connections pay: found by measuring.

What one connection carries depends on the store, on the way to it and on what else is going on, so
no number is right everywhere. From a few the number grows by half at a time, as long as that brings
at least a tenth more bytes per second; where it does not, it goes back and rests. A store that asks
for less is sent half as much at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from lastgood.errors import InvalidInput

FIRST, MOST = 4, 16
WINDOW = timedelta(seconds=1.5)  # of one measurement; as long again passes after each change
REST = 20  # windows, before more is tried again
_GAIN = 1.1
_GROWTH = 1.5


class Pace:
    """The number of workers of one transfer: from `first` up to `most`. For many threads."""

    def __init__(
        self, first: int = FIRST, most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.workers = first
        self.most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._since = clock()
        self._skipped = 0  # windows to come in which nothing is decided
        self._before: tuple[int, float] | None = None  # workers and bytes per second before growing
        self._slowed_at: float | None = None

    @classmethod
    def of(cls, workers: int | None) -> Pace:
        """As many as the caller says, or as many as pay. Raises InvalidInput."""
        if workers is None:
            return cls()
        if workers < 1:
            raise InvalidInput(where="workers", reason=f"has to be 1 or more, not {workers}")
        return cls(workers, workers)

    def carried(self, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
        """The same chunks, counted as they are taken."""
        for chunk in chunks:
            yield chunk
            self.add(len(chunk))

    def add(self, size_bytes: int) -> None:
        """Count bytes that went through a connection."""
        with self._lock:
            if not self._bytes:  # before there was no work, and no measure of it
                self._since = self._clock()
            self._bytes += size_bytes

    def slow_down(self) -> None:
        """The store asked for less: half as many, once for all who are told so at the same time."""
        with self._lock:
            now = self._clock()
            if self._slowed_at is None or now - self._slowed_at >= WINDOW.total_seconds():
                self._slowed_at = now
                self._settle(max(1, self.workers // 2))
                self._begin_window(now)

    def look(self) -> int:
        """How many are to work from now on. To be asked again and again."""
        with self._lock:
            now = self._clock()
            elapsed = now - self._since
            if elapsed >= WINDOW.total_seconds():
                rate = self._bytes / elapsed
                self._begin_window(now)
                if self._skipped:
                    self._skipped -= 1
                elif rate:
                    self._decide(rate)
            return self.workers

    def _begin_window(self, now: float) -> None:
        self._bytes, self._since = 0, now

    def _decide(self, rate: float) -> None:
        if self._before is not None and rate < self._before[1] * _GAIN:
            self._settle(self._before[0])
        elif self.workers < self.most:
            self._before = self.workers, rate
            self.workers = min(self.most, int(self.workers * _GROWTH + 0.5))
            self._skipped = 1  # in which both numbers were at work

    def _settle(self, workers: int) -> None:
        self.workers = workers
        self._before = None
        self._skipped = REST
