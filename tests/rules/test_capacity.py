from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.capacity import (
    CapacityState,
    Freed,
    Limits,
    Measure,
    Standing,
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
UNLIMITED = Measure(Use(0, 0), Limits(None, None, 0))


def standing(use: Use, reaches: bool | None = None, own: Measure = UNLIMITED) -> Standing:
    return Standing(Measure(use, LIMITS), own, 100, reaches)


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
    found = admit(standing(use), asked)
    assert (found.admitted, found.missing_bytes, found.state) == (admitted, missing, state)


@pytest.mark.parametrize(
    ("used", "reaches", "state", "running_job", "new_job"),
    [
        (75, False, CapacityState.OPEN, True, True),  # not above soft: no proof counts
        (76, None, CapacityState.SOFT, True, True),
        (76, True, CapacityState.SOFT, True, True),
        (76, False, CapacityState.CLOSED, True, False),
        (85, False, CapacityState.CLOSED, False, False),  # one more byte is above hard
        (86, True, CapacityState.CLOSED, False, False),
    ],
)
def test_who_is_admitted_in_which_state(
    used: int, reaches: bool | None, state: CapacityState, running_job: bool, new_job: bool
) -> None:
    found = standing(Use(used, 0), reaches)
    assert found.state is state
    assert admit(found, 1).admitted is running_job
    assert admit(found, 1, new_job=True).admitted is new_job


def test_bytes_bound_the_project_and_shares_the_store() -> None:
    policy = CapacityPolicy(Bound(None, 40), Bound(None, 50))
    found = Standing.of(policy, own=Use(45, 0), whole=Use(90, 0), total_bytes=1000, peak_bytes=0)
    assert found.own == Measure(Use(45, 0), Limits(40, 50, 0))
    assert found.whole.limits == Limits(1000, 1000, 0)
    assert (found.state, found.binding, found.over_soft_bytes) == ("soft", found.own, 5)
    assert not admit(found, 6).admitted
    assert admit(found, 6).to_json()["hard_bytes"] == 50


def test_no_known_limit_admits_everything() -> None:
    unlimited = Measure(Use(10**18, 0), Limits(None, None, 0))
    found = admit(Standing(unlimited, unlimited), 10**18)
    assert found.admitted
    assert found.state is CapacityState.OPEN


@pytest.mark.parametrize(
    ("forecast", "retry"),
    [
        ([Freed(20 * MINUTE, 10)], 20 * MINUTE),
        ([Freed(80 * MINUTE, 1), Freed(20 * MINUTE, 9)], 80 * MINUTE),
        ([Freed(timedelta(0), 10)], MINUTE),
        ([Freed(20 * MINUTE, 9)], HOUR),  # nobody knows of enough
        ([], HOUR),
    ],
)
def test_refused_job_is_told_when_to_try_again(forecast: list[Freed], retry: timedelta) -> None:
    found = admit(standing(Use(85, 0)), 10, forecast=forecast)
    assert found.missing_bytes == 10
    assert found.retry_after == retry
    assert found.retry_after_seconds == retry.total_seconds()


def test_admitted_job_need_not_try_again() -> None:
    assert admit(standing(Use(0, 0)), 1).retry_after_seconds == 0


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(0, 100))
def test_admitted_attempts_never_claim_more_than_hard(asked: list[int], committed: int) -> None:
    in_flight = 0
    for size in asked:
        if admit(standing(Use(committed, in_flight)), size).admitted:
            in_flight += size
    assert in_flight == 0 or committed + in_flight <= 85


def test_collection_from_75_percent_to_below_85_keeps_the_reserve() -> None:
    """A store of 10 TB with checkpoints of 600 GB: soft 7.5, hard 8.5, reserve 1.23 TB."""
    limits = Limits.of(POLICY, total_bytes=10 * TB, peak_bytes=600 * GB)
    assert limits == Limits(7500 * GB, 8500 * GB, 1230 * GB)
    assert limits.reserve_bytes <= 10 * TB - 8500 * GB

    def at(claimed: int) -> Standing:
        return Standing(Measure(Use(claimed, 0), limits), UNLIMITED, 10 * TB)

    assert at(7500 * GB).state is CapacityState.OPEN
    assert at(7501 * GB).state is CapacityState.SOFT  # collection starts
    assert admit(at(7900 * GB), 600 * GB).admitted
    refused = admit(at(7901 * GB), 600 * GB)
    assert (refused.admitted, refused.missing_bytes) == (False, GB)
    # where the reserve binds before the share
    small = Limits.of(POLICY, total_bytes=5 * TB, peak_bytes=600 * GB)
    assert (small.hard_bytes, small.soft_bytes) == (3770 * GB, 3750 * GB)
    assert 5 * TB - 3770 * GB == small.reserve_bytes == 1230 * GB
