"""The rules of retention: one small class each, answering what it keeps of a history and why.

A history is everything the stage still has, in ascending (generation, sequence): integers, never
text, never time alone. A rule never counts a checkpoint that does not qualify: one whose bytes are
gone or going, or whose latest receipt failed at any level.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Literal
from zoneinfo import ZoneInfo

from lastgood.rules.buckets import Bucket, Buckets
from lastgood.rules.names import ManifestDigest
from lastgood.rules.quantities import duration_text

Position = tuple[int, int]  # (generation, sequence) within one stage


class Level(StrEnum):
    """The ladder of validation, from the weakest to the strongest proof."""

    CHECKSUM = "checksum"
    FORMAT = "format"
    RESTORE = "restore"

    @property
    def at_least(self) -> tuple[Level, ...]:
        """The levels whose proof is one of this level, too: itself and all stronger ones."""
        return _AT_LEAST[self]


_AT_LEAST = {level: tuple(Level)[number:] for number, level in enumerate(Level)}


class ReceiptVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"  # no memory, no time, no machine: proves nothing


# Looked up once: members of an enumeration are slow to name in what is asked a million times.
_PASS, _FAIL = ReceiptVerdict.PASS, ReceiptVerdict.FAIL


# Not frozen: a mark makes a million of them, and to freeze each costs more than to decide over it.
@dataclass(slots=True)
class Candidate:
    """One checkpoint of a stage with its copy, as of the moment of the decision.

    `receipts` has the latest verdict of each level that was ever tried; `failed` says that the
    latest receipt of all failed. `present` and `quarantined` are the copy's state; neither: its
    deletion has begun or is done. It is `whole` unless something that it depends on is not sound.

    It `exists` while its bytes are there and nothing has begun to delete them. It is `sound` if it
    is whole and no level's latest verdict is a failure: a later pass of another level heals
    nothing. It `qualifies` for a slot of a role if both are so, also from quarantine: then it must
    not be deleted.
    """

    generation: int
    sequence: int
    step: int
    committed_at: datetime
    manifest: ManifestDigest
    size_bytes: int
    metrics: Mapping[str, int | float] = field(default_factory=dict)
    receipts: Mapping[Level, ReceiptVerdict] = field(default_factory=dict)
    failed: bool = False
    present: bool = True
    quarantined: bool = False
    whole: bool = True
    # What every rule asks for again and again is found once.
    position: Position = field(init=False, repr=False, compare=False)
    exists: bool = field(init=False, repr=False, compare=False)
    sound: bool = field(init=False, repr=False, compare=False)
    qualifies: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.position = (self.generation, self.sequence)
        self.exists = self.present or self.quarantined
        self.sound = self.whole and not self.failed and _FAIL not in self.receipts.values()
        self.qualifies = self.exists and self.sound

    @property
    def proven(self) -> bool:
        """Readable now and passing at some level: what the floor counts."""
        return self.present and self.passes(Level.CHECKSUM)

    def passes(self, level: Level) -> bool:
        """It is sound, and the latest verdict at this level or at a stronger one is a pass."""
        if self.sound:
            for reached in _AT_LEAST[level]:
                if self.receipts.get(reached) is _PASS:
                    return True
        return False


History = Sequence[Candidate]


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest `count` checkpoints."""

    count: int

    def keeps(self, history: History, at: datetime) -> dict[Position, str]:
        kept: dict[Position, str] = {}
        for candidate in reversed(history):
            if len(kept) >= self.count:
                break
            if candidate.qualifies:
                kept[candidate.position] = f"number {len(kept) + 1} of the newest {self.count}"
        return kept

    def most(self) -> int | None:
        return self.count

    def __str__(self) -> str:
        return (
            "the newest checkpoint" if self.count == 1 else f"the newest {self.count} checkpoints"
        )


@dataclass(frozen=True)
class Every:
    """The newest checkpoint of each bucket of time (see `rules.buckets`) of age up to `within`.

    At most `within / interval` of them, the newest: at the edges a window touches one bucket more.
    With `validated`, only checkpoints that pass at this level, or a stronger one, qualify.
    """

    interval: timedelta
    within: timedelta | None = None  # None: for ever
    validated: Level | None = None
    zone: str = "UTC"

    def keeps(self, history: History, at: datetime) -> dict[Position, str]:
        return {candidate.position: self.reason for candidate in self.split(history, at)[0]}

    def split(self, history: History, at: datetime) -> tuple[list[Candidate], list[Candidate]]:
        """Those that stand for their bucket, newest first: the kept, and the aged out."""
        standing = list(reversed(self._representatives(history).values()))
        if self.within is None:
            return standing, []
        oldest = at - self.within
        kept = [candidate for candidate in standing if candidate.committed_at >= oldest]
        kept = kept[: self.most()]
        chosen = {candidate.position for candidate in kept}
        return kept, [candidate for candidate in standing if candidate.position not in chosen]

    def _representatives(self, history: History) -> dict[Bucket, Candidate]:
        buckets = Buckets(self.interval, ZoneInfo(self.zone))
        newest: dict[Bucket, Candidate] = {}
        before: Bucket | None = None
        for candidate in history:
            if candidate.qualifies and (self.validated is None or candidate.passes(self.validated)):
                bucket = buckets.of(candidate.committed_at)
                if bucket != before:  # the order of the dict stays that of the history
                    newest.pop(bucket, None)
                    before = bucket
                newest[bucket] = candidate
        return newest

    def most(self) -> int | None:
        return None if self.within is None else -(-self.within // self.interval)

    @cached_property
    def reason(self) -> str:
        return f"newest{self._validated} of its {duration_text(self.interval)} in {self.zone}"

    @property
    def _validated(self) -> str:
        return f" with a passing {self.validated} receipt" if self.validated else ""

    def __str__(self) -> str:
        span = f" for {duration_text(self.within)}" if self.within else " for ever"
        return (
            f"the newest checkpoint{self._validated} of each {duration_text(self.interval)}{span}"
        )


@dataclass(frozen=True, slots=True)
class Best:
    """The `count` with the lowest or highest value of a metric; of equal ones the newer. One
    without the metric, or with no finite value of it, is none of them."""

    metric: str
    mode: Literal["min", "max"]
    count: int

    def keeps(self, history: History, at: datetime) -> dict[Position, str]:
        sign = 1 if self.mode == "max" else -1
        valued = (
            (sign * candidate.metrics[self.metric], candidate.position)
            for candidate in history
            if candidate.qualifies and self.metric in candidate.metrics
        )
        ranked = heapq.nlargest(self.count, (one for one in valued if math.isfinite(one[0])))
        return {
            position: f"{self.mode} {self.metric} number {rank}: {sign * value}"
            for rank, (value, position) in enumerate(ranked, start=1)
        }

    def most(self) -> int | None:
        return self.count

    def __str__(self) -> str:
        which = "lowest" if self.mode == "min" else "highest"
        return f"the {self.count} with the {which} {self.metric}"


@dataclass(frozen=True, slots=True)
class Steps:
    """Each checkpoint whose step is a multiple of `every`; of equal steps, the newest."""

    every: int

    def keeps(self, history: History, at: datetime) -> dict[Position, str]:
        newest = {
            candidate.step: candidate.position
            for candidate in history
            if candidate.step % self.every == 0 and candidate.qualifies
        }
        return {
            position: f"step {step} is a multiple of {self.every}"
            for step, position in newest.items()
        }

    def most(self) -> int | None:
        return None

    def __str__(self) -> str:
        return f"each checkpoint at a multiple of {self.every} steps"


AnyRule = Newest | Every | Best | Steps
"""What answers over the whole ordered history of one stage, as of an instant: `keeps` is what it
keeps, each with its reason, `most` the most that it can keep (None: the history sets the number).
"""
