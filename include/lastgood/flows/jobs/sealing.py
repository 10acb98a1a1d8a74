"""Seal: the first step of a commit. From here on no write, grant or heartbeat is needed or
accepted, and completing and aborting exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempt_objects, attempts, checkpoints, generations, stages
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.generations import Writer
from lastgood.catalog.jobs.stages import Stage
from lastgood.errors import BadManifest, ManifestConflict, NotFound
from lastgood.flows.jobs.prepare import require_newer
from lastgood.rules.canonical import canonical_bytes, digest
from lastgood.rules.manifest import Manifest


def seal(catalog: Catalog, writer: Writer, attempt_id: UUID, manifest: Manifest) -> Attempt:
    """Seal an open attempt with its manifest; an attempt that was sealed with the same manifest is
    answered as it stands, whatever became of it.

    Raises NotFound for another generation's attempt, BadManifest where the manifest is not the one
    of this attempt, ManifestConflict, FencedGeneration, LeaseExpired, StaleSequence, AttemptState.
    """
    content = canonical_bytes(manifest)
    with catalog.transaction() as tx:
        attempt = _own(tx, writer, attempt_id)
        if attempt.state is State.OPEN:
            _check_identity(attempt, manifest)
            _check_objects(attempt_objects.of(tx, attempt), manifest)
    with catalog.transaction() as tx:
        stage = stages.locked(tx, writer.project, writer.stage_id)
        locks.attempt(tx, attempt_id)
        attempt = _own(tx, writer, attempt_id)
        if attempt.state is not State.OPEN:
            _require_same(tx, attempt, content)
            return attempt
        generation = generations.require_writing(tx, stage, writer)
        require_newer(tx, stage, attempt.generation, attempt.sequence)
        _check_lineage(tx, stage, manifest)
        attempts.transition(
            tx,
            attempt,
            State.SEALED,
            actor=generation.actor,
            reason="commit asked",
            facts={"manifest": digest(content), "bytes": manifest.size_bytes},
            manifest=content,
        )
        return attempts.get(tx, writer.project, attempt_id)


def _own(tx: Transaction, writer: Writer, attempt_id: UUID) -> Attempt:
    attempt = attempts.get(tx, writer.project, attempt_id)
    if (attempt.stage_id, attempt.generation) != (writer.stage_id, writer.generation):
        raise NotFound(what="attempt", name=str(attempt_id))
    return attempt


def _require_same(tx: Transaction, attempt: Attempt, content: bytes) -> None:
    known = attempts.manifest_of(tx, attempt)
    if known is None:
        attempts.require(attempt, State.OPEN, action="committing it")
    elif known != content:
        raise ManifestConflict(
            attempt=str(attempt.attempt_id), committed=digest(known), sent=digest(content)
        )


def _check_identity(attempt: Attempt, manifest: Manifest) -> None:
    for field, said, prepared in (
        ("project", manifest.project, attempt.project),
        ("workload", manifest.workload, attempt.workload),
        ("stage", manifest.stage, attempt.stage),
        ("generation", manifest.generation, attempt.generation),
        ("sequence", manifest.sequence, attempt.sequence),
        ("step", manifest.step, attempt.step),
        ("kind", manifest.kind.value, attempt.kind),
    ):
        if said != prepared:
            raise BadManifest(where=f"$.{field}", reason=f"{said!r}; prepared was {prepared!r}")


def _check_objects(declared: Sequence[AttemptObject], manifest: Manifest) -> None:
    """The manifest names exactly the objects that were prepared."""
    left = {item.path: item for item in declared}
    for index, item in enumerate(manifest.objects):
        known = left.pop(item.path, None)
        where = f"$.objects[{index}]"
        if known is None:
            raise BadManifest(where=f"{where}.path", reason=f"{item.path!r} was not prepared")
        if known.size_bytes != item.size_bytes:
            reason = f"{item.size_bytes}; prepared were {known.size_bytes} bytes"
            raise BadManifest(where=f"{where}.bytes", reason=reason)
        if known.sha256 not in (None, item.sha256):
            reason = f"{item.sha256}; prepared was {known.sha256}"
            raise BadManifest(where=f"{where}.sha256", reason=reason)
    if left:
        raise BadManifest(
            where="$.objects",
            reason=f"{len(left)} prepared objects are not named, such as {next(iter(left))!r}",
        )


def _check_lineage(tx: Transaction, stage: Stage, manifest: Manifest) -> None:
    present = checkpoints.present_manifests(tx, stage.project, manifest.dependencies)
    for index, needed in enumerate(manifest.dependencies):
        if needed not in present:
            raise BadManifest(
                where=f"$.dependencies[{index}]", reason=f"no sound copy has manifest {needed}"
            )
    origin = manifest.resumed_from
    if origin is None:
        return
    try:
        resumed = checkpoints.at(tx, stage, (origin.generation, origin.sequence))
    except NotFound as error:
        raise BadManifest(where="$.resumed_from", reason=str(error).rstrip(".")) from None
    if resumed.manifest != origin.manifest:
        reason = f"{resumed.id} has manifest {resumed.manifest}"
        raise BadManifest(where="$.resumed_from.manifest", reason=reason)
