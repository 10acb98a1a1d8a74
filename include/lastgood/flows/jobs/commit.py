"""Commit: from uploaded bytes to a checkpoint that may be restored.

seal -> complete the uploads -> verify -> manifest to the store -> transaction -> completion marker
-> control keys -> answer

Each step may be repeated, and a crash between any two is made good by `finish`, which takes an
attempt from wherever it stands to its end. The manifest lies in the store before the catalog names
it, and the marker comes after, so that a store alone tells what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from lastgood import faults
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import (
    attempt_objects,
    attempts,
    checkpoints,
    copies,
    generations,
    stages,
)
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.copies import CopyObject
from lastgood.catalog.jobs.generations import Writer
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.keeping import holds
from lastgood.errors import AttemptState, BadManifest, Conflict, LastgoodError, StaleSequence
from lastgood.flows import control_keys
from lastgood.flows.jobs import sealing, verify
from lastgood.flows.jobs.integrity import integrity_failure
from lastgood.rules import layout
from lastgood.rules.canonical import digest, parse_canonical
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import ManifestDigest
from lastgood.stores.base import ForeignEntry, Key, KeyExists, Prefix, Store
from lastgood.stores.open import Stores

INTEGRITY, FENCED, STALE, DEPENDENCY = "integrity", "fenced", "stale-sequence", "dependency-gone"
"""Why a sealed attempt failed: the reason of its transition."""

_NAMED_LIMIT = 1_000
_WAIT, _WAIT_INLINE = timedelta(minutes=1), timedelta(seconds=10)
"""For whoever else reads the same attempt. A worker then reads, too: that one may hang."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a commit stands: committed with its checkpoint, failed with an error, or neither: it is
    sealed, and the reading is left to the workers."""

    attempt: Attempt
    checkpoint: Checkpoint | None = None
    error: LastgoodError | None = None

    def to_json(self) -> Mapping[str, Any]:
        """The outcome, small."""
        document: dict[str, Any] = {
            "attempt": str(self.attempt.attempt_id),
            "checkpoint": str(self.attempt.checkpoint),
            "state": self.attempt.state.value,
        }
        if self.checkpoint is not None:
            document["manifest_digest"] = self.checkpoint.manifest
        if self.error is not None:
            document |= {"error": self.error.type, "detail": str(self.error)}
        return document


def commit(
    catalog: Catalog, stores: Stores, writer: Writer, attempt_id: UUID, manifest: Manifest
) -> Outcome:
    """Commit an attempt with its manifest; the same manifest again gives the same answer. Sealed
    without a checkpoint in the outcome means that verification reads more than a client should wait
    for. Raises what `sealing.seal` raises, IntegrityFailure with every bad object named."""
    attempt = sealing.seal(catalog, writer, attempt_id, manifest)
    faults.point("commit.after-seal")
    outcome = _finish(catalog, stores, attempt, read_limit_bytes=verify.INLINE_BYTES)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def finish(catalog: Catalog, stores: Stores, attempt_id: UUID) -> Mapping[str, Any]:
    """Take a sealed or committed attempt to its end, however much is to be read, and say what
    became of it. Raises AttemptState for an attempt that was never sealed, and StoreError or others
    where something cannot serve now: then it is to be repeated."""
    with catalog.transaction() as tx:
        attempt = attempts.get(tx, None, attempt_id)
    control_keys.guard(catalog, stores, attempt.project)
    return _finish(catalog, stores, attempt, read_limit_bytes=None).to_json()


def _finish(
    catalog: Catalog, stores: Stores, attempt: Attempt, *, read_limit_bytes: int | None
) -> Outcome:
    if attempt.state is State.FAILED:
        return Outcome(attempt, error=_error_of(catalog, attempt))
    store = stores[attempt.store]
    if attempt.state is State.COMMITTED:
        return _prove(catalog, stores, store, attempt)
    attempts.require(attempt, State.SEALED, action="finishing its commit")
    if verify.attests(store):
        return _verified(catalog, stores, attempt, read_limit_bytes)
    with catalog.transaction_apart() as reading:
        wait = _WAIT if read_limit_bytes is None else _WAIT_INLINE
        alone = locks.verifying(reading, attempt.attempt_id, wait=wait)
        if not alone and read_limit_bytes is not None:
            return Outcome(attempt)
        with catalog.transaction() as tx:
            attempt = attempts.get(tx, attempt.project, attempt.attempt_id)
        if attempt.state is State.SEALED:
            return _verified(catalog, stores, attempt, read_limit_bytes)
    return _finish(catalog, stores, attempt, read_limit_bytes=read_limit_bytes)


def _verified(
    catalog: Catalog, stores: Stores, attempt: Attempt, read_limit_bytes: int | None
) -> Outcome:
    """Verify a sealed attempt from where its verified objects end, and commit it."""
    store = stores[attempt.store]
    with catalog.transaction() as tx:
        content = attempts.manifest_of(tx, attempt)
        objects = attempt_objects.of(tx, attempt)
    assert content is not None, "an attempt is sealed with its manifest"
    manifest = parse_canonical(content)
    known = verify.Verification.so_far(objects)
    try:
        _verify(catalog, store, attempt, manifest, objects, known, read_limit_bytes)
    except verify.LongRead:
        return Outcome(attempt)
    except ForeignEntry as foreign:
        # A job put something else in the place of a folder: waiting would change nothing.
        found = verify.unexpected(foreign.facts["what"])
        known.problems[f"../{foreign.facts['key']}"] = found
    faults.point("commit.after-verify")
    if not known.problems:
        _put_manifest(catalog, store, attempt, content, known)
    if known.problems:
        return _fail_integrity(catalog, attempt, known)
    faults.point("commit.after-manifest")
    error = _record(catalog, attempt, manifest, content, known)
    if error is not None:
        with catalog.transaction() as tx:
            now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if isinstance(error, AttemptState):
            error = _error_of(catalog, now)
        return Outcome(now, error=error)
    faults.point("commit.after-transaction")
    return _prove(catalog, stores, store, attempt)


def _verify(
    catalog: Catalog,
    store: Store,
    attempt: Attempt,
    manifest: Manifest,
    objects: Sequence[AttemptObject],
    known: verify.Verification,
    read_limit_bytes: int | None,
) -> None:
    """Publish the objects and verify those of which nothing is known."""
    verify.complete_uploads(store, attempt, objects, known)
    faults.point("commit.after-complete")
    if store.profile.direct:
        # Before it is read, so that what was verified is what stays.
        store.protect(Prefix(f"{attempt.prefix}{layout.OBJECTS_NAME}"))
        known.problems |= verify.unexpected_objects(store, attempt, manifest)
    verify.verify(catalog, store, attempt, manifest, known, read_limit_bytes=read_limit_bytes)


def _put_manifest(
    catalog: Catalog, store: Store, attempt: Attempt, content: bytes, known: verify.Verification
) -> None:
    """Only while the attempt is sealed, and never beside a deletion: whoever was stopped before
    this, and goes on after others have ended and deleted it all, writes nothing there again. Where
    jobs write into the store themselves, one may have put another manifest there."""
    with catalog.transaction() as tx:
        locks.carrying_out(tx, attempt.prefix)
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if now.state is not State.SEALED:
            return
        try:
            store.put_new(Key(layout.manifest_key(attempt.prefix)), content)
        except KeyExists:
            known.problems[f"../{layout.MANIFEST_NAME}"] = verify.unexpected("another manifest")


def _record(
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
    copies.create(
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


def _prove(catalog: Catalog, stores: Stores, store: Store, attempt: Attempt) -> Outcome:
    """Marker and control keys: what lets a store alone tell that this was committed. A copy that a
    sweep has taken since gets no marker again, however long this waited before it writes."""
    with catalog.transaction() as tx:
        locks.carrying_out(tx, attempt.prefix)
        attempt = attempts.get(tx, attempt.project, attempt.attempt_id)
        checkpoint = checkpoints.of_attempt(tx, attempt)
        copy = next(
            copy
            for copy in copies.of_checkpoints(tx, attempt.project, [checkpoint.checkpoint_id])
            if copy.store == attempt.store
        )
        if attempt.finished_at is not None:
            return Outcome(attempt, checkpoint)
        if copy.state is copies.State.PRESENT:
            marker = layout.marker_bytes(checkpoint.manifest)
            store.put_new(Key(layout.marker_key(attempt.prefix)), marker)
    faults.point("commit.after-marker")
    into = control_keys.stores_for(catalog, stores, attempt.project, attempt.store)
    control_keys.publish(catalog, into, attempt.project, attempt.stage_id)
    faults.point("commit.after-control-key")
    with catalog.transaction() as tx:
        attempts.finished(tx, attempt)
    return Outcome(attempt, checkpoint)


def _fail_integrity(catalog: Catalog, attempt: Attempt, known: verify.Verification) -> Outcome:
    """The bytes stay as evidence, and with them the room that they take."""
    with catalog.transaction() as tx:
        stages.locked(tx, attempt.project, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if now.state is State.SEALED:
            known.record(tx, now)
            declared = {item.path for item in attempt_objects.of(tx, now)}
            named = _named(known.problems)
            beside = [problem for problem in named if problem["path"] not in declared]
            facts = {"problems": len(named), "not_prepared": beside[:_NAMED_LIMIT]}
            attempts.transition(
                tx, now, State.FAILED, actor="system", reason=INTEGRITY, facts=facts
            )
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
    attempts.require(now, State.FAILED, action="failing it")
    return Outcome(now, error=integrity_failure(now, _named(known.problems)))


def _named(problems: Mapping[str, verify.Problem]) -> Sequence[Mapping[str, Any]]:
    return [{"path": path, **problems[path]} for path in sorted(problems)]


def _error_of(catalog: Catalog, attempt: Attempt) -> LastgoodError:
    """Why an attempt failed, for whoever asks again."""
    with catalog.transaction() as tx:
        stage = stages.get(tx, attempt.project, attempt.stage_id)
        problems = {
            item.path: item.problem
            for item in attempt_objects.of(tx, attempt)
            if item.problem is not None
        }
        beside = attempts.failure_facts(tx, attempt).get("not_prepared", [])
        fenced = generations.fenced_reason(tx, stage, attempt.generation)
    if attempt.state_reason == FENCED and fenced is not None:
        return generations.fenced(stage, attempt.generation, fenced)
    if attempt.state_reason == INTEGRITY:
        return integrity_failure(attempt, [*_named(problems), *beside])
    return Conflict(reason=f"attempt {attempt.attempt_id} failed: {attempt.state_reason}")
