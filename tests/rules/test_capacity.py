from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.capacity import (
    Admission,
    CapacityState,
    Collection,
    Limits,
    Use,
    admit,
    measured_reserve,
)
from lastgood.rules.policy_sections import Bound, CapacityPolicy

GB, TB = 10**9, 10**12
POLICY = CapacityPolicy()
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def test_reserve_of_600_gb_checkpoints_is_1_2_tb_plus_overhead() -> None:
    assert measured_reserve(600 * GB) == 1200 * GB + 30 * GB


@pytest.mark.parametrize(
    ("policy", "total", "peak", "soft", "hard", "reserve"),
    [
        # the share is smaller than the total minus the reserve
        (POLICY, 100 * TB, 600 * GB, 75 * TB, 85 * TB, 1230 * GB),
        # the reserve is larger than what the share leaves free: soft never above hard
        (POLICY, 4 * TB, 600 * GB, 2770 * GB, 2770 * GB, 1230 * GB),
        # the reserve does not fit at all
        (POLICY, TB, 600 * GB, 0, 0, 1230 * GB),
        # no checkpoint was measured yet
        (POLICY, 100 * TB, 0, 75 * TB, 85 * TB, 0),
        # the backend tells no total: a share of nothing known
        (POLICY, None, 600 * GB, None, None, 1230 * GB),
        (CapacityPolicy(Bound(None, 10), Bound(None, 20)), None, 3, 10, 20, 6),
        (CapacityPolicy(Bound(None, 10), Bound(None, 20), 7), 25, 3, 10, 18, 7),
        (CapacityPolicy(Bound(Fraction(1, 3)), Bound(Fraction(2, 3)), 0), 100, 3, 33, 66, 0),
    ],
)
def test_limits(
    policy: CapacityPolicy,
    total: int | None,
    peak: int,
    soft: int | None,
    hard: int | None,
    reserve: int,
) -> None:
    assert Limits.of(policy, total_bytes=total, peak_bytes=peak) == Limits(soft, hard, reserve)


@pytest.mark.parametrize(
    ("use", "usage", "claimed"),
    [
        (Use(10, 5, None), 10, 15),
        (Use(10, 5, 8), 10, 15),
        (Use(10, 5, 30), 30, 35),
        (Use(0, 0, 0), 0, 0),
    ],
)
def test_whoever_knows_of_more_bytes_is_believed(use: Use, usage: int, claimed: int) -> None:
    assert (use.usage_bytes, use.claimed_bytes) == (usage, claimed)


LIMITS = Limits(soft_bytes=75, hard_bytes=85, reserve_bytes=15)


@pytest.mark.parametrize(
    ("use", "asked", "admitted", "missing", "state"),
    [
        (Use(0, 0), 85, True, 0, CapacityState.OPEN),
        (Use(0, 0), 86, False, 1, CapacityState.OPEN),
        (Use(75, 0), 10, True, 0, CapacityState.OPEN),
        (Use(76, 0), 9, True, 0, CapacityState.SOFT),
        (Use(76, 0), 10, False, 1, CapacityState.SOFT),
        (Use(40, 40), 6, False, 1, CapacityState.SOFT),  # in flight owns its room
        (Use(40, 40, 80), 0, False, 35, CapacityState.CLOSED),
        (Use(85, 0), 0, True, 0, CapacityState.SOFT),
        (Use(86, 0), 0, False, 1, CapacityState.CLOSED),
    ],
)
def test_admission(
    use: Use, asked: int, admitted: bool, missing: int, state: CapacityState
) -> None:
    found = admit(use, LIMITS, asked)
    assert (found.admitted, found.missing_bytes, found.state) == (admitted, missing, state)


def test_no_known_limit_admits_everything() -> None:
    found = admit(Use(10**18, 0), Limits(None, None, 0), 10**18)
    assert found.admitted
    assert found.state is CapacityState.OPEN


@pytest.mark.parametrize(
    ("collection", "retry"),
    [
        (Collection(reclaimable_bytes=10, next_sweep_in=20 * MINUTE, interval=HOUR), 20 * MINUTE),
        (Collection(reclaimable_bytes=9, next_sweep_in=20 * MINUTE, interval=HOUR), 80 * MINUTE),
        (Collection(reclaimable_bytes=10, next_sweep_in=timedelta(0), interval=HOUR), MINUTE),
        (Collection(), 2 * HOUR),
    ],
)
def test_refused_job_is_told_when_to_try_again(collection: Collection, retry: timedelta) -> None:
    found = admit(Use(85, 0), LIMITS, 10, collection)
    assert found.missing_bytes == 10
    assert found.retry_after == retry
    assert found.retry_after_seconds == retry.total_seconds()


def test_admitted_job_need_not_try_again() -> None:
    assert admit(Use(0, 0), LIMITS, 1).retry_after_seconds == 0


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(0, 100))
def test_admitted_attempts_never_claim_more_than_hard(asked: list[int], committed: int) -> None:
    in_flight = 0
    for size in asked:
        found: Admission = admit(Use(committed, in_flight), LIMITS, size)
        if found.admitted:
            in_flight += size
    assert in_flight == 0 or committed + in_flight <= 85
