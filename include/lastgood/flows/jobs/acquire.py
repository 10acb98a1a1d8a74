"""Acquire: a job, or the recovery that replaces it, becomes the one writer of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from lastgood import faults
from lastgood.catalog import history
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import checkpoints, generations, stages
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.generations import Generation, Writer
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.keeping import retirements
from lastgood.errors import (
    FreshStartRefused,
    IdempotencyConflict,
    NotFound,
    RestoreBlocked,
    StageRetired,
    StaleAcquire,
)
from lastgood.flows import control_keys
from lastgood.flows.jobs.read import Found, latest_readable
from lastgood.flows.policies import policy_of
from lastgood.rules.names import StageId
from lastgood.rules.quantities import instant_text
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """Who wants which stage. `after` is the generation that the caller saw last, 0 for none."""

    stage: StageId
    after: int
    idempotency_key: str
    holder: str
    kind: str | None = None
    workload_class: str | None = None
    fresh: bool = False
    preemption_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Acquired:
    """A generation with its token, which is told this once, and what it resumes from."""

    stage: StageId
    generation: int
    token: str
    lease_expires_at: datetime
    lease: timedelta
    resume: Checkpoint | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who writes a stage: generation 0 with no holder before the first acquire."""

    generation: int
    holder: str | None
    lease_expires_at: datetime | None
    active: bool


def acquire(catalog: Catalog, stores: Stores, request: AcquireRequest) -> Acquired:
    """Begin generation `after` + 1 and fence all earlier ones, or repeat the answer of an acquire
    with the same idempotency key, with a further token of that generation.

    Raises StaleAcquire if somebody acquired after `after`; FencedGeneration for a repetition after
    that generation was fenced; IdempotencyConflict for another request under the same key;
    FreshStartRefused if commits exist and none can be resumed; RestoreBlocked; StageRetired.
    """
    with catalog.transaction() as tx:
        stage = stages.open_locked(
            tx,
            request.stage,
            kind=request.kind,
            workload_class=request.workload_class,
            actor=f"runner:{request.holder}",
        )
        lease = policy_of(tx, stage.project).leases.generation
        known = generations.by_idempotency_key(tx, stage, request.idempotency_key)
        if known is not None:
            generation, found = _again(tx, stage, known, request)
        else:
            generation, found = _begin(tx, stage, request, lease)
        token = generations.issue_token(tx, generation)
        expires_at = generations.renew(tx, generation, lease)
    faults.point("acquire.after-transaction")
    # Nobody hears of the generation before the store can prove it.
    control_keys.publish(
        catalog,
        control_keys.stores_for(catalog, stores, stage.project),
        stage.project,
        stage.stage_id,
        generation=generation.generation,
    )
    return Acquired(
        request.stage,
        generation.generation,
        token,
        expires_at,
        lease,
        found.checkpoint,
        found.reasons,
    )


def _begin(
    tx: Transaction, stage: Stage, request: AcquireRequest, lease: timedelta
) -> tuple[Generation, Found]:
    if stage.generation != request.after:
        raise StaleAcquire(stage=str(stage.name), current=stage.generation, after=request.after)
    if request.preemption_id is not None and not generations.has_preemption(
        tx, stage, request.preemption_id
    ):
        raise NotFound(what="preemption", name=str(request.preemption_id))
    _require_in_service(tx, stage)
    found = _resume_from(tx, stage, request)
    reason = f"generation {request.after + 1} was acquired by {request.holder}"
    generations.fence_earlier(tx, stage, actor=f"runner:{request.holder}", reason=reason)
    generation, _ = generations.begin(
        tx,
        stage,
        idempotency_key=request.idempotency_key,
        holder=request.holder,
        fresh=request.fresh,
        resumed_from=None if found.checkpoint is None else found.checkpoint.id.position,
        preemption_id=request.preemption_id,
        lease=lease,
    )
    return generation, found


def _require_in_service(tx: Transaction, stage: Stage) -> None:
    """Nobody begins to write what operators have decided to give up; an undo comes first."""
    retirement = retirements.decided(tx, stage.name)
    if retirement is None or retirement.effective_at is None:
        return
    ends = instant_text(retirement.effective_at)
    way_out = f"Its grace ended at {ends}: take another stage."
    if history.now(tx) < retirement.effective_at:
        undo = f"`lastgood retire undo {retirement.retirement_id}`"
        way_out = f"Until {ends} an operator can take that back with {undo}."
    raise StageRetired(
        stage=str(stage.name),
        asked_by=retirement.asked_by,
        reason=retirement.reason,
        way_out=way_out,
        retirement=str(retirement.retirement_id),
    )


def _resume_from(tx: Transaction, stage: Stage, request: AcquireRequest) -> Found:
    """A stage that has commits never begins at nothing unless the job says so."""
    if request.fresh:
        return Found(None, None, ("the job asked for a fresh start",))
    if stage.blocked_by is not None:
        raise RestoreBlocked(stage=str(stage.name), receipt=stage.blocked_by)
    found = latest_readable(tx, stage)
    committed = checkpoints.count(tx, stage)
    if found.checkpoint is None and committed:
        raise FreshStartRefused(
            stage=str(stage.name), committed=committed, reasons=list(found.reasons)
        )
    return found


def _again(
    tx: Transaction, stage: Stage, known: Generation, request: AcquireRequest
) -> tuple[Generation, Found]:
    """The same generation again: what it resumes from was decided when it began."""
    same = (known.holder, known.fresh, known.generation - 1, known.preemption_id)
    if same != (request.holder, request.fresh, request.after, request.preemption_id):
        raise IdempotencyConflict(key=request.idempotency_key)
    writer = Writer(stage.project, stage.stage_id, known.generation)
    generation = generations.require_writing(tx, stage, writer)
    if generation.resumed_from is None:
        return generation, Found(None, None, ("this generation began without a checkpoint",))
    checkpoint = checkpoints.at(tx, stage, generation.resumed_from)
    return generation, Found(checkpoint, None, ())


def holder_of(catalog: Catalog, name: StageId) -> Holder:
    """Who writes a stage now; a job asks this before it acquires."""
    with catalog.transaction() as tx:
        stage = stages.find(tx, name)
        if stage is None or stage.generation == 0:
            return Holder(0, None, None, active=False)
        newest = generations.get(tx, stage.project, stage.stage_id, stage.generation)
    return Holder(newest.generation, newest.holder, newest.expires_at, newest.active)


def release(catalog: Catalog, stores: Stores, writer: Writer) -> None:
    """The clean end of a generation; repeating it is a no-op. Raises FencedGeneration if another
    was acquired meanwhile."""
    with catalog.transaction() as tx:
        stage = stages.locked(tx, writer.project, writer.stage_id)
        generation = generations.get(tx, writer.project, writer.stage_id, writer.generation)
        if generation.fenced is not None:
            raise generations.fenced(stage, generation.generation, generation.fenced)
        generations.release(tx, stage, generation)
    control_keys.publish(
        catalog,
        control_keys.stores_for(catalog, stores, stage.project),
        stage.project,
        stage.stage_id,
    )


def record_preemption(
    catalog: Catalog, name: StageId, *, idempotency_key: str, notice: Mapping[str, Any]
) -> tuple[UUID, datetime]:
    """Store a supplier's notice that the machine of a stage's writer will go; the recovery that it
    causes names it. Raises NotFound for a stage that nobody opened, IdempotencyConflict."""
    with catalog.transaction() as tx:
        stage = stages.find_locked(tx, name)
        return generations.record_preemption(
            tx, stage, idempotency_key=idempotency_key, notice=dict(notice), actor="runner:supplier"
        )
