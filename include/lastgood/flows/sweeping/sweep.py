"""Sweep: candidates go through the gate to quarantine, and after the grace period to deletion.

A plan is a value: printed, it is the dry run. What it names is judged again, one copy at a time,
inside the transaction that records the step; what a crash left undone is finished first.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies, copy_transitions, references
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.retention.gate_facts import Evidence
from lastgood.catalog.settings import policy_versions
from lastgood.catalog.sweeping import tombstones
from lastgood.faults import point
from lastgood.flows import control_keys, quarantine, sane_clock
from lastgood.flows.capacity import pressure
from lastgood.flows.capacity.pressure import StoreStanding
from lastgood.flows.jobs import lapses
from lastgood.flows.retention import lock_looks
from lastgood.flows.retention.gate import Judged, Lookout, judge_copy
from lastgood.flows.sweeping import deletion, reach
from lastgood.flows.sweeping.marking_first import DryRun, dry_run, fresh_plan
from lastgood.flows.sweeping.order import Taking, Turn, turn
from lastgood.flows.sweeping.plan import Plan, plan, unfinished
from lastgood.rules.gate import Truth, Verdict
from lastgood.rules.quantities import instant_text
from lastgood.stores.base import ForeignEntry, ObjectLocked, StoreError
from lastgood.stores.open import Stores

__all__ = ["DryRun", "Plan", "dry_run", "execute", "judge_copy", "plan", "run"]


_log = logging.getLogger(__name__)
_HIDDEN = (State.QUARANTINED, *copies.GONE)


@dataclass(slots=True)
class _Told:
    """The summary in the making."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, str] = field(default_factory=dict)
    alerts: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    freed_bytes: int = 0
    left: int = 0  # copies for a later run

    def stays(self, copy: Copy, verdict: Verdict) -> None:
        self.counts["kept"] += 1
        self.counts["locked"] += "no_lock" in verdict.refusals
        self.kept[str(copy.checkpoint)] = str(verdict)
        if verdict.alert:
            self.alerts[str(copy.checkpoint)] = str(verdict)

    def done(self, step: str) -> int:
        """How many copies got through a step, by this run or by another meanwhile: what those free
        comes back as well."""
        return self.counts[step] + self.counts[f"{step} meanwhile"]

    def to_json(self, plan: Plan) -> dict[str, Any]:
        steps = ("quarantined", "taken_back", "deleted", "kept", "locked", "carried_out")
        return {
            "project": plan.project,
            "mark": plan.mark_id,
            **{step: self.counts[step] for step in steps},
            "freed_bytes": self.freed_bytes,
            "left": self.left,
            "reasons": self.kept,
            "alerts": self.alerts,
            "failed": self.failed,
            "stop": plan.waits,
        }


def run(
    catalog: Catalog, stores: Stores, project: str, actor: str, *, mark_id: int | None = None
) -> dict[str, Any]:
    """Sweep a project under its newest live mark; answers what was done, by counts and reasons. A
    mark that is named has to be that one.

    Refuses whole (and changes nothing) with CatalogBehind, ForeignCatalog or ClockJump. Under a
    mark that cannot be swept only deletions under way are finished, then MarkNotSweepable is
    raised. Where the plan must be approved, or a store failed, everything else is done and the
    summary says so (`stop`, `failed`). What waits, and what a batch or a store that failed leaves,
    is for a later run (`left`). Where the project stands above soft in a store, it is marked anew
    (unless that would say the same) and what can be reached is proven and recorded first.
    """
    sane_clock.require(catalog)
    control_keys.guard(catalog, stores, project)
    lapses.observe(catalog, project)
    standings = pressure.observe(catalog, project, cause="a sweep looked", actor=actor)
    try:
        if mark_id is None and any(one.pressed for one in standings):
            planned = fresh_plan(catalog, project)
        else:
            planned = plan(catalog, project, mark_id)
    except errors.MarkNotSweepable:
        execute(catalog, stores, unfinished(catalog, project), actor)
        raise
    standings = _proven(catalog, stores, planned, standings, actor)
    told = execute(catalog, stores, planned, actor, turn(catalog, planned, standings))
    pressure.observe(catalog, project, cause=f"a sweep under mark {planned.mark_id}", actor=actor)
    pressed = {one.store: one.standing.state.value for one in standings if one.pressed}
    return {**told, "pressure": pressed}


def _proven(
    catalog: Catalog,
    stores: Stores,
    planned: Plan,
    standings: Sequence[StoreStanding],
    actor: str,
) -> Sequence[StoreStanding]:
    """Prove what collection reaches in each store under pressure; answers where the project stands
    then. Without a mark there is nothing to judge."""
    pressed = [one for one in standings if one.pressed]
    if not pressed or planned.mark_id is None:
        return standings
    for one in pressed:
        proof = reach.prove(catalog, stores, planned, one).proof
        if not proof.reaches:
            _log.warning("%s in %s cannot be collected to: %s", one.project, one.store, proof)
    return pressure.observe(catalog, planned.project, cause="a proof of reach", actor=actor)


def execute(
    catalog: Catalog, stores: Stores, plan: Plan, actor: str, run_of: Turn | None = None
) -> dict[str, Any]:
    """Do what a plan names, as far as the gate allows, in the order and size of `run_of` (None: as
    without pressure). Deletions under way are finished, and copies taken back, even where the rest
    waits for approval (see `flows.approval`)."""
    told = _Told()
    run_of = run_of or turn(catalog, plan, ())
    lookout = Lookout(catalog, stores, plan.project)
    followed = quarantine.follow(catalog, stores, plan.project)
    told.counts["carried_out"] += len(followed.carried_out)
    told.failed |= {f"copy {copy_id}": why for copy_id, why in followed.failed.items()}
    sweeping = _Sweeping(catalog, stores, plan, actor, lookout, told)
    sweeping.each(plan.finish, sweeping.finish)
    sweeping.each(plan.take_back, sweeping.take_back)
    deleting = Taking(dict(run_of.to_delete), run_of.batch)
    hiding = Taking(dict(run_of.to_hide), run_of.batch)
    deletes = deleting.each(run_of.delete, lambda: told.done("deleted"))
    sweeping.each(deletes, sweeping.delete)
    hides = hiding.each(run_of.quarantine, lambda: told.done("quarantined"))
    sweeping.each(hides, sweeping.quarantine)
    told.left += deleting.left + hiding.left + plan.waiting
    return told.to_json(plan)


@dataclass(frozen=True, slots=True)
class _Sweeping:
    catalog: Catalog
    stores: Stores
    plan: Plan
    actor: str
    lookout: Lookout
    told: _Told
    broken: set[str] = field(default_factory=set)  # stores that failed or refused in this run

    def each(self, found: Iterable[Copy], step: Callable[[Copy], None]) -> None:
        """Take one copy after the other; a store that fails is left alone until the next run, and
        so is a copy that another process is at, or whose folder holds what no store makes."""
        for copy in found:
            if copy.store in self.broken:
                self.told.left += 1
                continue
            try:
                step(copy)
            except (StoreError, errors.Unavailable) as error:
                if not isinstance(error, errors.PrefixBusy | ForeignEntry | ObjectLocked):
                    self.broken.add(copy.store)
                self.told.failed[f"{copy.checkpoint} in {copy.store}"] = str(error)

    def quarantine(self, copy: Copy) -> None:
        evidence = self.lookout.evidence_for(copy)
        with self.catalog.transaction() as tx:
            judged = self._judge(tx, copy, evidence)
            if self._is_changed(copy, judged.copy, "quarantined", _HIDDEN):
                return
            if not judged.verdict.allowed:
                self.told.stays(judged.copy, judged.verdict)
                return
            copy_transitions.transition(
                tx,
                judged.copy,
                State.QUARANTINED,
                actor=self.actor,
                reason=f"candidate of mark {judged.mark_id}",
                mark_id=judged.mark_id,
                facts=judged.verdict.to_json(),
            )
        point("sweep.after-quarantine-transaction")
        self.told.counts["quarantined"] += 1
        quarantine.carry_out(self.catalog, self.stores, copy)
        point("sweep.after-quarantine")

    def take_back(self, copy: Copy) -> None:
        """The newest mark keeps it: back it comes, and no later mark finds it half gone."""
        evidence = self.lookout.evidence_for(copy)
        with self.catalog.transaction() as tx:
            judged = self._judge(tx, copy, evidence)
            undone = self._undo(tx, judged)
        quarantine.finish_undo(self.catalog, self.stores, copy.project, undone)

    def delete(self, copy: Copy) -> None:
        evidence = self.lookout.evidence_for(copy)
        undone: list[int] = []
        with self.catalog.transaction() as tx:
            judged = self._judge(tx, copy, evidence)
            if self._is_changed(copy, judged.copy, "deleted", copies.GONE):
                return
            if judged.verdict.allowed:
                self._intend(tx, judged)
            else:
                self.told.stays(judged.copy, judged.verdict)
                undone = self._undo(tx, judged)
        if judged.verdict.allowed:
            point("sweep.after-intent")
            self.finish(judged.copy)
        else:
            quarantine.finish_undo(self.catalog, self.stores, copy.project, undone)

    def finish(self, copy: Copy) -> None:
        """Remove the bytes of a copy whose deletion was intended, and prove it."""
        with self.catalog.transaction() as lock:
            locks.carrying_out(lock, copy.prefix)
            copy = copies.get(lock, copy.project, copy.copy_id)
            tombstone = tombstones.of_copy(lock, copy.project, copy.copy_id)
            if copy.state is not State.DELETING or tombstone is None:
                return
            store = self.stores[copy.store]
            removal = deletion.remove(self.catalog, store, tombstone, deletion.SWEEP)
            self.told.freed_bytes += removal.freed_bytes
            if removal.locked:  # since the intent
                with self.catalog.transaction() as tx:
                    now = history.now(tx)
                lock_looks.look(self.catalog, self.stores, copy, now)
            removal.require_none_refused(copy.store)
            if not removal.gone:
                raise StoreError(
                    store=copy.store, key=removal.left[0], reason="it is there again; next run"
                )
            self._prove(copy, removal)
        point("sweep.after-proof")
        self.told.counts["deleted"] += 1

    def _is_changed(self, planned: Copy, now: Copy, step: str, after: Collection[State]) -> bool:
        """Whether a copy changed its state since the plan. Another run may have taken the step;
        what was taken back, or taken back and hidden again, is left to the next plan: it has a
        grace and an approval of its own to wait for."""
        if planned.transition == now.transition:
            return False
        is_done = now.state in after and now.state is not State.LOST
        self.told.counts[f"{step} meanwhile"] += is_done
        self.told.left += not is_done
        return True

    def _judge(self, tx: Transaction, copy: Copy, evidence: Evidence) -> Judged:
        return judge_copy(tx, copy.project, copy.copy_id, self.plan.mark_id, evidence)

    def _undo(self, tx: Transaction, judged: Judged) -> list[int]:
        """Take a copy back that something is now known to keep, and what it depends on; answers
        their ids."""
        released = judged.verdict.facts.roles_released
        if judged.copy.state is not State.QUARANTINED or released.truth is not Truth.FALSE:
            return []
        copy_transitions.transition(
            tx,
            judged.copy,
            State.PRESENT,
            actor=self.actor,
            reason=released.evidence,
            mark_id=judged.mark_id,
            facts=judged.verdict.to_json(),
        )
        needed = references.needed(tx, judged.copy.project, [judged.copy.checkpoint_id])
        back = quarantine.take_back(
            tx,
            copies.of_checkpoints(tx, judged.copy.project, needed),
            actor=self.actor,
            reason=f"{judged.copy.checkpoint}, which was taken back, depends on it",
        )
        self.told.counts["taken_back"] += 1 + len(back)
        return [judged.copy.copy_id, *back]

    def _intend(self, tx: Transaction, judged: Judged) -> None:
        """The point of no return: the intent with every fact, and the state, in one transaction."""
        copy = judged.copy
        event = copy_transitions.transition(
            tx,
            copy,
            State.DELETING,
            actor=self.actor,
            reason=f"candidate of mark {judged.mark_id}, in quarantine since"
            f" {instant_text(copy.state_at)}",
            mark_id=judged.mark_id,
            facts=judged.verdict.to_json(),
        )
        intent = tombstones.Intent(
            stage_id=copy.stage_id,
            checkpoint_id=copy.checkpoint_id,
            copy_id=copy.copy_id,
            attempt_id=None,
            store=copy.store,
            prefix=copy.prefix,
            mark_id=judged.mark_id,
            policy_digest=policy_versions.current(tx, copy.project).digest,
            facts=judged.verdict.to_json(),
            size_bytes=copy.stored_bytes,
            actor=self.actor,
        )
        tombstones.intend(tx, intent, event)

    def _prove(self, copy: Copy, removal: deletion.Removal) -> None:
        with self.catalog.transaction() as tx:
            locks.project_shared(tx, copy.project)
            locks.stages(tx, [copy.stage_id])
            locks.copies(tx, [copy.copy_id])
            copy = copies.get(tx, copy.project, copy.copy_id)
            tombstone = tombstones.of_copy(tx, copy.project, copy.copy_id)
            assert tombstone is not None
            event = copy_transitions.transition(
                tx,
                copy,
                State.DELETED,
                actor=self.actor,
                reason="a complete listing found nothing",
                mark_id=tombstone.mark_id,
                facts=removal.evidence,
            )
            tombstones.prove(tx, tombstone, removal.evidence, at=event.recorded_at)
            capacity.release_copy(tx, copy.project, copy.store, copy.stored_bytes)
