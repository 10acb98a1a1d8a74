from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lastgood.rules.bursts import Burst, Commit, find

T0 = datetime(2026, 3, 1, tzinfo=UTC)
GB = 10**9


def every(minutes: float, number: int, size_bytes: int = GB, start: datetime = T0) -> list[Commit]:
    return [
        Commit(start + number * timedelta(minutes=minutes), size_bytes) for number in range(number)
    ]


def after(past: list[Commit], *more: Commit) -> list[Commit]:
    return [*past, *more]


PAST = every(30, 40)
END = PAST[-1].at


@pytest.mark.parametrize(
    ("commits", "number"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param(PAST, None, id="as always"),
        pytest.param(after(PAST, *every(0.6, 100, start=END)), 101, id="a hundred in an hour"),
        pytest.param(after(PAST, *every(1, 9, start=END + timedelta(hours=2))), None, id="nine"),
        pytest.param(after(PAST, *every(1, 10, start=END + timedelta(hours=2))), 10, id="ten"),
        pytest.param(every(0.6, 500), None, id="always fast"),
        pytest.param(every(1, 100), None, id="nothing is usual before ten commits"),
        pytest.param(after(PAST, Commit(END + timedelta(hours=2), 4 * GB)), 1, id="much larger"),
        pytest.param(after(PAST, Commit(END + timedelta(hours=2), 3 * GB)), None, id="larger"),
        pytest.param(every(6, 400), None, id="a steady pace"),
    ],
)
def test_a_stage_is_compared_with_its_own_past(commits: list[Commit], number: int | None) -> None:
    burst = find(commits, T0)
    assert (burst and burst.number) == number


def test_what_ended_before_the_moment_is_told_no_more() -> None:
    commits = after(PAST, *every(0.6, 100, start=END))
    assert find(commits, commits[-1].at + timedelta(seconds=1)) is None


def test_a_burst_says_what_was_usual() -> None:
    found = find(after(PAST, *every(0.5, 100, 1000, start=END + timedelta(hours=2))), T0)
    assert isinstance(found, Burst)
    assert (found.number, found.usual_number) == (100, 2)
    assert str(found) == (
        "100 commits of 100 kB within 1h up to 2026-03-01T22:19:30Z, where there were never more"
        " than 2 of 2 GB before; half of them are larger than 1 kB, 1 GB before"
    )
