from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood.rules.clock import Reading, jump
from tests.rules.histories import NOON

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
BEFORE = Reading(NOON, 1_000_000_000_000, "boot-1")


def after(moved: timedelta, elapsed: timedelta, boot: str = "boot-1") -> Reading:
    return Reading(NOON + moved, BEFORE.monotonic_ns + round(elapsed.total_seconds() * 10**9), boot)


@pytest.mark.parametrize(
    ("moved", "elapsed"),
    [
        (timedelta(0), timedelta(0)),
        (HOUR, HOUR),
        (400 * 24 * HOUR, 400 * 24 * HOUR),
        (HOUR + 5 * MINUTE, HOUR),
        (HOUR, HOUR + 5 * MINUTE),
        (-SECOND, timedelta(0)),  # two clocks are never read at once
        (-SECOND, timedelta(seconds=3)),
    ],
)
def test_small_drift_is_no_jump(moved: timedelta, elapsed: timedelta) -> None:
    assert jump(BEFORE, after(moved, elapsed)) is None


@pytest.mark.parametrize(
    ("moved", "elapsed", "by"),
    [
        (HOUR + 5 * MINUTE + SECOND, HOUR, 5 * MINUTE + SECOND),
        (24 * HOUR, SECOND, 24 * HOUR - SECOND),
        (HOUR, 3 * HOUR, -2 * HOUR),  # forwards on the wall, and yet two hours were lost
        (-2 * SECOND, timedelta(0), -2 * SECOND),
        (-HOUR, HOUR, -2 * HOUR),
    ],
)
def test_jump_is_measured_against_elapsed_time(
    moved: timedelta, elapsed: timedelta, by: timedelta
) -> None:
    found = jump(BEFORE, after(moved, elapsed))
    assert found is not None
    assert found.by == by
    assert found.at == NOON + moved


def test_across_boots_only_backwards_can_be_known() -> None:
    assert jump(BEFORE, after(24 * HOUR, -HOUR / 4, "boot-2")) is None
    assert jump(BEFORE, after(-SECOND, -HOUR / 4, "boot-2")) is None
    found = jump(BEFORE, after(-2 * SECOND, HOUR, "boot-2"))
    assert found is not None
    assert found.by == -2 * SECOND


def test_threshold_and_tolerance_can_be_set() -> None:
    reading = after(MINUTE, timedelta(0))
    assert jump(BEFORE, reading) is None
    assert jump(BEFORE, reading, threshold=30 * SECOND) is not None
    assert jump(BEFORE, after(-MINUTE, timedelta(0)), tolerance=2 * MINUTE) is None
