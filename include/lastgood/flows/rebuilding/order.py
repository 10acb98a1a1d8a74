"""In which order checkpoints are recorded, and reading several at once, but not far ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from lastgood.flows.rebuilding.reading import Said
from lastgood.stores.hashing import cores

T = TypeVar("T")
R = TypeVar("R")
Tell = Callable[[str, int, int | None], None]
"""Hears how far a phase is: its name, how much is done, and of how much if that is known."""


class Reading:
    """Bytes read by many threads, told as one number."""

    def __init__(self, tell: Tell, total: int) -> None:
        self._tell = tell
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, size_bytes: int) -> None:
        """So many more."""
        with self._lock:
            self._done += size_bytes
            self._tell("bytes", self._done, self._total)


def in_order(readable: Sequence[Said]) -> list[Said]:
    """Each stage in the order of its positions, and nothing before what it depends on."""
    ordered = sorted(
        readable,
        key=lambda one: (one.found.checkpoint, one.found.store, one.found.attempt_id),
    )
    by_digest = {(one.found.checkpoint.project, one.digest): i for i, one in enumerate(ordered)}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, one in enumerate(ordered):
        before = [index - 1] if _is_next(ordered, index) else []
        for needed in one.dependencies:
            base = by_digest.get((one.found.checkpoint.project, needed))
            before += [] if base is None else [base]
        sorter.add(index, *before)
    try:
        return [ordered[index] for index in sorter.static_order()]
    except CycleError:  # forged: what comes before its base is refused
        return ordered


def _is_next(ordered: Sequence[Said], index: int) -> bool:
    if index == 0:
        return False
    return ordered[index - 1].found.checkpoint.stage_id == ordered[index].found.checkpoint.stage_id


def ahead(work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item with what `work` answered for it, in their order; as many at once as there are
    cores, and no more than that ahead."""
    with ThreadPoolExecutor(cores(), thread_name_prefix="rebuild") as threads:
        waiting: deque[tuple[T, Future[R]]] = deque()
        try:
            for item in items:
                waiting.append((item, threads.submit(work, item)))
                if len(waiting) > cores():
                    first, answer = waiting.popleft()
                    yield first, answer.result()
            while waiting:
                first, answer = waiting.popleft()
                yield first, answer.result()
        finally:
            for _, answer in waiting:
                answer.cancel()
