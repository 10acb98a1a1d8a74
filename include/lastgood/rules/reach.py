"""The proof of reach: can collection make the room that is needed, by when, and what is in the way?

It is made of the gate's own verdicts over every candidate. A copy that may go gives its bytes back
when its grace ends: no proof shortens it. Everything else is named with the facts that keep it, and
with what somebody could do about it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from lastgood.rules.capacity import SWEEP_INTERVAL, Freed
from lastgood.rules.quantities import rough_size

RECEIPT_FACTS = frozenset({"newer_passed", "newer_present", "floor_kept", "prerequisite_met"})
"""Facts of the gate that a passing receipt of a newer checkpoint can make true."""
UNPROVEN = "unproven"
"""What keeps a stage of which no copy has passed."""
UNMARKED = "no mark yet"
"""What nothing keeps but that it was given up after the newest mark."""
_HELPS_TOLD = 10


@dataclass(frozen=True, slots=True)
class Held:
    """Copies of a stage that give nothing back now: `by` are the gate's facts against them, or the
    reasons for which they are kept; `who` says more of each (a hold's id, a reader); `level` is
    that of the stage's gate."""

    stage: str
    size_bytes: int
    by: frozenset[str]
    who: str = ""
    level: str = "restore"


@dataclass(frozen=True, slots=True)
class Returning:
    """A copy that the gate lets go: its bytes come back at `at` (UTC), when its grace ends."""

    size_bytes: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Help:
    """What somebody could do, and the bytes that would come back then."""

    what: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.what}: frees {rough_size(self.size_bytes)}"

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class Proof:
    """What collection can give back in a store for a project, as of `at` (UTC).

    `needed_bytes` must come back before the running jobs' next saves (`expected_bytes`) fit below
    hard; `by` is when enough has, None if it never will. `returning` is summed by the sweep that
    takes it. `blocked` and `kept` have the bytes behind each fact and each reason; a copy counts
    under every one of its own, so that they do not add up.
    """

    at: datetime
    claimed_bytes: int
    soft_bytes: int | None
    hard_bytes: int | None
    expected_bytes: int
    needed_bytes: int
    over_soft_bytes: int
    returning: tuple[tuple[datetime, int], ...]
    blocked: Mapping[str, int]
    kept: Mapping[str, int]
    helps: tuple[Help, ...]

    @property
    def by(self) -> datetime | None:
        return self._when(self.needed_bytes)

    @property
    def open_by(self) -> datetime | None:
        """When the use is not above soft any more, None if it never will."""
        return self._when(self.over_soft_bytes)

    @property
    def reaches(self) -> bool:
        return self.by is not None

    @property
    def returning_bytes(self) -> int:
        return sum(size for _, size in self.returning)

    def _when(self, needed_bytes: int) -> datetime | None:
        reached, when = 0, self.at
        for at, size in self.returning:
            if reached >= needed_bytes:
                break
            reached, when = reached + size, at
        return when if reached >= needed_bytes else None

    def forecast(self, now: datetime) -> list[Freed]:
        """What it says of the time after `now`; what was to come before comes with the next
        sweep."""
        return [Freed(max(at - now, timedelta(0)), size) for at, size in self.returning]

    def to_json(self) -> dict[str, Any]:
        return {
            "at": _text(self.at),
            "reaches": self.reaches,
            "by": _text(self.by),
            "open_by": _text(self.open_by),
            "claimed_bytes": self.claimed_bytes,
            "soft_bytes": self.soft_bytes,
            "hard_bytes": self.hard_bytes,
            "expected_bytes": self.expected_bytes,
            "needed_bytes": self.needed_bytes,
            "over_soft_bytes": self.over_soft_bytes,
            "returning": [{"at": _text(at), "bytes": size} for at, size in self.returning],
            "returning_bytes": self.returning_bytes,
            "blocked": dict(self.blocked),
            "kept": dict(self.kept),
            "helps": [help.to_json() for help in self.helps],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Proof:
        """Read what `to_json` wrote."""
        return cls(
            at=datetime.fromisoformat(document["at"]),
            returning=tuple(
                (datetime.fromisoformat(each["at"]), each["bytes"])
                for each in document["returning"]
            ),
            helps=tuple(Help(each["what"], each["bytes"]) for each in document["helps"]),
            **{name: document[name] for name in _SAME},
        )

    def __str__(self) -> str:
        lines = [
            f"{rough_size(self.claimed_bytes)} are claimed of {_size(self.hard_bytes)} hard; the"
            f" running jobs' next saves take {rough_size(self.expected_bytes)}.",
            self._verdict(),
        ]
        lines += [f"kept back by {fact}: {rough_size(size)}" for fact, size in self.blocked.items()]
        lines += [f"kept as {reason}: {rough_size(size)}" for reason, size in self.kept.items()]
        return "\n".join([*lines, *map(str, self.helps)])

    def _verdict(self) -> str:
        gives = f"collection gives back {rough_size(self.returning_bytes)}"
        if not self.reaches:
            return f"{rough_size(self.needed_bytes)} must come back, and {gives}: not enough."
        if not self.needed_bytes:
            return f"Nothing must come back for that; {gives}."
        return f"{rough_size(self.needed_bytes)} come back by {_text(self.by)}; {gives} in all."


_SAME = (
    "claimed_bytes",
    "soft_bytes",
    "hard_bytes",
    "expected_bytes",
    "needed_bytes",
    "over_soft_bytes",
    "blocked",
    "kept",
)


def by_sweep(found: Iterable[Returning], now: datetime) -> tuple[tuple[datetime, int], ...]:
    """The bytes that come back, summed by the sweep that takes them: the one at `now`, or the first
    one after the end of a grace."""
    sums: Counter[datetime] = Counter()
    for each in found:
        behind = max(each.at - now, timedelta(0))
        sweeps = -(-behind // SWEEP_INTERVAL)
        sums[now + sweeps * SWEEP_INTERVAL] += each.size_bytes
    return tuple(sorted(sums.items()))


def summed(held: Iterable[Held]) -> dict[str, int]:
    """The bytes behind each fact or reason, the most first."""
    sums: Counter[str] = Counter()
    for each in held:
        sums.update(dict.fromkeys(each.by, each.size_bytes))
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def merged(held: Iterable[Held]) -> list[Held]:
    """Equal ones as one, with the sum of their bytes: memory grows with the stages alone."""
    sums: Counter[Held] = Counter()
    for each in held:
        sums[replace(each, size_bytes=0)] += each.size_bytes
    return [replace(each, size_bytes=size) for each, size in sums.items()]


def helps(blocked: Iterable[Held], kept: Iterable[Held]) -> tuple[Help, ...]:
    """What would free most, of all that one deed alone would free: a validation of one stage, the
    release of one hold, the end of one reader."""
    sums: defaultdict[str, int] = defaultdict(int)
    for each in blocked:
        if each.by and each.by <= RECEIPT_FACTS:
            sums[_validate(each)] += each.size_bytes
        elif len(each.by) == 1 and each.who:
            sums[f"{each.stage}: end {each.who}"] += each.size_bytes
    for each in kept:
        if each.by == {UNPROVEN}:
            sums[_validate(each)] += each.size_bytes
        elif each.by == {UNMARKED}:
            sums[f"lastgood mark {each.stage.partition('/')[0]}"] += each.size_bytes
        elif each.by in ({"hold"}, {"reader"}):
            sums[f"{each.stage}: end {each.who}"] += each.size_bytes
    most = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:_HELPS_TOLD]
    return tuple(Help(what, size) for what, size in most)


def _validate(held: Held) -> str:
    return f"validate the newest checkpoint of {held.stage} at level {held.level}"


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _size(size_bytes: int | None) -> str:
    return "no known limit" if size_bytes is None else rough_size(size_bytes)
