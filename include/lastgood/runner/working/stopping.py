"""One reason to stop, seen by every thread of a piece of work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta


class Stop:
    """Set once with the error that tells why; threads look at it between their steps."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.RLock()  # a signal may come at any place
        self._reason: BaseException | None = None
        self._breaks: list[Callable[[], object]] = []

    def request(self, reason: BaseException) -> None:
        """Ask all to stop, and break off what waits. The first reason stays."""
        with self._lock:
            self._reason = self._reason or reason
            for break_off in self._breaks:
                break_off()
        self._requested.set()

    @property
    def reason(self) -> BaseException | None:
        return self._reason

    def check(self) -> None:
        """Raise the reason if there is one."""
        if self._reason is not None:
            raise self._reason

    def wait(self, pause: timedelta) -> None:
        """Sleep, but raise the reason as soon as there is one."""
        self._requested.wait(pause.total_seconds())
        self.check()

    @contextmanager
    def obeyed(self) -> Iterator[None]:
        """In the block, what this thread waits for in `breaking` is broken off by this Stop."""
        before = _OBEYED.set(self)
        try:
            yield
        finally:
            _OBEYED.reset(before)

    def _breaking(self, break_off: Callable[[], object]) -> None:
        with self._lock:
            self._breaks.append(break_off)
            if self._reason is not None:
                break_off()

    def _broken_no_more(self, break_off: Callable[[], object]) -> None:
        with self._lock:
            self._breaks.remove(break_off)


_OBEYED: ContextVar[Stop | None] = ContextVar("obeyed", default=None)


@contextmanager
def breaking(break_off: Callable[[], object]) -> Iterator[None]:
    """For a block that may wait long, how the Stop that is obeyed ends the wait: at once, without
    an error, and from another thread."""
    stop = _OBEYED.get()
    if stop is None:
        yield
        return
    stop._breaking(break_off)
    try:
        yield
    finally:
        stop._broken_no_more(break_off)
