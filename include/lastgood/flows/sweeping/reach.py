"""Prove, before collecting under pressure, what collection can give back: see `rules.reach`.

Every candidate is judged by the gate as the sweep judges it, and nothing is recorded of a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lastgood.catalog import history
from lastgood.catalog.capacity import reach_proofs
from lastgood.catalog.capacity.reach_proofs import ProofRow
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.retention import stage_history
from lastgood.flows import graces
from lastgood.flows.capacity.pressure import StoreStanding
from lastgood.flows.policies import policy_of
from lastgood.flows.retention.gate import Lookout, judge_copy
from lastgood.flows.sweeping.plan import Plan
from lastgood.rules import retention
from lastgood.rules.capacity import Measure
from lastgood.rules.decision import Reason, ReasonKind
from lastgood.rules.gate import Verdict
from lastgood.rules.policy import Policy
from lastgood.rules.reach import (
    UNMARKED,
    UNPROVEN,
    Held,
    Help,
    Proof,
    Returning,
    by_sweep,
    helps,
    merged,
    summed,
)
from lastgood.stores.open import Stores

JUDGED_COPIES = 10_000
"""A proof judges no more copies than one run of a sweep under pressure takes."""
APPROVAL = "approval"
_NOT_JUDGED = "not judged yet"
_NEEDED = {"no_dependent"}
_REFERRED = {"no_hold", "no_reader", "no_active_generation", "no_dependent", "no_lock"}


def prove(catalog: Catalog, stores: Stores, planned: Plan, one: StoreStanding) -> ProofRow:
    """Judge what a plan names in one store, and record what comes of it."""
    with catalog.transaction() as tx:
        now = history.project_now(tx, one.project)
    judged = _Judging(catalog, stores, planned, one.store, now)
    returning, blocked = judged.candidates()
    kept = merged(judged.kept())
    with catalog.transaction() as tx:
        saves = reach_proofs.next_saves(tx, one.store)
        others = reach_proofs.returning_to_others(tx, one.project, one.store)
        own = _proof(one.standing.own, now, saves.get(one.project, 0), returning, blocked, kept)
        whole = _proof(
            one.standing.whole,
            now,
            sum(saves.values()),
            [*returning, *(Returning(size, at) for size, at in others)],
            blocked,
            kept,
        )
        found = judged.helped(max(whole, own, key=_lateness), blocked, kept)
        return reach_proofs.record(tx, one.project, one.store, planned.mark_id, found)


def _lateness(proof: Proof) -> tuple[bool, datetime, int, int]:
    """Where both reach at once, the measure that makes the pressure is the one to tell of."""
    return not proof.reaches, proof.by or proof.at, proof.needed_bytes, proof.over_soft_bytes


def _proof(
    measure: Measure,
    now: datetime,
    expected_bytes: int,
    returning: Sequence[Returning],
    blocked: Sequence[Held],
    kept: Sequence[Held],
) -> Proof:
    return Proof(
        at=now,
        claimed_bytes=measure.use.claimed_bytes,
        soft_bytes=measure.limits.soft_bytes,
        hard_bytes=measure.limits.hard_bytes,
        expected_bytes=expected_bytes,
        needed_bytes=measure.over_hard(expected_bytes),
        over_soft_bytes=measure.over_soft(),
        returning=by_sweep(returning, now),
        blocked=summed(blocked),
        kept=summed(kept),
        helps=(),
    )


@dataclass(frozen=True, slots=True)
class _Needed:
    """A copy that nothing but what depends on it keeps, and when it would come back."""

    copy: Copy
    back: Returning
    held: Held


@dataclass(frozen=True, slots=True)
class _Judging:
    """The verdicts over one store's copies, as of one instant."""

    catalog: Catalog
    stores: Stores
    planned: Plan
    store: str
    now: datetime

    def candidates(self) -> tuple[list[Returning], list[Held]]:
        """What the gate lets go, and what it does not."""
        may = {copy.copy_id for copy in (*self.planned.may_delete, *self.planned.may_quarantine)}
        waits = {copy.copy_id for copy in (*self.planned.delete, *self.planned.quarantine)} - may
        lookout = Lookout(self.catalog, self.stores, self.planned.project)
        with self.catalog.transaction() as tx:
            grace = graces.of_project(tx, self.planned.project)
        returning: dict[int, Returning] = {}
        needed: list[_Needed] = []
        blocked: list[Held] = []
        for number, copy in enumerate(self._in_question()):
            if number == JUDGED_COPIES:
                blocked.append(_held(copy, {_NOT_JUDGED}))
                continue
            evidence = lookout.evidence_for(copy)
            with self.catalog.transaction() as tx:
                judged = judge_copy(tx, copy.project, copy.copy_id, self.planned.mark_id, evidence)
                policy = policy_of(tx, copy.project)
            if judged.copy.state in copies.GONE:
                continue  # another sweep is at it
            rules = policy.for_stage(copy.checkpoint.workload, copy.checkpoint.stage)
            hidden = judged.copy.state is State.QUARANTINED
            since = judged.copy.state_at if hidden else self.now
            back = Returning(copy.stored_bytes, grace.ends(judged.copy, since))
            if not judged.verdict.allowed:
                held = _blocked(copy, judged.verdict, rules)
                if held.by == _NEEDED and copy.copy_id not in waits:
                    needed.append(_Needed(copy, back, held))
                else:
                    blocked.append(held)
            elif copy.copy_id in waits:
                blocked.append(_held(copy, {APPROVAL}))
            else:
                returning[copy.copy_id] = back
        blocked += self._going_after(needed, returning)
        return list(returning.values()), blocked

    def _going_after(
        self, needed: Sequence[_Needed], returning: dict[int, Returning]
    ) -> Iterator[Held]:
        """What only dependents keep goes in the run that they go in, after them: it is added to
        `returning`. Answers what they keep longer."""
        with self.catalog.transaction() as tx:
            dependents = reach_proofs.dependents(
                tx, self.planned.project, [one.copy.checkpoint_id for one in needed]
            )
        # Whatever depends on another was committed after it.
        for one in sorted(needed, key=lambda one: -one.copy.checkpoint_id):
            before = dependents.get(one.copy.checkpoint_id, set())
            if before <= returning.keys():
                at = max([one.back.at, *(returning[copy_id].at for copy_id in before)])
                returning[one.copy.copy_id] = replace(one.back, at=at)
            else:
                yield one.held

    def _in_question(self) -> list[Copy]:
        """The copies in the store that leave or are to leave, those in quarantine first."""
        back = {copy.copy_id for copy in self.planned.take_back}
        with self.catalog.transaction() as tx:
            hidden = copies.in_state(tx, self.planned.project, State.QUARANTINED)
        leaving = [copy for copy in hidden if copy.copy_id not in back]
        found = [*leaving, *self.planned.quarantine]
        return [copy for copy in found if copy.store == self.store]

    def kept(self) -> Iterator[Held]:
        """What retention keeps in the store, with its reasons, and what it gives up that no mark
        has named yet."""
        project = self.planned.project
        leaving = {copy.copy_id for copy in self._in_question()}
        with self.catalog.transaction() as tx:
            here = reach_proofs.copy_ids(tx, project, self.store) - leaving
            policy = policy_of(tx, project)
            for stage in stage_history.of_project(tx, project, self.now):
                rules = policy.for_stage(stage.stage.workload, stage.stage.stage)
                decision = retention.decide(stage.history, rules, self.now, stage.facts)
                for position, existing in stage.copies.items():
                    reasons = decision.kept.get(position)
                    for copy_id, size in existing:
                        if copy_id not in here:
                            continue
                        if reasons is None:
                            yield Held(str(stage.stage), size, frozenset({UNMARKED}))
                        else:
                            yield _kept(str(stage.stage), size, reasons, rules)

    def helped(self, proof: Proof, blocked: Sequence[Held], kept: Sequence[Held]) -> Proof:
        """The proof with what would help, an approval first."""
        waiting = sum(each.size_bytes for each in blocked if each.by == {APPROVAL})
        approve = [Help(f"lastgood sweep {self.planned.project} --approve", waiting)]
        return replace(proof, helps=(*(approve if waiting else ()), *helps(blocked, kept)))


def _blocked(copy: Copy, verdict: Verdict, rules: Policy) -> Held:
    against = {*verdict.refusals, *verdict.unknowns}
    told = dict(verdict.facts.items())
    who = [told[name].evidence for name in sorted(against & _REFERRED)]
    held = _held(copy, against)
    return replace(held, who="; ".join(who), level=str(rules.gate.level))


def _held(copy: Copy, by: Iterable[str]) -> Held:
    return Held(str(copy.checkpoint.stage_id), copy.stored_bytes, frozenset(by))


def _kept(stage: str, size_bytes: int, reasons: Sequence[Reason], rules: Policy) -> Held:
    who = [reason.text for reason in reasons if reason.kind in (ReasonKind.HOLD, ReasonKind.READER)]
    by = frozenset(map(_word, reasons))
    return Held(stage, size_bytes, by, "; ".join(who), str(rules.gate.level))


def _word(reason: Reason) -> str:
    if reason.kind is ReasonKind.ROLE:
        return f"role {reason.name}"
    if reason.kind is ReasonKind.FLOOR and reason.name == UNPROVEN:
        return UNPROVEN
    return reason.kind.value
