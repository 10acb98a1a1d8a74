"""Who asks what another thread is asking already waits for that answer, and asks no second time.

A question that takes seconds to fail, asked by many, would otherwise be asked by one after the
other, and each would wait for all before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Subject = TypeVar("Subject", bound=Hashable)
Answer = TypeVar("Answer")


class AskedOnce(Generic[Subject, Answer]):
    """Questions by their subject; for many threads. No answer is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Subject, Future[Answer]] = {}

    def ask(self, subject: Subject, question: Callable[[], Answer]) -> Answer:
        """What the question answers, or raises; asked by this thread, or by one that has begun and
        has not ended."""
        with self._lock:
            waiting = self._under_way.get(subject)
            if waiting is None:
                asking = self._under_way[subject] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            asking.set_result(question())
        except BaseException as error:  # whoever waits gets it too
            asking.set_exception(error)
        finally:
            with self._lock:
                del self._under_way[subject]
        return asking.result()

    def is_asked(self, subject: Subject) -> bool:
        """Whether some thread is asking now."""
        with self._lock:
            return subject in self._under_way
