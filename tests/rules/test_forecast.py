"""When a store reaches its hard mark, from the totals of its days."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from lastgood.rules.forecast import Outlook, daily, forecast

START = datetime(2026, 2, 24, 2, tzinfo=UTC)
TB = 10**12


def _days(*totals: int) -> list[tuple[datetime, int]]:
    return [(START + timedelta(days=number), total) for number, total in enumerate(totals)]


@pytest.mark.parametrize(
    ("totals", "mark", "outlook", "per_day", "day"),
    [
        (_days(1, 2, 3, 4, 5), 10, Outlook.EXPECTED, 1, date(2026, 3, 5)),
        (_days(0, 10, 20, 30, 40), 41, Outlook.EXPECTED, 10, date(2026, 3, 1)),
        (_days(0, 10, 20, 30, 40), 50, Outlook.EXPECTED, 10, date(2026, 3, 1)),
        (_days(0, 10, 20, 30, 40), 51, Outlook.EXPECTED, 10, date(2026, 3, 2)),
        (_days(5, 9, 7, 13, 11), 12, Outlook.EXPECTED, 2, date(2026, 3, 1)),
        (_days(*(TB * n for n in range(9))), 100 * TB, Outlook.EXPECTED, TB, date(2026, 6, 4)),
        (_days(1, 2, 3, 4), 10, Outlook.NOT_ENOUGH_DAYS, None, None),
        ([], 10, Outlook.NOT_ENOUGH_DAYS, None, None),
        (_days(1, 2, 3, 4, 5), None, Outlook.NO_MARK, 1, None),
        (_days(5, 5, 5, 5, 5), 10, Outlook.NOT_GROWING, 0, None),
        (_days(9, 8, 7, 6, 5), 10, Outlook.NOT_GROWING, -1, None),
        (_days(1, 2, 3, 4, 5), 5, Outlook.REACHED, 1, None),
        (_days(9), 5, Outlook.REACHED, None, None),
        (_days(1, 2, 3, 4, 5), 10**6, Outlook.BEYOND_HORIZON, 1, None),
    ],
)
def test_a_line_through_the_days_reaches_the_mark(
    totals: list[tuple[datetime, int]],
    mark: int | None,
    outlook: Outlook,
    per_day: int | None,
    day: date | None,
) -> None:
    found = forecast(totals, mark)

    assert (found.outlook, found.per_day_bytes, found.day) == (outlook, per_day, day)
    assert found.days == len(totals)


def test_many_reports_of_one_day_are_one_day_and_its_last_counts() -> None:
    hours = [(START + timedelta(hours=number), number) for number in (3, 1, 2)]

    assert daily(hours) == [(START.date(), 3)]
    assert forecast(hours * 5, 10).outlook is Outlook.NOT_ENOUGH_DAYS


def test_a_day_without_a_report_counts_as_a_day_that_passed() -> None:
    gap = [one for number, one in enumerate(_days(*range(0, 80, 10))) if number not in (2, 5)]

    assert forecast(gap, 90).per_day_bytes == 10


def test_only_the_last_thirty_days_say_what_comes() -> None:
    shrunk = _days(*(1000 - number for number in range(40)), *range(960, 990))

    assert forecast(shrunk, 2000).per_day_bytes == 1
