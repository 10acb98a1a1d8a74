"""What a rebuild writes into the catalog: one transaction for each thing that a store shows.

History is only ever added to: rows that the catalog has and a store confirms stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import (
    attempt_objects,
    attempts,
    checkpoints,
    copies,
    copy_transitions,
    stages,
)
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.rebuilding import rebuilds, rebuilt_attempts, rebuilt_stages
from lastgood.catalog.rebuilding.rebuilds import ACTOR, Rebuild
from lastgood.catalog.rebuilding.rebuilt_attempts import Leftover
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.sweeping import tombstones
from lastgood.flows.policies import policy_of
from lastgood.flows.rebuilding.reading import Whole
from lastgood.rules import layout
from lastgood.rules.names import StageId
from lastgood.stores.base import Key, Store


class Outcome(StrEnum):
    """What became of a whole checkpoint that a store shows."""

    ADDED = "added"
    CONFIRMED = "confirmed"  # the catalog had it
    CONTRADICTED = "contradicted"  # the catalog knows otherwise, and history is not rewritten


def reason_of(rebuild: Rebuild) -> str:
    """Why a rebuild holds everything: the reason of its holds."""
    return (
        f"incarnation {rebuild.incarnation}: the catalog was rebuilt from its stores, which tell"
        f" no holds; release this once the right ones are placed again ({rebuild.because})"
    )


def checkpoint(
    catalog: Catalog, rebuild: Rebuild, whole: Whole, *, event: int
) -> tuple[Outcome, str]:
    """Record a verified checkpoint with all that a commit records, unless it is there; answers what
    became of it and why. `event` is the highest one of its stage that any store shows."""
    with catalog.transaction() as tx:
        name = whole.found.checkpoint
        stage = rebuilt_stages.open_locked(tx, name.stage_id, event=event, rebuild=rebuild)
        known = checkpoints.find(tx, name)
        if known is not None:
            return _beside_known(tx, whole, known)
        rebuilt_stages.ensure_generation(tx, stage, name.generation, rebuild=rebuild)
        attempt = _attempt(tx, stage, rebuild, whole)
        if attempt is None:
            return Outcome.CONTRADICTED, "the catalog knows its attempt as failed or given up"
        _commit(tx, attempt, rebuild, whole)
    with catalog.transaction() as tx:
        attempts.finished(tx, attempt)
    return Outcome.ADDED, ""


def _beside_known(tx: Transaction, whole: Whole, known: Checkpoint) -> tuple[Outcome, str]:
    found = whole.found
    if (known.attempt_id, known.manifest) != (found.attempt_id, whole.digest):
        return Outcome.CONTRADICTED, f"attempt {known.attempt_id} is recorded as this checkpoint"
    copy = next(
        (one for one in copies.of_checkpoint(tx, known.id) if one.store == found.store), None
    )
    if copy is not None and copy.state in copies.GONE:
        return Outcome.CONTRADICTED, f"the catalog knows this copy as {copy.state}"
    if copy is None:
        event = history.record(
            tx, known.stage_id, "committed", actor=ACTOR, facts={"copy_in": found.store}
        )
        _create_copy(tx, known.checkpoint_id, whole, event)
        capacity.locked_use(tx, known.project, found.store)
        capacity.commit(
            tx, known.project, found.store, claimed_bytes=0, stored_bytes=_stored_bytes(whole)
        )
        return Outcome.ADDED, ""
    return Outcome.CONFIRMED, ""


def _attempt(tx: Transaction, stage: Stage, rebuild: Rebuild, whole: Whole) -> Attempt | None:
    """The checkpoint's attempt, sealed with its manifest; None if it can be sealed no more."""
    found = whole.found
    attempt = rebuilt_attempts.find(tx, stage.project, found.attempt_id)
    if attempt is None:
        attempt = rebuilt_attempts.begin(
            tx,
            stage,
            rebuild,
            found.attempt_id,
            whole.manifest,
            store=found.store,
            prefix=found.prefix,
        )
    locks.attempt(tx, attempt.attempt_id)
    attempt = attempts.get(tx, stage.project, attempt.attempt_id)
    if attempt.state is attempts.State.OPEN:
        attempts.transition(
            tx,
            attempt,
            attempts.State.SEALED,
            actor=ACTOR,
            reason=rebuilt_attempts.REASON,
            facts={"manifest": whole.digest},
            manifest=whole.content,
        )
        attempt = attempts.get(tx, stage.project, attempt.attempt_id)
    sealed_with = attempts.manifest_of(tx, attempt)
    is_same = attempt.state is attempts.State.SEALED and sealed_with == whole.content
    return attempt if is_same else None


def _commit(tx: Transaction, attempt: Attempt, rebuild: Rebuild, whole: Whole) -> None:
    origin = whole.manifest.resumed_from
    event = attempts.transition(
        tx,
        attempt,
        attempts.State.COMMITTED,
        actor=ACTOR,
        reason=rebuilt_attempts.REASON,
        facts={"manifest": whole.digest, "incarnation": rebuild.incarnation},
    )
    attempt_objects.record_verified(tx, attempt, whole.versions, {})
    checkpoint_id = checkpoints.record(
        tx,
        attempt,
        whole.manifest,
        whole.digest,
        whole.content,
        resumed_from=None if origin is None else (origin.generation, origin.sequence),
        recorded_at=event.recorded_at,
    )
    _create_copy(tx, checkpoint_id, whole, event)
    holds.apply_standing_selectors(tx, checkpoint_id)
    capacity.locked_use(tx, attempt.project, attempt.store)
    capacity.commit(
        tx,
        attempt.project,
        attempt.store,
        claimed_bytes=attempt.claimed_bytes,
        stored_bytes=_stored_bytes(whole),
    )


def _create_copy(tx: Transaction, checkpoint_id: int, whole: Whole, event: history.Event) -> None:
    copy_transitions.create(
        tx,
        checkpoint_id=checkpoint_id,
        store=whole.found.store,
        prefix=whole.found.prefix,
        control_bytes=_control_bytes(whole),
        objects=[
            CopyObject(one.path, one.size_bytes, one.sha256, whole.versions[one.path])
            for one in whole.manifest.objects
        ],
        actor=ACTOR,
        recorded_at=event.recorded_at,
    )


def _control_bytes(whole: Whole) -> int:
    return len(whole.content) + len(layout.marker_bytes(whole.digest))


def _stored_bytes(whole: Whole) -> int:
    return whole.manifest.size_bytes + _control_bytes(whole)


def leftovers(
    catalog: Catalog,
    rebuild: Rebuild,
    name: StageId,
    found: Sequence[Leftover],
    *,
    event: int,
) -> list[Leftover]:
    """Record bytes that are no checkpoint as evidence, where the catalog knows nothing of them;
    answers those that are new to it."""
    with catalog.transaction() as tx:
        stage = rebuilt_stages.open_locked(tx, name, event=event, rebuild=rebuild)
        new = [
            one for one in found if rebuilt_attempts.find(tx, stage.project, one.attempt_id) is None
        ]
        for generation in sorted({one.checkpoint.generation for one in new}):
            rebuilt_stages.ensure_generation(tx, stage, generation, rebuild=rebuild)
        grant = policy_of(tx, stage.project).leases.grant
        rebuilt_attempts.record_leftovers(tx, stage, rebuild, new, grant=grant)
    return new


def take_back(catalog: Catalog, project: str, store: str, prefix: str) -> Copy | None:
    """Decide that a quarantined copy is present again, before its bytes are shown; None if the
    catalog has no such copy. A copy that is being deleted stays so."""
    with catalog.transaction() as tx:
        copy = _copy_at(tx, project, store, prefix)
        if copy is None or copy.state is not copies.State.QUARANTINED:
            return copy
        locks.project_shared(tx, project)
        locks.stages(tx, [copy.stage_id])
        locks.copies(tx, [copy.copy_id])
        copy = copies.get(tx, project, copy.copy_id)
        if copy.state is copies.State.QUARANTINED:
            copy_transitions.transition(
                tx, copy, copies.State.PRESENT, actor=ACTOR, reason=rebuilt_attempts.REASON
            )
        return copies.get(tx, project, copy.copy_id)


def shown(catalog: Catalog, copy: Copy) -> None:
    """Note that the store shows a copy that was taken back."""
    with catalog.transaction() as tx:
        copy_transitions.carried_out(tx, copy)


def _copy_at(tx: Transaction, project: str, store: str, prefix: str) -> Copy | None:
    key = layout.parse_key(layout.marker_key(prefix))
    assert isinstance(key, layout.AttemptKey)
    known = checkpoints.find(tx, key.checkpoint)
    if known is None:
        return None
    found = copies.of_checkpoints(tx, project, [known.checkpoint_id])
    return next((one for one in found if (one.store, one.prefix) == (store, prefix)), None)


def gone(catalog: Catalog, store: Store, rebuild: Rebuild, copy: Copy, *, bytes_left: bool) -> bool:
    """Record that the marker of a copy is gone from its store, and so the checkpoint: deleted, or,
    while bytes are left, being deleted. False if the marker is there after all."""
    if store.stat(Key(layout.marker_key(copy.prefix))) is not None:
        return False
    facts: dict[str, Any] = {
        "reason": rebuilt_attempts.REASON,
        "incarnation": rebuild.incarnation,
        "marker": "absent in a complete listing",
    }
    with catalog.transaction() as tx:
        locks.project_shared(tx, copy.project)
        locks.stages(tx, [copy.stage_id])
        locks.copies(tx, [copy.copy_id])
        copy = copies.get(tx, copy.project, copy.copy_id)
        if copy.state is copies.State.PRESENT:
            copy = _moved(tx, copy, copies.State.QUARANTINED, facts)
        if copy.state is copies.State.QUARANTINED:
            _intend(tx, copy, facts)
            copy = copies.get(tx, copy.project, copy.copy_id)
        if copy.state is copies.State.DELETING and not bytes_left:
            _prove(tx, copy)
    return True


def _moved(tx: Transaction, copy: Copy, to: copies.State, facts: dict[str, Any]) -> Copy:
    copy_transitions.transition(
        tx, copy, to, actor=ACTOR, reason=rebuilt_attempts.REASON, facts=facts
    )
    return copies.get(tx, copy.project, copy.copy_id)


def _intend(tx: Transaction, copy: Copy, facts: dict[str, Any]) -> None:
    event = copy_transitions.transition(
        tx,
        copy,
        copies.State.DELETING,
        actor=ACTOR,
        reason=rebuilt_attempts.REASON,
        facts=facts,
    )
    intent = tombstones.Intent(
        stage_id=copy.stage_id,
        checkpoint_id=copy.checkpoint_id,
        copy_id=copy.copy_id,
        attempt_id=None,
        store=copy.store,
        prefix=copy.prefix,
        mark_id=None,
        policy_digest=policy_versions.current(tx, copy.project).digest,
        facts=facts,
        size_bytes=copy.stored_bytes,
        actor=ACTOR,
    )
    tombstones.intend(tx, intent, event)


def _prove(tx: Transaction, copy: Copy) -> None:
    tombstone = tombstones.of_copy(tx, copy.project, copy.copy_id)
    assert tombstone is not None, "a copy is deleting since its tombstone was recorded"
    evidence = {"listing": "complete", "keys_left": 0, "keys_removed": 0}
    event = copy_transitions.transition(
        tx,
        copy,
        copies.State.DELETED,
        actor=ACTOR,
        reason=rebuilt_attempts.REASON,
        facts=evidence,
    )
    tombstones.prove(tx, tombstone, evidence, at=event.recorded_at)
    capacity.release_copy(tx, copy.project, copy.store, copy.stored_bytes)


def hold(catalog: Catalog, rebuild: Rebuild, project: str) -> UUID:
    """The hold of this rebuild on everything of a project; placed once."""
    reason = reason_of(rebuild)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, project)
        known = rebuilds.hold_of(tx, project, reason)
        if known is not None:
            return known
        owner = projects.get(tx, project).owner
        return holds.record(tx, project, NewHold("incident", owner, reason, ACTOR))


def finish_stage(
    catalog: Catalog,
    rebuild: Rebuild,
    name: StageId,
    hold_id: UUID,
    *,
    event: int,
    generation: int,
    damaged: Collection[int],
) -> tuple[Stage, int, Checkpoint | None]:
    """Hold all of a stage's checkpoints, put its pointer to the newest whole one, and fence every
    writer of before; answers the stage, its new generation, and where the pointer stands."""
    with catalog.transaction() as tx:
        stage = rebuilt_stages.open_locked(tx, name, event=event, rebuild=rebuild)
        ids = rebuilds.not_held(tx, hold_id, stage.stage_id)
        if ids:
            holds.take(tx, hold_id, stage.stage_id, ids, actor=ACTOR)
        latest = _point(tx, stage, rebuild, damaged)
        number = rebuilt_stages.fence_all(tx, stage, generation, rebuild=rebuild)
        return stages.get(tx, stage.project, stage.stage_id), number, latest


def _point(
    tx: Transaction, stage: Stage, rebuild: Rebuild, damaged: Collection[int]
) -> Checkpoint | None:
    """The newest whole checkpoint; a stage whose restores are blocked stays as it is."""
    before = checkpoints.latest(tx, stage)
    if stage.blocked_by is not None:
        return before
    whole = None
    for copy in reversed(copies.of_stage(tx, stage.project, stage.stage_id)):
        if copy.state is copies.State.PRESENT and copy.copy_id not in damaged:
            whole = checkpoints.find(tx, copy.checkpoint)
            if whole is not None and checkpoints.readable_copy(tx, whole) is not None:
                break
            whole = None
    if before == whole:
        return before
    event = history.record(
        tx,
        stage.stage_id,
        "pointer-reset",
        actor=ACTOR,
        facts={
            "from": None if before is None else str(before.id),
            "to": None if whole is None else str(whole.id),
            "because": rebuilt_attempts.REASON,
            "incarnation": rebuild.incarnation,
        },
    )
    checkpoints.reset_pointer(tx, stage, whole, event.recorded_at)
    return whole
