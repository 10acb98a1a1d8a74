"""How much of a store may be used, where a project stands in it, and whether an attempt gets the
room that it asks for.

Usage is the larger of the catalog's sum and the backend's last total: whoever knows of more bytes
is believed. Hard is the smaller of the policy's share and the total minus the reserve. An attempt
owns its declared bytes from the moment of prepare: two jobs cannot both take the last room.

A share of the policy bounds what everybody has in the store; bytes bound the project's own part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Any

from lastgood.rules.policy_sections import Bound, CapacityPolicy

OVERHEAD = Fraction(5, 100)  # of the peak: manifests, parts in flight, block rounding
SWEEP_INTERVAL = timedelta(minutes=15)
"""How often a sweep comes by itself."""
_SOONEST = timedelta(minutes=1)
_NOBODY_KNOWS = timedelta(hours=1)
NO_BOUND = Bound(Fraction(1))


class CapacityState(StrEnum):
    """Where a project stands in a store; everything written counts, and everything declared.

    `open`: not above soft. `closed`: above hard, or above soft while the newest proof says that
    the running jobs' next saves will not fit below hard. `soft`: all else.
    """

    OPEN = "open"
    SOFT = "soft"
    CLOSED = "closed"


_SEVERITY = {state: number for number, state in enumerate(CapacityState)}


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


def measured_reserve(peak_bytes: int) -> int:
    """Room for one checkpoint kept while the next is written and validated, plus overhead."""
    return 2 * peak_bytes + int(OVERHEAD * peak_bytes)


def _smaller(one: int | None, other: int | None) -> int | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Measure:
    """One use held against its limits."""

    use: Use
    limits: Limits

    def over_soft(self, more_bytes: int = 0) -> int:
        """The bytes above soft, with so many more; 0 if there is no such limit."""
        return _over(self.use.claimed_bytes + more_bytes, self.limits.soft_bytes)

    def over_hard(self, more_bytes: int = 0) -> int:
        """The bytes above hard, with so many more; 0 if there is no such limit."""
        return _over(self.use.claimed_bytes + more_bytes, self.limits.hard_bytes)

    @property
    def state(self) -> CapacityState:
        if self.over_hard():
            return CapacityState.CLOSED
        return CapacityState.SOFT if self.over_soft() else CapacityState.OPEN

    def to_json(self) -> dict[str, Any]:
        return {
            "usage_bytes": self.use.usage_bytes,
            "in_flight_bytes": self.use.in_flight_bytes,
            "soft_bytes": self.limits.soft_bytes,
            "hard_bytes": self.limits.hard_bytes,
            "reserve_bytes": self.limits.reserve_bytes,
        }


def _over(claimed_bytes: int, limit_bytes: int | None) -> int:
    return 0 if limit_bytes is None else max(0, claimed_bytes - limit_bytes)


@dataclass(frozen=True, slots=True)
class Standing:
    """A project in a store: everybody's use against the shares, its own against its bytes.

    `reaches` is what the newest proof says, None if none counts (see `rules.reach`).
    """

    whole: Measure
    own: Measure
    total_bytes: int | None = None
    reaches: bool | None = None

    @classmethod
    def of(
        cls,
        policy: CapacityPolicy,
        *,
        own: Use,
        whole: Use,
        total_bytes: int | None,
        peak_bytes: int,
        reaches: bool | None = None,
    ) -> Standing:
        """Where a project with this policy stands."""
        shares = replace(policy, soft=_share(policy.soft), hard=_share(policy.hard))
        return cls(
            Measure(whole, Limits.of(shares, total_bytes=total_bytes, peak_bytes=peak_bytes)),
            Measure(own, Limits.of(policy, total_bytes=None, peak_bytes=peak_bytes)),
            total_bytes,
            reaches,
        )

    @property
    def state(self) -> CapacityState:
        state = self.binding.state
        if state is CapacityState.SOFT and self.reaches is False:
            return CapacityState.CLOSED
        return state

    @property
    def binding(self) -> Measure:
        """The measure that is nearer to its limit."""
        return min(self.whole, self.own, key=_nearness)

    @property
    def over_soft_bytes(self) -> int:
        """What must go before the project stands open again."""
        return max(self.whole.over_soft(), self.own.over_soft())

    def missing_bytes(self, whole_more: int, own_more: int) -> int:
        """What must go before so many more bytes of everybody, and of the project, fit."""
        return max(self.whole.over_hard(whole_more), self.own.over_hard(own_more))

    def to_json(self) -> dict[str, Any]:
        """`measure` says whose use the numbers are: everybody's in the `store`, or the
        `project`'s own."""
        binding = self.binding
        return {
            "state": self.state.value,
            "measure": "store" if binding is self.whole else "project",
            **binding.to_json(),
            "total_bytes": self.total_bytes,
            "project_bytes": self.own.use.usage_bytes,
            "over_soft_bytes": self.over_soft_bytes,
            "reaches": self.reaches,
        }


def _share(bound: Bound) -> Bound:
    return bound if bound.share is not None else NO_BOUND


def _nearness(measure: Measure) -> tuple[int, Fraction]:
    """The severest first, then the fullest."""
    hard, claimed = measure.limits.hard_bytes, measure.use.claimed_bytes
    full = Fraction(-1) if hard is None else Fraction(claimed, hard or 1)
    return -_SEVERITY[measure.state], -full


@dataclass(frozen=True, slots=True)
class Freed:
    """Bytes that a sweep gives back, so long from now."""

    after: timedelta
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to one request for room, with the numbers that a refused job is told."""

    admitted: bool
    state: CapacityState  # as it was when asked
    asked_bytes: int
    measure: Measure
    missing_bytes: int  # 0 for a new job that is refused although this save would fit
    retry_after: timedelta

    @property
    def retry_after_seconds(self) -> int:
        return int(self.retry_after.total_seconds())

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            **self.measure.to_json(),
            "missing_bytes": self.missing_bytes,
            "retry_after_seconds": self.retry_after_seconds,
        }


def admit(
    standing: Standing, asked_bytes: int, *, new_job: bool = False, forecast: Iterable[Freed] = ()
) -> Admission:
    """Decide whether an attempt that declares `asked_bytes` gets its room now.

    While a project stands closed only by its proof, jobs that already have a checkpoint go on
    saving up to hard, and `new_job` is refused. `forecast` is what the proof says of later.
    """
    refusing = max(standing.whole, standing.own, key=lambda one: one.over_hard(asked_bytes))
    missing = refusing.over_hard(asked_bytes)
    closed_to_it = new_job and standing.state is CapacityState.CLOSED
    admitted = not missing and not closed_to_it
    needed = missing or standing.over_soft_bytes
    return Admission(
        admitted=admitted,
        state=standing.state,
        asked_bytes=asked_bytes,
        measure=refusing if missing else standing.binding,
        missing_bytes=missing,
        retry_after=timedelta(0) if admitted else retry_after(needed, forecast),
    )


def retry_after(missing_bytes: int, forecast: Iterable[Freed]) -> timedelta:
    """When it is worth asking again: at the sweep by which enough is given back, else in an
    hour."""
    freed = 0
    for each in sorted(forecast, key=lambda each: each.after):
        freed += each.size_bytes
        if freed >= missing_bytes:
            return max(each.after, timedelta(0), _SOONEST)
    return _NOBODY_KNOWS
