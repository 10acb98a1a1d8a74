"""How much of a store may be used, and whether an attempt gets the room that it asks for.

Usage is the larger of the catalog's sum and the backend's last total: whoever knows of more bytes
is believed. Hard is the smaller of the policy's share and the total minus the reserve. An attempt
owns its declared bytes from the moment of prepare: two jobs cannot both take the last room.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from lastgood.rules.policy_sections import CapacityPolicy

OVERHEAD = Fraction(5, 100)  # of the peak: manifests, parts in flight, block rounding
_SOONEST = timedelta(minutes=1)


class CapacityState(StrEnum):
    OPEN = "open"
    SOFT = "soft"  # collection speeds up; no new retention beyond the anchors
    CLOSED = "closed"  # nothing is admitted


@dataclass(frozen=True, slots=True)
class Use:
    """What is used of a store, in bytes; `backend_bytes` None: the backend was never asked."""

    committed_bytes: int
    in_flight_bytes: int
    backend_bytes: int | None = None

    @property
    def usage_bytes(self) -> int:
        return max(self.committed_bytes, self.backend_bytes or 0)

    @property
    def claimed_bytes(self) -> int:
        """The usage once every admitted attempt has written all that it declared."""
        return self.usage_bytes + self.in_flight_bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes; None: no limit is known."""

    soft_bytes: int | None
    hard_bytes: int | None
    reserve_bytes: int

    @classmethod
    def of(cls, policy: CapacityPolicy, *, total_bytes: int | None, peak_bytes: int) -> Limits:
        """The limits on a backend of this total, where the largest checkpoint has `peak_bytes`."""
        reserve = measured_reserve(peak_bytes) if policy.reserve is None else policy.reserve
        without_reserve = None if total_bytes is None else max(0, total_bytes - reserve)
        hard = _smaller(policy.hard.of(total_bytes), without_reserve)
        return cls(_smaller(policy.soft.of(total_bytes), hard), hard, reserve)

    def state(self, use: Use) -> CapacityState:
        """Where this use stands."""
        if self.hard_bytes is not None and use.claimed_bytes > self.hard_bytes:
            return CapacityState.CLOSED
        if self.soft_bytes is not None and use.claimed_bytes > self.soft_bytes:
            return CapacityState.SOFT
        return CapacityState.OPEN


def measured_reserve(peak_bytes: int) -> int:
    """Room for one checkpoint kept while the next is written and validated, plus overhead."""
    return 2 * peak_bytes + int(OVERHEAD * peak_bytes)


def _smaller(one: int | None, other: int | None) -> int | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Collection:
    """What the next sweeps will give back: the gate's own verdicts say how much."""

    reclaimable_bytes: int = 0
    next_sweep_in: timedelta = timedelta(hours=1)
    interval: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to one request for room, with the numbers that a refused job is told."""

    admitted: bool
    state: CapacityState  # as it was when asked
    asked_bytes: int
    use: Use
    limits: Limits
    missing_bytes: int
    retry_after: timedelta

    @property
    def retry_after_seconds(self) -> int:
        return int(self.retry_after.total_seconds())


_NO_COLLECTION = Collection()


def admit(
    use: Use, limits: Limits, asked_bytes: int, collection: Collection = _NO_COLLECTION
) -> Admission:
    """Decide whether an attempt that declares `asked_bytes` gets its room now."""
    over = 0
    if limits.hard_bytes is not None:
        over = max(0, use.claimed_bytes + asked_bytes - limits.hard_bytes)
    return Admission(
        admitted=over == 0,
        state=limits.state(use),
        asked_bytes=asked_bytes,
        use=use,
        limits=limits,
        missing_bytes=over,
        retry_after=_retry_after(over, collection) if over else timedelta(0),
    )


def _retry_after(missing_bytes: int, collection: Collection) -> timedelta:
    """After the next sweep if it gives back enough, else after the one behind it."""
    soonest = max(collection.next_sweep_in, _SOONEST)
    enough = collection.reclaimable_bytes >= missing_bytes
    return soonest if enough else soonest + collection.interval
