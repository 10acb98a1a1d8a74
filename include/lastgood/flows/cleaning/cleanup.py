"""Clean up: what incomplete and failed attempts left, once nobody can write to them any more.

look     at every store, for the inventory of incomplete uploads; a listing that fails proves
         nothing; what belongs to no attempt becomes a finding
fence    an open attempt becomes `aborting`, under the lock that a commit needs, so that aborting
         and completing exclude each other; from here on no grant is renewed
wait     until its last write grant ended: what was granted may still be sent
abort    and list again, until the store shows no upload; its stray objects are deleted with a
         recorded outcome each
close    only when a complete listing, made after the last grant ended, finds nothing below its
         prefix
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, stages, uploads
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.uploads import Incomplete
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.sweeping import tombstones
from lastgood.faults import point
from lastgood.flows import control_keys, sane_clock
from lastgood.flows.cleaning import (
    control_pruning,
    lifecycle,
    locked_attempts,
    stray_uploads,
    upload_look,
)
from lastgood.flows.cleaning.cleanup_plan import Plan, evidence_is_old, grant_left, plan, waits_for
from lastgood.flows.cleaning.pending_uploads import abort_all
from lastgood.flows.jobs import lapses
from lastgood.flows.policies import policy_of
from lastgood.flows.sweeping import deletion
from lastgood.rules.copy_locks import LockLook
from lastgood.stores.base import ForeignEntry, ObjectLocked, StoreError
from lastgood.stores.open import Stores


@dataclass(slots=True)
class _Told:
    counts: Counter[str] = field(default_factory=Counter)
    freed_bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[UUID, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    foreign: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def run(catalog: Catalog, stores: Stores, project: str, actor: str) -> dict[str, Any]:
    """Clean up a project; answers what was done, and what is waited for.

    Refuses whole with CatalogBehind, ForeignCatalog or ClockJump. A store that fails is left alone
    until the next run, and named under `failed`.
    """
    sane_clock.require(catalog)
    control_keys.guard(catalog, stores, project)
    lapses.observe(catalog, project)
    told = _Told()
    _clean_strays(catalog, stores, project, actor, told)
    return execute(catalog, stores, plan(catalog, project), actor, told)


def execute(
    catalog: Catalog, stores: Stores, todo: Plan, actor: str, told: _Told | None = None
) -> dict[str, Any]:
    """Do what a plan names, each attempt judged again under its lock; then look at the buckets' own
    rules, and for old control keys."""
    project, told = todo.project, told or _Told()
    cleaning = _Cleaning(catalog, stores, project, actor, told)
    cleaning.each(todo.resume, cleaning.finish)
    cleaning.each(todo.abort, cleaning.abort)
    cleaning.each(todo.evidence, cleaning.drop_evidence)
    told.warnings += lifecycle.warnings(catalog, stores, project, actor)
    try:
        told.counts["pruned"] = control_pruning.prune(catalog, stores, project)
    except (StoreError, errors.Unavailable) as error:
        told.failed["control keys"] = str(error)
    return _summary(catalog, todo, told)


def cancel(catalog: Catalog, stores: Stores, attempt: Attempt) -> Attempt:
    """Give an open attempt up by its writer's word; answers it as it stands then. Nothing of it can
    be sent or committed from now on. Its room is free once its last upload grant has ended and a
    listing found nothing: now, or in a later clean-up. Repeating it is a no-op. Raises AttemptState
    once it is sealed."""
    with catalog.transaction() as tx:
        one = uploads.get(tx, attempt.project, attempt.attempt_id)
    if one is None:
        raise errors.NotFound(what="attempt", name=str(attempt.attempt_id))
    cleaning = _Cleaning(catalog, stores, attempt.project, f"runner:{one.holder}", _Told())
    cleaning.cancel(one)
    with suppress(errors.ClockJump):
        sane_clock.require(catalog)
        cleaning.each([one], cleaning.finish)
    with catalog.transaction() as tx:
        return attempts.get(tx, attempt.project, attempt.attempt_id)


def _clean_strays(catalog: Catalog, stores: Stores, project: str, actor: str, told: _Told) -> None:
    """Bring the inventory up to date in each store, and clean up what no attempt owns. One process
    at a time, or two would count and abort the same uploads."""
    with catalog.transaction() as tx:
        names = projects.stores_of(tx, project)
    for name in names:
        try:
            store = stores[name]
            with catalog.transaction() as lock:
                locks.carrying_out(lock, f"the uploads of {project} in {name}")
                look = upload_look.take(catalog, store, project, actor)
                point("cleanup.after-look")
                found = stray_uploads.clean(catalog, store, project, look, actor)
        except (StoreError, errors.Unavailable) as error:
            told.failed[f"uploads in {name}"] = str(error)
            continue
        told.foreign[name] = look.foreign
        told.unknown += found.unknown
        told.counts["strays"] += found.aborted
        told.freed_bytes += found.freed_bytes


def _summary(catalog: Catalog, todo: Plan, told: _Told) -> dict[str, Any]:
    with catalog.transaction() as tx:
        left = incomplete_uploads.left(tx, todo.project)
    waiting = {**todo.waiting, **told.waiting}
    return {
        "project": todo.project,
        "aborting": told.counts["aborting"],
        "closed": told.counts["closed"],
        "evidence_dropped": told.counts["evidence"],
        "freed_bytes": told.freed_bytes,
        "waiting": {str(attempt): why for attempt, why in waiting.items()},
        "incomplete_uploads": len(left),
        "incomplete_bytes": sum(one.part_bytes or 0 for one in left),
        "stray_uploads_aborted": told.counts["strays"],
        "unknown_uploads": told.unknown,
        "foreign_uploads": told.foreign,
        "control_keys_pruned": told.counts["pruned"],
        "warnings": told.warnings,
        "failed": told.failed,
    }


@dataclass(frozen=True, slots=True)
class _Cleaning:
    catalog: Catalog
    stores: Stores
    project: str
    actor: str
    told: _Told
    broken: set[str] = field(default_factory=set)

    def each(self, found: Iterable[Incomplete], step: Callable[[Incomplete], None]) -> None:
        """Take one attempt after the other; a store that fails is left alone until the next run,
        and so is an attempt that another process is at, or whose folder is no folder."""
        for one in found:
            if one.store in self.broken:
                continue
            try:
                step(one)
            except (StoreError, errors.Unavailable, errors.SweepRefused) as error:
                of_one = errors.SweepRefused | errors.PrefixBusy | ForeignEntry | ObjectLocked
                if not isinstance(error, of_one):
                    self.broken.add(one.store)
                self.told.failed[f"attempt {one.attempt_id} in {one.store}"] = str(error)

    def abort(self, one: Incomplete) -> None:
        """Fence an open attempt: it is given up, under the lock that its commit needs."""
        with self.catalog.transaction() as tx:
            attempt, current = self._locked(tx, one)
            policy = policy_of(tx, self.project)
            waits = waits_for(current, policy, uploads.measured(tx, self.project), history.now(tx))
            if attempt.state is not State.OPEN or waits is not None:
                return
            reason = f"no live lease since {current.lease_expires_at.isoformat()}"
            self._give_up(tx, attempt, current, reason)
        point("cleanup.after-aborting")
        self.told.counts["aborting"] += 1
        self.finish(one)

    def cancel(self, one: Incomplete) -> None:
        """The same by the writer's own word, for which neither its lease nor its age counts."""
        with self.catalog.transaction() as tx:
            attempt, current = self._locked(tx, one)
            if attempt.state not in (State.ABORTING, State.CLOSED):
                attempts.require(attempt, State.OPEN, action="cancelling it")
                self._give_up(tx, attempt, current, "its writer cancelled it")
        point("cleanup.after-aborting")

    def _give_up(self, tx: Transaction, attempt: Attempt, one: Incomplete, reason: str) -> None:
        event = attempts.transition(tx, attempt, State.ABORTING, actor=self.actor, reason=reason)
        self._intend(tx, one, event, reason)
        left = incomplete_uploads.of_attempt(tx, self.project, one.attempt_id)
        incomplete_uploads.move(
            tx,
            [entry.entry_id for entry in left if entry.state == "waiting"],
            "fenced",
            reason=reason,
            actor=self.actor,
            at=event.recorded_at,
        )

    def drop_evidence(self, one: Incomplete) -> None:
        """A failed attempt was kept long enough to be looked at."""
        with self.catalog.transaction() as tx:
            attempt, current = self._locked(tx, one)
            policy = policy_of(tx, self.project)
            if attempt.state is not State.FAILED or not evidence_is_old(
                current, policy, history.now(tx)
            ):
                return
            if rebuilds.holds_standing(tx, self.project):
                return
            if tombstones.of_attempt(tx, self.project, one.attempt_id) is None:
                reason = f"failed at {current.state_at.isoformat()}, evidence kept long enough"
                event = history.record(
                    tx,
                    one.stage_id,
                    "delete-intended",
                    actor=self.actor,
                    facts={"attempt": str(one.attempt_id), "reason": reason},
                )
                self._intend(tx, current, event, reason)
        self.told.counts["evidence"] += 1
        self.finish(one)

    def finish(self, one: Incomplete) -> None:
        """Abort what is pending, delete what is there, and close the record if nothing is left."""
        point("cleanup.after-intent")
        with self.catalog.transaction() as lock:
            locks.carrying_out(lock, one.prefix)
            tombstone = tombstones.of_attempt(lock, self.project, one.attempt_id)
            if tombstone is None or tombstone.proof is not None:
                return
            began_at = history.now(lock)
            attempt = uploads.get(lock, self.project, one.attempt_id)
            assert attempt is not None
            left = grant_left(attempt, began_at)
            if left is not None:
                self.told.waiting[one.attempt_id] = left
                return
            store = self.stores[one.store]
            aborted = abort_all(self.catalog, store, attempt, tombstone, self.actor)
            self.told.freed_bytes += aborted.freed_bytes
            point("cleanup.after-aborts")
            locked = locked_attempts.believed(lock, self.project, one.attempt_id, began_at)
            if locked is not None:
                self._wait_for(one, locked)
                return
            removal = deletion.remove(self.catalog, store, tombstone, deletion.CLEANUP)
            if removal.look is not None:
                locked_attempts.note(self.catalog, self.project, one.attempt_id, removal.look)
                if removal.locked:
                    self._wait_for(one, removal.look)
                    return
            self.told.freed_bytes += removal.freed_bytes
            removal.require_none_refused(one.store)
            if removal.gone and aborted.gone:
                self._close(one, removal, began_at)

    def _wait_for(self, one: Incomplete, locked: LockLook) -> None:
        """What a lock keeps is waited for; one that may not be seen is somebody's to look into."""
        if locked.seen:
            self.told.waiting[one.attempt_id] = locked.fact.evidence
        else:
            self.told.failed[f"attempt {one.attempt_id} in {one.store}"] = locked.fact.evidence

    def _close(self, one: Incomplete, removal: deletion.Removal, began_at: datetime) -> None:
        """The listings were begun after the last grant had ended, or the record stays open."""
        with self.catalog.transaction() as tx:
            attempt, _ = self._locked(tx, one)
            tombstone = tombstones.of_attempt(tx, self.project, one.attempt_id)
            assert tombstone is not None
            if attempt.grant_expires_at >= began_at:
                return
            event = attempts.transition(
                tx,
                attempt,
                State.CLOSED,
                actor=self.actor,
                reason="a complete listing found nothing",
            )
            evidence = removal.evidence | {"uploads_left": 0, "listed_at": began_at.isoformat()}
            tombstones.prove(tx, tombstone, evidence, at=event.recorded_at)
            found = incomplete_uploads.of_attempt(tx, self.project, one.attempt_id)
            incomplete_uploads.move(
                tx,
                [entry.entry_id for entry in found if entry.state in incomplete_uploads.LEFT],
                "gone",
                reason="a complete listing after the last grant found neither upload nor object",
                actor=self.actor,
                at=event.recorded_at,
                facts=evidence,
            )
            capacity.release_attempt(tx, self.project, one.store, attempt.claimed_bytes)
        point("cleanup.after-proof")
        self.told.counts["closed"] += 1

    def _locked(self, tx: Transaction, one: Incomplete) -> tuple[Attempt, Incomplete]:
        stages.locked(tx, self.project, one.stage_id)
        locks.attempt(tx, one.attempt_id)
        current = uploads.get(tx, self.project, one.attempt_id)
        assert current is not None
        return attempts.get(tx, self.project, one.attempt_id), current

    def _intend(self, tx: Transaction, one: Incomplete, event: history.Event, reason: str) -> None:
        """Never where a committed checkpoint lies."""
        if uploads.reached_by_commit(tx, self.project, one.attempt_id, one.prefix):
            raise errors.SweepRefused(
                project=self.project,
                reason=f"attempt {one.attempt_id} is {one.state}, yet a checkpoint was committed"
                " from it; look at its history",
            )
        facts = {
            "reason": reason,
            "state": one.state,
            "prepared_at": one.recorded_at.isoformat(),
            "lease_expired_at": one.lease_expires_at.isoformat(),
            "grant_expired_at": one.grant_expires_at.isoformat(),
            "declared_bytes": one.declared_bytes,
        }
        intent = tombstones.Intent(
            stage_id=one.stage_id,
            checkpoint_id=None,
            copy_id=None,
            attempt_id=one.attempt_id,
            store=one.store,
            prefix=one.prefix,
            mark_id=None,
            policy_digest=policy_versions.current(tx, self.project).digest,
            facts=facts,
            size_bytes=one.declared_bytes,
            actor=self.actor,
        )
        tombstones.intend(tx, intent, event)
