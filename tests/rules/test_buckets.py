"""Buckets of time on the days that break calendars. Instants are wall clocks of the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.buckets import Buckets
from tests.rules.histories import local, ticks

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
BEIRUT, APIA, SAO_PAULO = "Asia/Beirut", "Pacific/Apia", "America/Sao_Paulo"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
ZONES = [BERLIN, NEW_YORK, LORD_HOWE, BEIRUT, APIA, "UTC", "Asia/Kathmandu"]


@pytest.mark.parametrize(
    ("zone", "day", "interval", "buckets"),
    [
        # an ordinary day
        (BERLIN, "2026-06-15", HOUR, 24),
        (BERLIN, "2026-06-15", 6 * HOUR, 4),
        (BERLIN, "2026-06-15", 5 * HOUR, 5),
        # clocks go forward: 23 hours
        (BERLIN, "2026-03-29", HOUR, 23),
        (BERLIN, "2026-03-29", 6 * HOUR, 4),
        (NEW_YORK, "2026-03-08", HOUR, 23),
        (NEW_YORK, "2026-03-08", 12 * HOUR, 2),
        # clocks go back: 25 hours
        (BERLIN, "2026-10-25", HOUR, 25),
        (BERLIN, "2026-10-25", 6 * HOUR, 5),
        (NEW_YORK, "2026-11-01", HOUR, 25),
        (NEW_YORK, "2026-11-01", 12 * HOUR, 3),
        # half an hour: 23.5 and 24.5 hours
        (LORD_HOWE, "2026-10-04", HOUR, 24),
        (LORD_HOWE, "2026-10-04", timedelta(minutes=30), 47),
        (LORD_HOWE, "2026-04-05", HOUR, 25),
        (LORD_HOWE, "2026-04-05", timedelta(minutes=30), 49),
        # midnight itself does not exist
        (BEIRUT, "2022-03-27", HOUR, 23),
        (SAO_PAULO, "2018-11-04", HOUR, 23),
        # a leap day, a month's end, a year's end
        ("UTC", "2028-02-29", 6 * HOUR, 4),
        ("UTC", "2026-01-31", 6 * HOUR, 4),
        ("UTC", "2026-12-31", 6 * HOUR, 4),
    ],
)
def test_a_day_has_so_many_buckets(zone: str, day: str, interval: timedelta, buckets: int) -> None:
    found = Buckets(interval, ZoneInfo(zone))
    on_that_day = [
        instant
        for instant in ticks(local(zone, day) - 6 * HOUR, timedelta(minutes=5), 12 * 36)
        if str(instant.astimezone(ZoneInfo(zone)).date()) == day
    ]
    assert len({found.of(instant) for instant in on_that_day}) == buckets


@pytest.mark.parametrize(
    ("zone", "one", "other", "same"),
    [
        # 24 hours later, across the change, is another calendar day or is not
        (BERLIN, "2026-03-28 23:30", "2026-03-29 00:30", False),
        (BERLIN, "2026-03-29 00:00", "2026-03-29 23:59", True),
        (BERLIN, "2026-10-25 00:00", "2026-10-25 23:59", True),
        (BERLIN, "2026-10-24 23:59", "2026-10-25 00:00", False),
        (NEW_YORK, "2026-03-08 00:00", "2026-03-08 23:59", True),
        (NEW_YORK, "2026-11-01 00:00", "2026-11-01 23:59", True),
        (LORD_HOWE, "2026-04-05 00:00", "2026-04-05 23:59", True),
        (LORD_HOWE, "2026-04-04 23:59", "2026-04-05 00:00", False),
        ("UTC", "2028-02-28 23:59", "2028-02-29 00:00", False),
        ("UTC", "2028-02-29 00:00", "2028-02-29 23:59", True),
        ("UTC", "2028-02-29 23:59", "2028-03-01 00:00", False),
        ("UTC", "2026-02-28 12:00", "2026-03-01 12:00", False),
        ("UTC", "2026-01-31 12:00", "2026-01-31 13:00", True),
        # the zone decides, not UTC
        ("Asia/Tokyo", "2026-06-15 08:59", "2026-06-15 09:01", True),
        ("UTC", "2026-06-14 23:59", "2026-06-15 00:01", False),
        # a day that never was: Apia had no 2011-12-30
        (APIA, "2011-12-29 23:59", "2011-12-31 00:00", False),
    ],
)
def test_whole_days_are_calendar_days_of_the_zone(
    zone: str, one: str, other: str, same: bool
) -> None:
    buckets = Buckets(DAY, ZoneInfo(zone))
    assert (buckets.of(local(zone, one)) == buckets.of(local(zone, other))) is same


@pytest.mark.parametrize("interval", [HOUR, DAY])
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (BERLIN, "2026-03-29"),
        (BERLIN, "2026-10-25"),
        (LORD_HOWE, "2026-10-04"),
        (APIA, "2011-12-29"),
    ],
)
def test_what_was_asked_before_a_change_matters_not(
    zone: str, day: str, interval: timedelta
) -> None:
    instants = ticks(local(zone, day), timedelta(minutes=15), 4 * 72)
    buckets = Buckets(interval, ZoneInfo(zone))
    found = [buckets.of(instant) for instant in instants]
    assert found == [Buckets(interval, ZoneInfo(zone)).of(instant) for instant in instants]


def test_repeated_hour_falls_into_two_buckets_of_an_hour() -> None:
    buckets = Buckets(HOUR, ZoneInfo(BERLIN))
    first, second = (local(BERLIN, "2026-10-25 02:30", fold=fold) for fold in (0, 1))
    assert second - first == HOUR
    assert buckets.of(first) != buckets.of(second)


def test_six_hours_after_the_change_are_counted_from_midnight() -> None:
    buckets = Buckets(6 * HOUR, ZoneInfo(BERLIN))
    # 23-hour day: the first bucket ends 6 elapsed hours after midnight, at 07:00 by the wall clock
    assert buckets.of(local(BERLIN, "2026-03-29 06:59")) == buckets.of(
        local(BERLIN, "2026-03-29 00:00")
    )
    assert buckets.of(local(BERLIN, "2026-03-29 07:00")) != buckets.of(
        local(BERLIN, "2026-03-29 06:59")
    )


def test_seven_days_are_weeks_from_monday() -> None:
    buckets = Buckets(7 * DAY, ZoneInfo("UTC"))
    monday, sunday, next_monday = (datetime(2026, 6, day, 12, tzinfo=UTC) for day in (15, 21, 22))
    assert buckets.of(monday) == buckets.of(sunday)
    assert buckets.of(sunday) != buckets.of(next_monday)


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1)])
def test_no_interval_is_refused(interval: timedelta) -> None:
    with pytest.raises(ValueError, match="interval"):
        Buckets(interval, ZoneInfo("UTC"))


@given(
    st.sampled_from(ZONES),
    st.sampled_from([timedelta(minutes=30), HOUR, 6 * HOUR, 7 * HOUR, DAY, 3 * DAY, 7 * DAY]),
    st.integers(0, 36 * 365 * 24 * 60).map(lambda minutes: EPOCH + timedelta(minutes=minutes)),
    st.lists(st.timedeltas(timedelta(0), timedelta(days=2)), max_size=20),
)
def test_buckets_follow_time_and_do_not_depend_on_what_was_asked_before(
    zone: str, interval: timedelta, first: datetime, steps: list[timedelta]
) -> None:
    instants = [first]
    for step in steps:
        instants.append(instants[-1] + step)
    buckets = Buckets(interval, ZoneInfo(zone))
    found = [buckets.of(instant) for instant in instants]
    assert all(one <= other for one, other in pairwise(found))
    assert found == [Buckets(interval, ZoneInfo(zone)).of(instant) for instant in instants]
