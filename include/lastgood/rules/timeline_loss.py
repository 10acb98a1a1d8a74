"""What a stage can still go back to under a policy, what overrides the policy's roles there, and
what a first sweep would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from lastgood.rules import retention
from lastgood.rules.decision import ReasonKind, StageDecision
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Candidate, Position
from lastgood.rules.timeline_events import StageState


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a stage can go back: over the kept checkpoints that are sound.

    `largest_gap` is the longest time between two of them that follow each other; `old_enough` are
    those older than an error may stay unnoticed.
    """

    kept: int
    kept_bytes: int
    restorable: int
    oldest: datetime | None
    largest_gap: timedelta
    old_enough: int

    def to_json(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "restorable": self.restorable,
            "oldest": self.oldest.isoformat() if self.oldest else None,
            "largest_gap_seconds": self.largest_gap.total_seconds(),
            "older_than_detection": self.old_enough,
        }


def reach(state: StageState, kept: set[Position], at: datetime, detection: timedelta) -> Reach:
    """How far a stage can go back at an instant, where these are kept."""
    times = [one.committed_at for one in restorable(state.history, kept)]
    return Reach(
        kept=len(kept),
        kept_bytes=sum(state.bytes_of[position] for position in kept),
        restorable=len(times),
        oldest=min(times, default=None),
        largest_gap=max((late - early for early, late in pairwise(sorted(times))), default=_NONE),
        old_enough=sum(time <= at - detection for time in times),
    )


_NONE = timedelta()


def restorable(history: Sequence[Candidate], kept: set[Position]) -> list[Candidate]:
    """Of the kept, those that a restore could get: what is kept in quarantine comes back."""
    return [one for one in history if one.position in kept and one.qualifies]


@dataclass(frozen=True, slots=True)
class Ending:
    """A stage at the last instant under the candidate. `overriding` counts, by kind, the reasons
    that keep checkpoints which no role selects; `leaving` names the role that each one leaves which
    a first sweep would take to quarantine; `back` it would take out of it."""

    overriding: Counter[str]
    holds: frozenset[str]
    leaving: dict[Position, str]
    back: tuple[Position, ...]
    decision: StageDecision


def ending(state: StageState, candidate: Policy, at: datetime) -> Ending:
    """Decide the stage whole under the candidate."""
    decision = retention.decide(state.history, candidate, at, state.facts())
    overriding: Counter[str] = Counter()
    holds: set[str] = set()
    for reasons in decision.kept.values():
        if not any(reason.kind is ReasonKind.ROLE for reason in reasons):
            overriding.update({reason.kind.value for reason in reasons})
            holds.update(one.name for one in reasons if one.kind is ReasonKind.HOLD)
    by_position = {one.position: one for one in state.history}
    return Ending(
        overriding=overriding,
        holds=frozenset(holds),
        leaving={
            position: leaving.role_name
            for position, leaving in decision.candidates.items()
            if by_position[position].present
        },
        back=tuple(at for at in decision.kept if by_position[at].quarantined),
        decision=decision,
    )
