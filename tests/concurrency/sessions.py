"""Two sessions, interleaved by locks and not by luck: one stands at a gate that the test opens, the
other is seen waiting in pg_locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

TIMEOUT_SECONDS = 60.0


@dataclass
class Stop:
    """A place where the one thread that comes first stands until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    taken: threading.Lock = field(default_factory=threading.Lock)

    def stand(self) -> None:
        if self.taken.acquire(blocking=False):
            self.reached.set()
            assert self.opened.wait(TIMEOUT_SECONDS), "nobody opened the gate"

    def wait_until_reached(self) -> None:
        assert self.reached.wait(TIMEOUT_SECONDS), "nobody came to the gate"


def stop_after(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Stop:
    """Let the first caller of a function stand after it returned."""
    stop = Stop()
    called = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        result = called(*args, **options)
        stop.stand()
        return result

    patch.setattr(owner, name, wrapped)
    return stop


class Session(threading.Thread):
    """A flow in a thread of its own; `result()` is what it answered or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self.join(TIMEOUT_SECONDS)
        assert not self.is_alive(), "the session never ended"
        if self._error is not None:
            raise self._error
        return self._result


def wait_until_blocked(owner: psycopg.Connection[Any], *, sessions: int = 1) -> None:
    """Return once so many sessions of this database wait for a lock."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        row = owner.execute(
            "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE NOT l.granted AND a.datname = current_database()"
        ).fetchone()
        if row is not None and row[0] >= sessions:
            return
        time.sleep(0.01)
    raise AssertionError("no session waits for a lock")


@contextmanager
def standing(stop: Stop, call: Callable[[], Any]) -> Iterator[Session]:
    """Run a flow until it stands at the gate; the gate opens at the end of the block."""
    session = Session(call)
    stop.wait_until_reached()
    try:
        yield session
    finally:
        stop.opened.set()
