"""The facts of the gate about one copy, gathered in the transaction that records what follows.

The caller holds the project's, the stage's and the copy's locks, so that nothing can change between
these facts and its decision. What only a store can tell was looked up before the locks were taken:
it is evidence with an age, and too old or not looked up means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lastgood.catalog import clock, history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import copies, references
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.keeping import holds, retirements
from lastgood.catalog.retention import marks, stage_history
from lastgood.catalog.retention.marks import MarkCandidate
from lastgood.catalog.retention.stage_history import StageHistory
from lastgood.catalog.settings import policies, policy_versions
from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.rules import retention
from lastgood.rules.decision import StageDecision
from lastgood.rules.gate import Fact, GateFacts, prerequisite
from lastgood.rules.policy import Policy, Prerequisite, Role
from lastgood.rules.quantities import instant_text
from lastgood.rules.retention_rules import Candidate

EVIDENCE_MAX_AGE = timedelta(minutes=5)
NOT_LOOKED_UP = Fact.of(None, "not looked up")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a store showed of a copy: its marker and its manifest. `there` None: it did not tell."""

    there: bool | None
    what: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LockSighting:
    """Whether the store's locks keep nothing of a copy, as it was known at `at`."""

    unlocked: Fact
    at: datetime


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was looked up before the locks were taken, by the catalog's clock at `at`."""

    at: datetime
    sightings: Mapping[int, Sighting] = field(default_factory=dict)  # by copy id
    locks: Mapping[int, LockSighting] = field(default_factory=dict)  # by copy id
    catalog_current: Fact = NOT_LOOKED_UP
    clock_sane: Fact = NOT_LOOKED_UP

    def seen(self, copy_id: int, now: datetime) -> Fact:
        """Whether the copy is there, as of not long ago."""
        sighting = self.sightings.get(copy_id)
        if sighting is None:
            return NOT_LOOKED_UP
        return _fresh(Fact.of(sighting.there, sighting.what), sighting.at, now)

    def unlocked(self, copy_id: int, now: datetime) -> Fact:
        """Whether no lock of its store keeps the copy, as of not long ago."""
        sighting = self.locks.get(copy_id)
        return NOT_LOOKED_UP if sighting is None else _fresh(sighting.unlocked, sighting.at, now)


def witnesses(tx: Transaction, copy: Copy, policy: Policy) -> list[Copy]:
    """The copies that may have to speak for this one, to be looked up in their stores before: newer
    ones that passed, and the stage's anchor; none where the stage has no copy any more, which
    another sweep may have seen to. `policy` has the rules of its stage."""
    now = history.project_now(tx, copy.project)
    stage = stage_history.of_stage(tx, copy.project, copy.stage_id, now)
    if stage is None:
        return []
    decision = retention.decide(stage.history, policy, now, stage.facts)
    wanted = {
        item.position
        for item in stage.history
        if item.position > copy.checkpoint.position and _passes(item, policy)
    }
    newest = sorted(wanted, reverse=True)[:2]
    anchor = [decision.anchor] if decision.anchor is not None else []
    ids = [stage.checkpoint_ids[position] for position in {*newest, *anchor}]
    return [
        each for each in copies.of_checkpoints(tx, copy.project, ids) if each.state is State.PRESENT
    ]


def gather(tx: Transaction, copy: Copy, mark_id: int | None, evidence: Evidence) -> GateFacts:
    """Every fact about a locked copy, as a candidate of this mark (None: of no mark).

    They are as of the project's now. Where its history lies ahead of the clock, what keeps a copy
    for a time keeps it until that time is over by the clock, too.
    """
    clock_now = history.now(tx)
    now = history.project_now(tx, copy.project)
    version = policy_versions.current(tx, copy.project)
    policy = policies.parsed(version).for_stage(copy.checkpoint.workload, copy.checkpoint.stage)
    stage = _not_retired_early(tx, copy, _stage(tx, copy, now), clock_now)
    decisions = [
        retention.decide(stage.history, policy, at, stage.facts)
        for at in dict.fromkeys((now, clock_now))
    ]
    marked, candidate = _marked(tx, copy, mark_id, policy, version, now)
    gathering = _Gathering(
        tx, copy, now, clock_now, policy, stage, decisions[0], decisions[-1], evidence
    )
    return gathering.facts(marked, candidate)


def _stage(tx: Transaction, copy: Copy, now: datetime) -> StageHistory:
    found = stage_history.of_stage(tx, copy.project, copy.stage_id, now)
    assert found is not None, f"copy {copy.copy_id} is locked and not gone, so its stage has one"
    return found


def _not_retired_early(
    tx: Transaction, copy: Copy, stage: StageHistory, clock_now: datetime
) -> StageHistory:
    """The grace of a retirement must be over by the clock, too."""
    if stage.retirement is None or retirements.in_effect(
        tx, copy.project, clock_now, copy.stage_id
    ):
        return stage
    return replace(stage, facts=replace(stage.facts, retired=False), retirement=None)


def _passes(item: Candidate, policy: Policy) -> bool:
    return item.present and not item.failed and item.passes(policy.gate.level)


def _fresh(fact: Fact, at: datetime, now: datetime) -> Fact:
    age = now - at
    if age > EVIDENCE_MAX_AGE or age < -EVIDENCE_MAX_AGE:
        return Fact.of(None, f"{fact.evidence}, but that was seen at {instant_text(at)}")
    return fact


def _marked(
    tx: Transaction,
    copy: Copy,
    mark_id: int | None,
    policy: Policy,
    version: PolicyVersion,
    now: datetime,
) -> tuple[Fact, MarkCandidate | None]:
    """The mark must be the newest live one, under the policy that is in force since, and not
    old."""
    if mark_id is None:
        return Fact.of(False, "no live mark names it"), None
    mark = marks.get(tx, copy.project, mark_id)
    newest = marks.newest(tx, copy.project)
    candidate = marks.candidate(tx, copy.project, mark_id, copy.copy_id)
    if mark.kind != "live":
        return Fact.of(False, f"mark {mark_id} is a {mark.kind} one"), candidate
    if newest is None or newest.mark_id != mark_id:
        return Fact.of(False, f"mark {mark_id} is not the newest live one"), candidate
    if mark.policy_digest != version.digest:
        return Fact.of(False, f"mark {mark_id} was made under another policy"), candidate
    if mark.at < (since := policy_versions.in_force_since(tx, version)):
        reason = f"its policy took force again at {instant_text(since)}, after mark {mark_id}"
        return Fact.of(False, reason), candidate
    if now - mark.at > policy.gate.mark_max_age:
        return Fact.of(
            False, f"mark {mark_id} is as of {instant_text(mark.at)}: too old"
        ), candidate
    if candidate is None:
        return Fact.of(False, f"mark {mark_id} keeps it"), None
    if copy.state is State.PRESENT and mark.at <= copy.state_at:
        return Fact.of(False, f"it was taken back after mark {mark_id}"), candidate
    evidence = f"mark {mark_id} as of {instant_text(mark.at)}: {', '.join(candidate.reasons)}"
    return Fact.of(True, evidence, mark=mark.digest, policy=version.digest), candidate


@dataclass(frozen=True, slots=True)
class _Gathering:
    tx: Transaction
    copy: Copy
    now: datetime  # the project's
    clock_now: datetime
    policy: Policy
    stage: StageHistory
    decision: StageDecision  # as of the project's now
    by_clock: StageDecision  # as of the clock; the same where history does not lie ahead of it
    evidence: Evidence

    def facts(self, marked: Fact, candidate: MarkCandidate | None) -> GateFacts:
        newer_passed, newer_present = self._newer()
        facts = GateFacts(
            newer_passed=newer_passed,
            newer_present=newer_present,
            no_hold=self._no_hold(),
            no_reader=_none_of("reader", references.readers(self.tx, self.copy)),
            no_active_generation=_none_of("referred to by", self._active()),
            no_dependent=_none_of("needed by", references.dependents(self.tx, self.copy)),
            no_lock=self.evidence.unlocked(self.copy.copy_id, self.clock_now),
            marked=marked,
            roles_released=self._roles_released(),
            prerequisite_met=self._prerequisite(candidate, newer_passed),
            floor_kept=self._floor_kept(),
            catalog_current=_fresh(self.evidence.catalog_current, self.evidence.at, self.clock_now),
            clock_sane=self._clock_sane(),
        )
        if self.stage.retirement is None:
            return facts
        # The end of the stage's life lifts what only protects its future; all else still holds.
        retirement = str(self.stage.retirement.retirement_id)
        ended = Fact.of(True, str(self.stage.retirement), retirement=retirement)
        return replace(
            facts,
            newer_passed=ended,
            newer_present=ended,
            prerequisite_met=ended,
            floor_kept=ended,
        )

    def _active(self) -> list[str]:
        """A retired stage's latest pointer keeps nothing, but any writer of it keeps everything."""
        found = references.active(self.tx, self.copy)
        if self.stage.retirement is None:
            return found
        writers = references.writers(self.tx, self.copy)
        return writers + [what for what in found if what != references.LATEST_POINTER]

    def _clock_sane(self) -> Fact:
        waiting = clock.unaccepted(self.tx)
        if waiting:
            return Fact.of(False, f"jump {waiting[0].jump_id} waits for an operator's word")
        return _fresh(self.evidence.clock_sane, self.evidence.at, self.clock_now)

    def _newer(self) -> tuple[Fact, Fact]:
        """Of the newer checkpoints with a pass that is fresh enough, the newest one seen in
        its store speaks, else the newest."""
        level = self.policy.gate.level
        newer = {
            copy_id: item
            for item in reversed(self.stage.history)
            if item.position > self.copy.checkpoint.position and _passes(item, self.policy)
            for copy_id, _ in self.stage.copies[item.position]
        }
        since = self.now - self.policy.gate.receipt_max_age
        told = references.passes(self.tx, self.copy.project, list(newer), level.at_least, since)
        receipts = {receipt.copy_id: receipt for receipt in told}
        passed = [
            (item, receipts[copy_id]) for copy_id, item in newer.items() if copy_id in receipts
        ]
        if not passed:
            reason = f"no newer present checkpoint has a fresh pass at level {level}"
            return Fact.of(False, reason), Fact.of(False, reason)
        sightings = [self.evidence.seen(receipt.copy_id, self.clock_now) for _, receipt in passed]
        best = next((at for at, fact in enumerate(sightings) if fact.truth == "true"), 0)
        item, receipt = passed[best]
        name = f"{item.generation}.{item.sequence}"
        evidence = f"receipt {receipt.receipt} of {name}: {receipt.level} pass at"
        digests = {"receipt": receipt.receipt, "manifest": receipt.manifest}
        seen = sightings[best]
        return (
            Fact.of(True, f"{evidence} {instant_text(receipt.recorded_at)}", **digests),
            Fact(seen.truth, f"{name}: {seen.evidence}", {"manifest": receipt.manifest}),
        )

    def _no_hold(self) -> Fact:
        standing = holds.on_checkpoint(self.tx, self.copy.project, self.copy.checkpoint_id)
        return _none_of(
            "hold", [f"{hold.hold_id} ({hold.kind}, {hold.owner})" for hold in standing]
        )

    def _roles_released(self) -> Fact:
        position = self.copy.checkpoint.position
        reasons = self.decision.kept.get(position) or self.by_clock.kept.get(position)
        if reasons is not None:
            return Fact.of(False, "; ".join(reason.text for reason in reasons))
        leaving = self.decision.candidates.get(position)
        return Fact.of(None if leaving is None else True, leaving.text if leaving else "unknown")

    def _floor_kept(self) -> Fact:
        for item in reversed(self.stage.history):
            if item.proven and item.position != self.copy.checkpoint.position:
                return Fact.of(True, f"{item.generation}.{item.sequence} is present and passed")
        return Fact.of(False, "no other present copy of the stage has a passing receipt")

    def _prerequisite(self, candidate: MarkCandidate | None, newer_passed: Fact) -> Fact:
        """Of the role that the mark saw it leave, and of the one that it leaves now: both."""
        leaving = self.decision.candidates.get(self.copy.checkpoint.position)
        asked: list[Role] = [leaving.role] if leaving and leaving.role else []
        if candidate is not None and candidate.leaves != "none":
            marked = self.policy.role(candidate.leaves)
            if marked is None:
                return Fact.of(None, f"the policy in force has no role {candidate.leaves}")
            asked.append(marked)
        facts = [
            prerequisite(
                role.leaves_when,
                newer_passed=newer_passed,
                anchor_verified=self._anchor_verified(),
                age_met=self._age_met(role),
            )
            for role in asked
        ]
        unmet = [fact for fact in facts if fact.truth != "true"]
        if not facts:
            return prerequisite(
                Prerequisite.NONE,
                newer_passed=newer_passed,
                anchor_verified=NOT_LOOKED_UP,
                age_met=NOT_LOOKED_UP,
            )
        return min(unmet or facts, key=lambda fact: fact.truth.value)

    def _anchor_verified(self) -> Fact:
        anchor = self.decision.anchor
        if anchor is None:
            return Fact.of(False, "the stage has no verified anchor")
        seen = [
            self.evidence.seen(copy_id, self.clock_now) for copy_id, _ in self.stage.copies[anchor]
        ]
        best = next((fact for fact in seen if fact.truth == "true"), seen[0])
        return Fact(best.truth, f"anchor {anchor[0]}.{anchor[1]}: {best.evidence}")

    def _age_met(self, role: Role) -> Fact:
        if role.within is None:
            return Fact.of(None, f"role {role.name} has no age")
        age = timedelta(seconds=int((self.clock_now - self.copy.committed_at).total_seconds()))
        met = role.age_met(self.copy.committed_at, self.clock_now)
        return Fact.of(met, f"committed {age} ago; {role.name} keeps for {role.within}")


def _none_of(what: str, found: list[str]) -> Fact:
    return Fact.of(not found, f"{what} {', '.join(found)}" if found else "none")
