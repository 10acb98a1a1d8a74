"""One reason to stop, seen by every thread of a piece of work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Stop:
    """Set once with the error that tells why; threads look at it between their steps."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._reason: BaseException | None = None

    def request(self, reason: BaseException) -> None:
        """Ask all to stop. The first reason stays."""
        with self._lock:
            self._reason = self._reason or reason
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


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], *, workers: int, stop: Stop
) -> list[Result]:
    """`work` of each item on up to `workers` threads, started in order; results in order.

    The first failure requests `stop` and is raised once all threads have ended.
    """
    tasks = list(enumerate(items))
    waiting: queue.SimpleQueue[tuple[int, Item]] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    results: dict[int, Result] = {}

    def drain() -> None:
        try:
            while stop.reason is None:
                index, item = waiting.get_nowait()
                results[index] = work(item)
        except queue.Empty:
            return
        except BaseException as error:
            stop.request(error)

    count = min(workers, len(tasks))
    with ThreadPoolExecutor(max(1, count), thread_name_prefix="lastgood") as pool:
        try:
            for thread in [pool.submit(drain) for _ in range(count)]:
                thread.result()
        except BaseException as error:  # of this thread, such as KeyboardInterrupt
            stop.request(error)
            raise
    stop.check()
    return [results[index] for index, _ in tasks]
