"""The transaction that makes a verified attempt a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood import faults
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, checkpoints, copy_transitions, generations, stages
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.copies import CopyObject
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.keeping import holds
from lastgood.errors import AttemptState, BadManifest, Conflict, LastgoodError, StaleSequence
from lastgood.flows.jobs import verify
from lastgood.flows.jobs.failures import DEPENDENCY, FENCED, STALE
from lastgood.rules import layout
from lastgood.rules.canonical import digest
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import ManifestDigest


def record(
    catalog: Catalog,
    attempt: Attempt,
    manifest: Manifest,
    content: bytes,
    known: verify.Verification,
) -> LastgoodError | None:
    """The transaction that makes a verified attempt a checkpoint. The error says why it could not
    become one any more; then the attempt has failed."""
    manifest_digest = digest(content)
    with catalog.transaction() as tx:
        needed = checkpoints.stages_of_manifests(tx, attempt.project, manifest.dependencies)
        locks.project_shared(tx, attempt.project)
        locks.stages(tx, {attempt.stage_id}.union(*needed.values()))
        locks.attempt(tx, attempt.attempt_id)
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if now.state is State.COMMITTED:
            return None
        try:
            attempts.require(now, State.SEALED, action="committing it")
        except AttemptState as ended:  # another process was faster
            return ended
        stage = stages.get(tx, attempt.project, attempt.stage_id)
        reason, error = _obstacle(tx, stage, now, manifest)
        if error is not None:
            attempts.transition(tx, now, State.FAILED, actor="system", reason=reason)
            return error
        known.record(tx, now)
        _record_checkpoint(tx, stage, now, manifest, manifest_digest, content, known.versions)
        faults.point("commit.in-transaction")
        return None


def _obstacle(
    tx: Transaction, stage: Stage, attempt: Attempt, manifest: Manifest
) -> tuple[str, LastgoodError | None]:
    """What happened since the sealing that forbids the commit."""
    fenced = generations.fenced_reason(tx, stage, attempt.generation)
    if fenced is not None:
        return FENCED, generations.fenced(stage, attempt.generation, fenced)
    latest = checkpoints.latest(tx, stage)
    if latest is not None and latest.id.position >= attempt.checkpoint.position:
        return STALE, StaleSequence(
            stage=str(stage.name),
            current=f"{latest.generation}.{latest.sequence}",
            asked=f"{attempt.generation}.{attempt.sequence}",
        )
    present = checkpoints.present_manifests(tx, stage.project, manifest.dependencies)
    for index, needed in enumerate(manifest.dependencies):
        if needed not in present:
            return DEPENDENCY, BadManifest(
                where=f"$.dependencies[{index}]", reason=f"no sound copy has manifest {needed}"
            )
    return "", None


def _record_checkpoint(
    tx: Transaction,
    stage: Stage,
    attempt: Attempt,
    manifest: Manifest,
    manifest_digest: ManifestDigest,
    content: bytes,
    versions: Mapping[str, str | None],
) -> None:
    generation = generations.get(tx, stage.project, stage.stage_id, attempt.generation)
    origin = manifest.resumed_from
    event = attempts.transition(
        tx,
        attempt,
        State.COMMITTED,
        actor=generation.actor,
        reason="verified",
        facts={"manifest": manifest_digest, "step": attempt.step, "bytes": manifest.size_bytes},
    )
    checkpoint_id = checkpoints.record(
        tx,
        attempt,
        manifest,
        manifest_digest,
        content,
        resumed_from=(
            generation.resumed_from if origin is None else (origin.generation, origin.sequence)
        ),
        recorded_at=event.recorded_at,
    )
    control_bytes = len(content) + len(layout.marker_bytes(manifest_digest))
    copy_transitions.create(
        tx,
        checkpoint_id=checkpoint_id,
        store=attempt.store,
        prefix=attempt.prefix,
        control_bytes=control_bytes,
        objects=[
            CopyObject(item.path, item.size_bytes, item.sha256, versions[item.path])
            for item in manifest.objects
        ],
        actor=generation.actor,
        recorded_at=event.recorded_at,
    )
    holds.apply_standing_selectors(tx, checkpoint_id)
    if not checkpoints.advance_pointer(tx, attempt, checkpoint_id, event.recorded_at):
        raise Conflict(reason=f"the pointer of {stage.name} moved under the lock of its stage")
    history.record(
        tx,
        stage.stage_id,
        "pointer-moved",
        actor=generation.actor,
        facts={"to": list(attempt.checkpoint.position)},
    )
    capacity.commit(
        tx,
        attempt.project,
        attempt.store,
        claimed_bytes=attempt.claimed_bytes,
        stored_bytes=manifest.size_bytes + control_bytes,
    )
