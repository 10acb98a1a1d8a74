"""How fast a store grows, and the day on which it reaches a mark: a straight line through the
daily totals, by least squares.

A line through few days is a guess that looks like knowledge, so fewer than `LEAST_DAYS` answer
nothing but that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

LEAST_DAYS = 5
MOST_DAYS = 30
"""Older days say less of what comes."""
HORIZON = timedelta(days=3650)
_DAY = timedelta(days=1)


class Outlook(StrEnum):
    NOT_ENOUGH_DAYS = "not-enough-days"
    NO_MARK = "no-mark"  # no hard mark is known
    NOT_GROWING = "not-growing"
    BEYOND_HORIZON = "beyond-horizon"  # further away than ten years
    REACHED = "reached"  # it stands above the mark already
    EXPECTED = "expected"


@dataclass(frozen=True, slots=True)
class Forecast:
    """`per_day_bytes` is None where there are not enough days; `day` is there when expected."""

    outlook: Outlook
    days: int
    per_day_bytes: int | None = None
    day: date | None = None


def daily(totals: Iterable[tuple[datetime, int]]) -> list[tuple[date, int]]:
    """The last total of each day in UTC, the oldest day first."""
    found: dict[date, tuple[datetime, int]] = {}
    for at, size_bytes in totals:
        day = at.astimezone(UTC).date()
        if day not in found or found[day][0] <= at:
            found[day] = (at, size_bytes)
    return [(day, found[day][1]) for day in sorted(found)]


def forecast(totals: Iterable[tuple[datetime, int]], mark_bytes: int | None) -> Forecast:
    """When a store of these totals (instant in UTC, bytes) reaches `mark_bytes`; None: no mark is
    known. The line's slope is laid on the newest total, which is known."""
    days = daily(totals)[-MOST_DAYS:]
    if mark_bytes is not None and days and days[-1][1] >= mark_bytes:
        return Forecast(Outlook.REACHED, len(days), _slope(days))
    slope = _slope(days)
    if slope is None:
        return Forecast(Outlook.NOT_ENOUGH_DAYS, len(days))
    if mark_bytes is None:
        return Forecast(Outlook.NO_MARK, len(days), slope)
    if slope <= 0:
        return Forecast(Outlook.NOT_GROWING, len(days), slope)
    newest, size_bytes = days[-1]
    left = -(-(mark_bytes - size_bytes) // slope)  # whole days, rounded up
    if left > HORIZON // _DAY:
        return Forecast(Outlook.BEYOND_HORIZON, len(days), slope)
    return Forecast(Outlook.EXPECTED, len(days), slope, newest + timedelta(days=left))


def _slope(days: list[tuple[date, int]]) -> int | None:
    """Bytes per day by least squares; None for too few days."""
    if len(days) < LEAST_DAYS:
        return None
    first = days[0][0]
    xs = [(day - first).days for day, _ in days]
    ys = [size_bytes for _, size_bytes in days]
    number, sum_x, sum_y = len(days), sum(xs), sum(ys)
    above = number * sum(x * y for x, y in zip(xs, ys, strict=True)) - sum_x * sum_y
    below = number * sum(x * x for x in xs) - sum_x * sum_x
    return round(above / below)
