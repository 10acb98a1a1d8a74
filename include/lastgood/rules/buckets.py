"""Which bucket of time an instant falls into, by the calendar of one zone.

The one rule: an interval of whole days counts calendar days of the zone, whatever their length
(7d are weeks from Monday). A shorter one counts elapsed time from the zone's midnight of the day:
a day of 25 hours has five buckets of 6h and one of 23 hours has four.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
Bucket = tuple[int, int]  # (number of the day or group of days, number within the day)


class Buckets:
    """Buckets of one interval in one zone."""

    def __init__(self, interval: timedelta, zone: ZoneInfo) -> None:
        if interval <= timedelta(0):
            raise ValueError("an interval is longer than nothing")
        self._interval = interval
        self._days = interval // DAY if interval % DAY == timedelta(0) else 0
        self._zone = zone
        self._ordinal = 0
        # the last day asked for is remembered, since history is mostly in order of time
        self._start = self._end = datetime.min.replace(tzinfo=UTC)

    def of(self, instant: datetime) -> Bucket:
        """The bucket of an aware instant. Buckets compare by identity; order is that of history."""
        if not self._start <= instant < self._end:
            self._turn_to(instant)
        if self._days:
            return (self._ordinal - 1) // self._days, 0
        return self._ordinal, (instant - self._start) // self._interval

    def _turn_to(self, instant: datetime) -> None:
        day = instant.astimezone(self._zone).date()
        self._ordinal = day.toordinal()
        self._start = _midnight(day, self._zone)
        self._end = _midnight(day + DAY, self._zone)


@lru_cache(maxsize=4096)
def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
