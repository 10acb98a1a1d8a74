"""The number of connections follows what is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from lastgood.errors import InvalidInput
from lastgood.runner.working.pace import FIRST, MOST, REST, WINDOW, Pace
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.stopping import Stop

MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, time: timedelta) -> None:
        self.now += time.total_seconds()


def numbers(rate: Callable[[int], float], windows: int, pace: Pace, clock: Clock) -> list[int]:
    """The numbers of workers, window by window, where so many carry `rate` MiB a window."""
    found = []
    for _ in range(windows):
        pace.add(int(rate(pace.workers) * MIB))
        clock.advance(WINDOW)
        found.append(pace.look())
    return found


@pytest.mark.parametrize(
    ("rate", "settled", "most_seen"),
    [
        pytest.param(lambda n: 50 * n, 16, 16, id="each carries as much as the others"),
        pytest.param(lambda n: 50 * min(n, 4), 4, 6, id="four fill the way"),
        pytest.param(lambda n: 50 * min(n, 9), 9, 14, id="nine fill it"),
        pytest.param(lambda n: 600 / n, 4, 6, id="they are in each other's way"),
        pytest.param(lambda n: 0, 4, 4, id="nothing comes through"),
    ],
)
@pytest.mark.parametrize("idle", [timedelta(0), 10 * WINDOW], ids=["at once", "after a pause"])
def test_it_grows_as_long_as_that_pays(
    rate: Callable[[int], float], settled: int, most_seen: int, idle: timedelta
) -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    clock.advance(idle)  # room is asked for, and what an earlier try left is looked at

    seen = numbers(rate, 12, pace, clock)

    assert seen[-1] == settled
    assert max(seen) == most_seen
    assert all(FIRST <= number <= MOST for number in seen)


def test_more_is_tried_again_after_a_rest() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    assert set(numbers(lambda n: 200, 3, pace, clock)[2:]) == {4}

    assert set(numbers(lambda n: 50 * n, REST, pace, clock)) == {4}
    assert numbers(lambda n: 50 * n, 8, pace, clock)[-1] == 16


def test_half_when_the_store_asks_for_less_once_for_all_who_are_told() -> None:
    clock = Clock()
    pace = Pace(8, 16, clock)
    for _ in range(8):
        pace.slow_down()
    assert pace.look() == 4
    assert set(numbers(lambda n: 50 * n, REST, pace, clock)) == {4}

    for _ in range(3):
        clock.advance(WINDOW)
        pace.slow_down()
    assert pace.look() == 1


def test_as_many_as_the_caller_says() -> None:
    clock = Clock()
    pace = Pace(3, 3, clock)

    assert set(numbers(lambda n: 50 * n, 5, pace, clock)) == {3}
    assert Pace.of(7).workers == 7
    assert Pace.of(None).workers == FIRST
    with pytest.raises(InvalidInput, match="workers"):
        Pace.of(0)


class Stepping(Pace):
    """Says the numbers that it is given, the last one for ever."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(numbers[0], max(numbers))
        self._numbers = iter(numbers[1:])

    def look(self) -> int:
        self.workers = next(self._numbers, self.workers)
        return self.workers


def test_workers_join_in_the_middle_of_the_work() -> None:
    together = threading.Barrier(6)

    def work(item: int) -> int:
        together.wait(30)  # two alone would wait in vain
        return item

    assert in_parallel(work, range(6), workers=Stepping(2, 6), stop=Stop()) == list(range(6))


def test_workers_leave_between_two_pieces_of_work() -> None:
    lock = threading.Lock()
    running: set[int] = set()
    together: list[int] = []
    pace = Pace(4, 4)

    def work(item: int) -> int:
        with lock:
            running.add(item)
            together.append(len(running))
            if item == 3:
                pace.workers = 1
        with lock:
            running.remove(item)
        return item

    assert in_parallel(work, range(200), workers=pace, stop=Stop()) == list(range(200))
    assert set(together[-150:]) == {1}
