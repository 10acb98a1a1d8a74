"""What a stage keeps, why, and what may leave: one decision over its whole history.

Kept is the union of
  - what the roles of the policy select,
  - the newest committed checkpoint, whatever its receipts say,
  - what a hold, a reader or an active generation refers to,
  - the floor: the newest present copy with a passing receipt,
  - what one of these was resumed from (one step: a run can go back to where its writer began),
  - every manifest that a kept one depends on, however far, and what other stages depend on.
While the project stands above soft, what is committed meanwhile gets no role that keeps more than
the newest, the best and the anchor; it gets that role once the project stands open again.
If no copy has a passing receipt, everything stays. Guards live here and not in a caller: a policy
without a role cannot be built, and no decision leaves a stage without its floor.

What may leave is only a candidate: `rules.gate` decides over each, at the moment of each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property

from lastgood.rules.decision import (
    DecisionDigest,
    Leaving,
    Reason,
    ReasonKind,
    Referrers,
    StageDecision,
    StageFacts,
)
from lastgood.rules.names import ManifestDigest
from lastgood.rules.policy import ANCHOR, Policy, Role
from lastgood.rules.retention_rules import (
    Best,
    Candidate,
    Every,
    History,
    Level,
    Newest,
    Position,
    ReceiptVerdict,
    Steps,
)

__all__ = [
    "Best",
    "Candidate",
    "DecisionDigest",
    "Every",
    "Leaving",
    "Level",
    "Newest",
    "Position",
    "Reason",
    "ReasonKind",
    "ReceiptVerdict",
    "StageDecision",
    "StageFacts",
    "Steps",
    "decide",
]


def decide(
    history: History, policy: Policy, at: datetime, facts: StageFacts | None = None
) -> StageDecision:
    """Decide over all checkpoints of one stage as of `at` (aware).

    `history` is in ascending (generation, sequence); any other order is refused with ValueError.
    """
    _check_order(history)
    return _Deciding(history, policy, at, facts or StageFacts()).decision()


def _check_order(history: History) -> None:
    previous: Position = (0, -1)
    for candidate in history:
        if candidate.position <= previous:
            raise ValueError(f"history is not in order: {candidate.position} follows {previous}")
        previous = candidate.position


class _Deciding:
    """One decision in the making: reasons collect by checkpoint."""

    def __init__(self, history: History, policy: Policy, at: datetime, facts: StageFacts) -> None:
        self._history = history
        self._policy = policy
        self._at = at
        self._facts = facts
        self._existing = {item.position: item for item in history if item.exists}
        self._reasons: dict[Position, list[Reason]] = {}
        self._aged: dict[Position, Role] = {}
        self._anchor: Position | None = None

    def decision(self) -> StageDecision:
        floor = None
        if not self._facts.retired:
            self._keep_by_roles()
            self._keep_newest()
            floor = self._keep_floor()
        self._keep_referred(ReasonKind.HOLD, self._facts.holds, "held by")
        self._keep_referred(ReasonKind.READER, self._facts.readers, "read by")
        self._keep_referred(ReasonKind.ACTIVE, self._facts.active, "referred to by active")
        self._keep_lineage()
        self._keep_dependencies()
        kept = {
            position: tuple(sorted(set(self._reasons[position]), key=lambda reason: reason.order))
            for position in sorted(self._reasons)
        }
        leaving = {
            position: self._leaving(candidate)
            for position, candidate in self._existing.items()
            if position not in kept
        }
        return StageDecision(kept, leaving, floor, self._anchor)

    def _keep(self, position: Position, kind: ReasonKind, name: str, text: str) -> None:
        if position in self._existing:
            self._reasons.setdefault(position, []).append(Reason(kind, name, text))

    def _keep_by_roles(self) -> None:
        for role in self._policy.roles:
            kept = self._kept_by(role)
            for position, text in kept.items():
                self._keep(position, ReasonKind.ROLE, role.name, text)
            if role.name == ANCHOR:
                proven = (position for position in kept if self._existing[position].proven)
                self._anchor = max(proven, default=None)

    def _kept_by(self, role: Role) -> Mapping[Position, str]:
        history = self._open_to(role)
        if not isinstance(role.rule, Every):
            return role.rule.keeps(history, self._at)
        kept, aged = role.rule.split(history, self._at)
        for candidate in aged:
            before = self._aged.get(candidate.position)
            if before is None or _span(before) < _span(role):
                self._aged[candidate.position] = role
        return {candidate.position: role.rule.reason for candidate in kept}

    def _open_to(self, role: Role) -> History:
        """What a role may choose from. Above soft no further checkpoint gets a role that only keeps
        more of them, where the policy has an anchor: those of the newest and of the best replace
        what they had, and the anchor is what the stage is to be kept by."""
        since = self._facts.pressed_since
        is_extra = isinstance(role.rule, Every | Steps) and role.name != ANCHOR
        if since is None or not is_extra or self._policy.role(ANCHOR) is None:
            return self._history
        return [candidate for candidate in self._history if candidate.committed_at <= since]

    def _keep_newest(self) -> None:
        if self._existing:
            self._keep(max(self._existing), ReasonKind.NEWEST, "newest", "the newest committed")

    def _keep_floor(self) -> Position | None:
        for candidate in reversed(self._history):
            if candidate.proven:
                text = "the newest present copy with a passing receipt"
                self._keep(candidate.position, ReasonKind.FLOOR, "floor", text)
                return candidate.position
        for position in self._existing:
            text = "no present copy of the stage has a passing receipt"
            self._keep(position, ReasonKind.FLOOR, "unproven", text)
        return None

    def _keep_referred(self, kind: ReasonKind, referrers: Referrers, words: str) -> None:
        for position, names in referrers.items():
            for name in names:
                self._keep(position, kind, name, f"{words} {name}")

    def _keep_lineage(self) -> None:
        if not self._policy.lineage:
            return
        origins: dict[Position, Position] = {}
        for position in self._reasons:
            origin = self._facts.resumed_from.get(position)
            if origin is not None:
                origins[origin] = max(position, origins.get(origin, position))
        for origin, position in origins.items():
            text = f"{_text(position)} was resumed from it"
            self._keep(origin, ReasonKind.LINEAGE, _text(position), text)

    def _keep_dependencies(self) -> None:
        """Keep all that a kept one needs, however far, also through what is already gone."""
        if not (self._facts.depends_on or self._facts.needed_elsewhere):
            return
        positions = {item.manifest: item.position for item in self._history}

        def keep(manifest: ManifestDigest, dependent: str) -> None:
            if manifest in positions:
                text = f"{dependent} depends on it"
                self._keep(positions[manifest], ReasonKind.DEPENDENCY, dependent, text)

        walk = [item.manifest for item in self._history if item.position in self._reasons]
        for manifest, dependents in self._facts.needed_elsewhere.items():
            walk.append(manifest)
            for dependent in dependents:
                keep(manifest, dependent)
        seen = set(walk)
        while walk:
            manifest = walk.pop()
            dependent = _text(positions[manifest]) if manifest in positions else manifest
            for needed in self._facts.depends_on.get(manifest, ()):
                keep(needed, dependent)
                if needed not in seen:
                    seen.add(needed)
                    walk.append(needed)

    def _leaving(self, candidate: Candidate) -> Leaving:
        position = candidate.position
        if self._facts.retired:
            return Leaving(None, "the stage has reached the end of its life")
        if not candidate.whole:
            return Leaving(None, "what it depends on failed: it takes no slot of a role")
        if not candidate.sound:
            return Leaving(None, "a receipt failed: it takes no slot of a role")
        if position in self._aged:
            role = self._aged[position]
            return Leaving(role, f"its time as {role.name} is over")
        return self._out_of_newest or self._out_of_best(candidate)

    @cached_property
    def _out_of_newest(self) -> Leaving | None:
        """From the largest role of the newest: every checkpoint had it once."""
        newest = (role for role in self._policy.roles if isinstance(role.rule, Newest))
        role = max(newest, key=lambda role: (role.rule.most() or 0, role.name), default=None)
        return None if role is None else _displaced(role)

    def _out_of_best(self, candidate: Candidate) -> Leaving:
        for role in self._policy.roles:
            if isinstance(role.rule, Best) and role.rule.metric in candidate.metrics:
                return _displaced(role)
        return Leaving(None, "no role selects it")


def _displaced(role: Role) -> Leaving:
    return Leaving(role, f"others took the slots of {role.name}")


def _span(role: Role) -> tuple[timedelta, str]:
    within = role.rule.within if isinstance(role.rule, Every) else None
    return within or timedelta.max, role.name


def _text(position: Position) -> str:
    return f"{position[0]}.{position[1]}"
