"""Which validations of a stage are due.

A level may be validated on every commit, or as a drill at an interval on the newest copy. Beyond
that: a verdict of an older validator is taken again; an inconclusive one proves nothing and is
tried again; a pass that will soon be too old for the gate is renewed; all bytes are read again in
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from lastgood.rules.policy import Policy
from lastgood.rules.policy_sections import Cadence
from lastgood.rules.retention_rules import Level, Position, ReceiptVerdict

LEAD = Fraction(3, 4)  # a receipt is renewed at this part of its greatest age
_RENEWED = {
    Level.CHECKSUM: (Level.CHECKSUM,),
    Level.FORMAT: (Level.CHECKSUM, Level.FORMAT),  # a format does not see every changed byte
    Level.RESTORE: (Level.RESTORE,),  # of what it has downloaded, and every byte compared
}


class Why(StrEnum):
    NEVER_VALIDATED = "never validated"
    DRILL = "drill is due"
    VALIDATOR_CHANGED = "validator changed"
    INCONCLUSIVE = "inconclusive before"
    GATE_RECEIPT_AGES = "gate's receipt grows old"
    REREAD = "bytes were not read for long"


@dataclass(frozen=True, slots=True)
class Seen:
    """The latest receipt of one level. `settled`: it proved nothing, and the same validator would
    prove nothing again."""

    verdict: ReceiptVerdict
    finished_at: datetime
    validator_version: str
    settled: bool = False


@dataclass(frozen=True, slots=True)
class CopySeen:
    """A present copy with the latest receipt of each level that it has. `validators` are its own,
    where a level's depends on the copy: the contract that its manifest names. `committed_at`: its
    bytes were last read then, if no receipt says otherwise; None if that is not known."""

    position: Position
    receipts: Mapping[Level, Seen] = field(default_factory=dict)
    validators: Mapping[Level, str] = field(default_factory=dict)
    committed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """One validation to run. `last_at`: when the level was last tried on this copy."""

    position: Position
    level: Level
    why: Why
    last_at: datetime | None = None


def due(
    copies: Sequence[CopySeen],
    policy: Policy,
    versions: Mapping[Level, str],
    at: datetime,
    *,
    hurry: bool = False,
) -> list[Due]:
    """All validations due for one stage at `at`: first what was never tried, newest first, then by
    the oldest receipt.

    `versions` are the validators of now, beside those that a copy has of its own; a level without
    one is not run. `hurry`: the stage waits only for a receipt, so that its drill does not wait for
    its interval.
    """
    ordered = sorted(copies, key=lambda copy: copy.position)
    found = [
        item for level in Level for item in _due_at(level, ordered, policy, versions, at, hurry)
    ]
    return sorted(found, key=_urgency)


def _urgency(item: Due) -> tuple[int, float, int, int]:
    generation, sequence = item.position
    if item.last_at is None:
        return 0, 0.0, -generation, -sequence
    return 1, item.last_at.timestamp(), -generation, -sequence


def _due_at(
    level: Level,
    stage: Sequence[CopySeen],
    policy: Policy,
    versions: Mapping[Level, str],
    at: datetime,
    hurry: bool,
) -> Iterator[Due]:
    cadence = policy.validate.cadence(level)
    copies = [copy for copy in stage if level in versions or level in copy.validators]
    if cadence.never or not copies:
        return
    drilled = _drill(level, copies, cadence, at, hurry)
    newest_pass = _newest_pass(level, copies)
    for copy in copies:
        seen = copy.receipts.get(level)
        version = copy.validators.get(level) or versions[level]
        why = _why(level, copy, policy, version, at, is_newest_pass=copy is newest_pass)
        if copy is drilled:
            why = why or Why.DRILL
        if why is not None:
            yield Due(copy.position, level, why, None if seen is None else seen.finished_at)


def _drill(
    level: Level, copies: Sequence[CopySeen], cadence: Cadence, at: datetime, hurry: bool
) -> CopySeen | None:
    """The newest copy, if the stage's last drill is an interval ago."""
    if cadence.interval is None:
        return None
    last = _last(copy.receipts[level].finished_at for copy in copies if level in copy.receipts)
    newest = copies[-1]
    if hurry and level not in newest.receipts:
        return newest
    return newest if last is None or at - last >= cadence.interval else None


def _last(instants: Iterable[datetime]) -> datetime | None:
    return max(instants, default=None)


def _newest_pass(level: Level, copies: Sequence[CopySeen]) -> CopySeen | None:
    for copy in reversed(copies):
        seen = copy.receipts.get(level)
        if seen is not None and seen.verdict is ReceiptVerdict.PASS:
            return copy
    return None


def _why(
    level: Level,
    copy: CopySeen,
    policy: Policy,
    version: str,
    at: datetime,
    *,
    is_newest_pass: bool,
) -> Why | None:
    seen = copy.receipts.get(level)
    reread = _lead(policy.validate.reread_all_within)
    if seen is None:
        if policy.validate.cadence(level).every_commit:
            return Why.NEVER_VALIDATED
        since = copy.committed_at if level is Level.CHECKSUM else None
        return Why.REREAD if since is not None and at - since >= reread else None
    if seen.validator_version != version:
        return Why.VALIDATOR_CHANGED
    if seen.verdict is ReceiptVerdict.FAIL:
        return None  # proven corruption does not heal
    if seen.verdict is ReceiptVerdict.INCONCLUSIVE:
        return None if seen.settled else Why.INCONCLUSIVE
    age = at - seen.finished_at
    for_the_gate = is_newest_pass and level in _RENEWED[policy.gate.level]
    if for_the_gate and age >= _lead(policy.gate.receipt_max_age):
        return Why.GATE_RECEIPT_AGES
    if level is Level.CHECKSUM and age >= reread:
        return Why.REREAD
    return None


def _lead(greatest_age: timedelta) -> timedelta:
    return greatest_age * LEAD.numerator / LEAD.denominator
