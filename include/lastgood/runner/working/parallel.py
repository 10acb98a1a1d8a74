"""Pieces of work side by side, on as many threads as pay."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Generic, TypeVar

from lastgood.runner.working.pace import Pace
from lastgood.runner.working.stopping import Stop

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK_EVERY = timedelta(milliseconds=500)


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], *, workers: int | Pace, stop: Stop
) -> list[Result]:
    """`work` of each item on up to `workers` threads, started in order; results in order.

    The first failure requests `stop` and is raised once all threads have ended.
    """
    pace = Pace.of(workers) if isinstance(workers, int) else workers
    crew = _Crew(work, list(items), pace, stop)
    with ThreadPoolExecutor(pace.most, thread_name_prefix="lastgood") as pool:
        try:
            crew.work_in(pool)
        except BaseException as error:  # of this thread, such as KeyboardInterrupt
            stop.request(error)
            raise
    stop.check()
    return crew.results


class _Crew(Generic[Item, Result]):
    """Threads that take items in turn; more join, or some leave, as the pace says."""

    def __init__(
        self, work: Callable[[Item], Result], items: list[Item], pace: Pace, stop: Stop
    ) -> None:
        self._work = work
        self._pace = pace
        self._stop = stop
        self._lock = threading.Lock()
        self._waiting = deque(enumerate(items))
        self._at_work = 0
        self._done: dict[int, Result] = {}

    @property
    def results(self) -> list[Result]:
        return [self._done[index] for index in sorted(self._done)]

    def work_in(self, pool: Executor) -> None:
        """Return when nobody is at work and nothing is left to take."""
        threads: set[Future[None]] = set()
        while True:
            joining = self._wanted()
            threads |= {pool.submit(self._drain) for _ in range(joining)}
            if not threads:
                return
            ended, threads = wait(threads, _LOOK_EVERY.total_seconds(), FIRST_COMPLETED)
            for thread in ended:
                thread.result()
            self._pace.look()

    def _wanted(self) -> int:
        """How many are to join; they count as at work from now on."""
        with self._lock:
            if self._stop.reason is not None:
                return 0
            joining = min(self._pace.workers - self._at_work, len(self._waiting))
            self._at_work += max(0, joining)
            return max(0, joining)

    def _drain(self) -> None:
        try:
            while (task := self._next()) is not None:
                index, item = task
                self._done[index] = self._work(item)
        except BaseException as error:
            self._stop.request(error)
            with self._lock:
                self._at_work -= 1

    def _next(self) -> tuple[int, Item] | None:
        """The next item; None for a thread that is to leave, which is not at work any more."""
        with self._lock:
            is_over = self._stop.reason is not None or not self._waiting
            if is_over or self._at_work > self._pace.workers:
                self._at_work -= 1
                return None
            return self._waiting.popleft()
