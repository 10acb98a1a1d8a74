"""Read: which checkpoint may be restored, and the lease without which nobody gets its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import checkpoints, copies, readers, stages
from lastgood.catalog.jobs.checkpoints import Checkpoint, ReadableCopy
from lastgood.catalog.jobs.readers import LeasedObject, ReaderLease
from lastgood.catalog.jobs.stages import Stage
from lastgood.errors import Conflict, CopyGone, CopyLost, CopyState, NotFound, RestoreBlocked
from lastgood.flows.policies import policy_of
from lastgood.rules.names import CheckpointId, StageId


@dataclass(frozen=True, slots=True)
class Found:
    """The checkpoint to restore with the copy to read, or the reasons for there being none."""

    checkpoint: Checkpoint | None
    copy: ReadableCopy | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Latest:
    """What `latest` answers: a checkpoint with its manifest, or the reasons for having none."""

    checkpoint: Checkpoint | None
    manifest: bytes | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader's lease with its token, which is told once (else it is empty), and everything it
    needs to read."""

    lease: ReaderLease
    token: str
    checkpoint: Checkpoint
    manifest: bytes
    objects: Sequence[LeasedObject]


def latest_readable(tx: Transaction, stage: Stage) -> Found:
    """Where the pointer stands, if a copy of it may be read. The stage is locked. It never falls
    back to an older checkpoint: that is for an operator or a validator to decide and record."""
    checkpoint = checkpoints.latest(tx, stage)
    if checkpoint is None:
        return Found(None, None, (_nothing_at_the_pointer(tx, stage),))
    copy = checkpoints.readable_copy(tx, checkpoint)
    if copy is None:
        needed = checkpoints.lacking(tx, checkpoint)
        if needed is not None:
            return Found(None, None, (f"the latest checkpoint {_depends(checkpoint, needed)}",))
        states = checkpoints.copy_states(tx, checkpoint)
        told = ", ".join(f"{state} in {store}" for store, state in states.items())
        return Found(None, None, (f"the latest checkpoint {checkpoint.id} is {told}",))
    return Found(checkpoint, copy, ())


def latest(catalog: Catalog, name: StageId) -> Latest:
    """The latest good checkpoint of a stage with its manifest, without a grant to read it; or an
    explicit none with the reasons. Raises RestoreBlocked."""
    with catalog.transaction() as tx:
        if stages.find(tx, name) is None:
            return Latest(None, None, (f"nobody has acquired {name.workload}/{name.stage} yet",))
        stage = stages.find_locked(tx, name)
        _require_unblocked(stage)
        found = latest_readable(tx, stage)
        if found.checkpoint is None:
            return Latest(None, None, found.reasons)
        body = checkpoints.manifest_body(tx, stage.project, found.checkpoint.manifest)
        return Latest(found.checkpoint, body, ())


def acquire_reader(
    catalog: Catalog,
    name: StageId,
    checkpoint: CheckpointId | None,
    *,
    reader: str,
    ttl: timedelta | None = None,
) -> Reading:
    """Lease a checkpoint (None: the latest) for `ttl`, by default as long as the policy says.

    Lease, manifest and objects come from one transaction under the stage's lock: a sweep sees the
    lease, or this sees what the sweep decided. Raises NotFound, RestoreBlocked, CopyGone once a
    deletion has begun, CopyState for a copy in quarantine.
    """
    with catalog.transaction() as tx:
        stage = stages.find_locked(tx, name)
        _require_unblocked(stage)
        policy = policy_of(tx, name.project)
        found = latest_readable(tx, stage) if checkpoint is None else _readable(tx, checkpoint)
        if found.checkpoint is None or found.copy is None:
            raise NotFound(what="checkpoint to read", name=f"{name}: {'; '.join(found.reasons)}")
        lease, token = readers.grant(
            tx, found.checkpoint, found.copy, reader=reader, ttl=ttl or policy.leases.reader
        )
        return Reading(
            lease,
            token,
            found.checkpoint,
            checkpoints.manifest_body(tx, stage.project, found.checkpoint.manifest),
            readers.objects(tx, lease),
        )


def lent(catalog: Catalog, lease: ReaderLease) -> Reading:
    """What a live lease lets its holder read, for one that was handed nothing but the lease and
    its token. Raises LeaseExpired."""
    with catalog.transaction() as tx:
        readers.get(tx, lease.project, lease.lease_id).require_live()
        name = copies.get(tx, lease.project, lease.copy_id).checkpoint
        checkpoint = checkpoints.find(tx, name)
        assert checkpoint is not None
        return Reading(
            lease,
            "",
            checkpoint,
            checkpoints.manifest_body(tx, lease.project, checkpoint.manifest),
            readers.objects(tx, lease),
        )


def renew_reader(catalog: Catalog, lease: ReaderLease) -> ReaderLease:
    """Let a lease last anew. Raises LeaseExpired once it ran out or was given back."""
    with catalog.transaction() as tx:
        stages.locked(tx, lease.project, lease.stage_id)
        return readers.renew(tx, lease, policy_of(tx, lease.project).leases.reader)


def end_reader(catalog: Catalog, lease: ReaderLease) -> None:
    """Give a lease back. Repeating it is a no-op."""
    with catalog.transaction() as tx:
        stages.locked(tx, lease.project, lease.stage_id)
        readers.end(tx, lease)


def leased_object(catalog: Catalog, lease: ReaderLease, path: str) -> LeasedObject:
    """An object that a live lease lets its reader read. Raises LeaseExpired or NotFound."""
    with catalog.transaction() as tx:
        readers.get(tx, lease.project, lease.lease_id).require_live()
        return readers.object_at(tx, lease, path)


def _readable(tx: Transaction, name: CheckpointId) -> Found:
    checkpoint = checkpoints.find(tx, name)
    if checkpoint is None:
        raise NotFound(what="checkpoint", name=str(name))
    copy = checkpoints.readable_copy(tx, checkpoint)
    if copy is None:
        needed = checkpoints.lacking(tx, checkpoint)
        states = checkpoints.copy_states(tx, checkpoint)
        if needed is not None and "present" in states.values():
            raise Conflict(reason=_depends(checkpoint, needed))
        _refuse_copies(checkpoint, states)
    return Found(checkpoint, copy, ())


def _depends(checkpoint: Checkpoint, needed: Checkpoint) -> str:
    return f"{checkpoint.id} depends on {needed.id}, of which no sound copy is there"


def _refuse_copies(checkpoint: Checkpoint, states: dict[str, str]) -> None:
    gone = all(state in copies.GONE for state in states.values())
    lost = gone and copies.State.LOST in states.values()
    store, state = next(one for one in states.items() if not lost or one[1] == "lost")
    error = CopyLost if lost else CopyGone if gone else CopyState
    raise error(
        checkpoint=str(checkpoint.id), store=store, state=state, action="reading", needed="present"
    )


def _nothing_at_the_pointer(tx: Transaction, stage: Stage) -> str:
    committed = checkpoints.count(tx, stage)
    if committed == 0:
        return f"nothing was committed in {stage.name} yet"
    none = f"none of the {committed} checkpoints of {stage.name} was found good"
    lost = [
        f"{number:,} with store {store}"
        for store, number in copies.lost_of_stage(tx, stage.project, stage.stage_id).items()
    ]
    return f"{none}; lost were {', '.join(lost)}" if lost else none


def _require_unblocked(stage: Stage) -> None:
    if stage.blocked_by is not None:
        raise RestoreBlocked(stage=str(stage.name), receipt=stage.blocked_by)
