"""Whether the catalog's clock jumped between two readings.

A reading pairs the catalog's instant with a monotonic clock of the machine that asks, which counts
elapsed time (also of a suspended machine, as CLOCK_BOOTTIME does) and starts anew with each boot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

THRESHOLD = timedelta(minutes=5)
BACKWARDS_TOLERANCE = timedelta(seconds=1)  # the slack of reading two clocks one after the other


@dataclass(frozen=True, slots=True)
class Reading:
    """The catalog's clock (aware, UTC) and the machine's monotonic one at the same moment."""

    catalog_at: datetime
    monotonic_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Jump:
    """How far the clock stands from where it should: forwards positive."""

    by: timedelta
    at: datetime
    why: str


def jump(
    earlier: Reading,
    later: Reading,
    *,
    threshold: timedelta = THRESHOLD,
    tolerance: timedelta = BACKWARDS_TOLERANCE,
) -> Jump | None:
    """The jump between two readings, or None.

    Within one boot, the catalog's clock must have moved by as much as the monotonic one, within
    `threshold`. It may never stand earlier than before, beyond `tolerance`: not even across boots,
    where nothing else can be known.
    """
    moved = later.catalog_at - earlier.catalog_at
    elapsed = _elapsed(earlier, later)
    if moved < -tolerance:
        by = moved if elapsed is None else moved - elapsed
        return Jump(by, later.catalog_at, "the clock went backwards")
    if elapsed is None:
        return None
    drift = moved - elapsed
    if abs(drift) > threshold:
        direction = "forwards" if drift > timedelta(0) else "backwards"
        return Jump(drift, later.catalog_at, f"the clock jumped {direction} against elapsed time")
    return None


def _elapsed(earlier: Reading, later: Reading) -> timedelta | None:
    """The time between two readings of one boot; None across boots."""
    if earlier.boot_id != later.boot_id:
        return None
    return timedelta(microseconds=(later.monotonic_ns - earlier.monotonic_ns) // 1000)
