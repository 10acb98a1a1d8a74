"""Prepare: room, a place and an upload for each object of one checkpoint to come."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from lastgood import faults
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempt_objects, attempts, checkpoints, generations, stages
from lastgood.catalog.jobs.attempt_objects import AttemptObject, DeclaredObject
from lastgood.catalog.jobs.attempts import Attempt, NewAttempt, State
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.generations import Writer
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.tokens import fencing_token
from lastgood.errors import (
    AttemptState,
    IdempotencyConflict,
    InvalidInput,
    LastgoodError,
    NoRoom,
    StaleSequence,
)
from lastgood.flows.capacity import pressure
from lastgood.flows.capacity.admission import admit
from lastgood.flows.policies import policy_of
from lastgood.rules import layout
from lastgood.rules.canonical import canonical_json
from lastgood.rules.manifest_room import manifest_room
from lastgood.rules.names import AttemptId, CheckpointId
from lastgood.rules.policy import Policy
from lastgood.stores.base import Key, Prefix, Store, UploadId
from lastgood.stores.job_folders import MakesJobFolders
from lastgood.stores.open import Stores
from lastgood.stores.parts import part_count

OBJECTS_LIMIT = 100_000
_BEGINNERS = 16


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What a writer is about to save. Names, paths and sizes were checked."""

    sequence: int
    step: int
    kind: str
    idempotency_key: str
    objects: Sequence[DeclaredObject]

    @property
    def sha256(self) -> str:
        """Equal for equal requests: a repeated key must mean the same."""
        said = [
            [item.path, item.size_bytes, item.sha256]
            for item in sorted(self.objects, key=lambda item: item.path)
        ]
        document = [self.sequence, self.step, self.kind, said]
        return hashlib.sha256(canonical_json(document)).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.objects)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An open attempt with the token that lets ranks upload to it, and what to upload how."""

    attempt: Attempt
    fencing_token: str
    how: str  # "presigned" | "endpoint" | "direct"
    direct_path: str | None
    objects: Sequence[AttemptObject]
    lease_expires_at: datetime


def prepare(
    catalog: Catalog, stores: Stores, writer: Writer, token: str, request: PrepareRequest
) -> Prepared:
    """Open an attempt, or repeat the answer of a prepare with the same idempotency key.

    Raises FencedGeneration, LeaseExpired, StaleSequence, AttemptState while another attempt has the
    sequence, IdempotencyConflict, NoRoom.
    """
    if not request.objects or len(request.objects) > OBJECTS_LIMIT:
        raise InvalidInput(
            where="$.objects", reason=f"there are {len(request.objects)}; give 1 to {OBJECTS_LIMIT}"
        )
    with catalog.transaction() as tx:
        names = [projects.get(tx, writer.project).store, *_spill_store(tx, writer.project)]
    candidates = [stores[name] for name in dict.fromkeys(names)]
    try:
        attempt = _opened(catalog, candidates, writer, token, request)
    except NoRoom as error:
        pressure.refused(catalog, writer.project, asked_bytes=error.facts["asked_bytes"])
        raise
    faults.point("prepare.after-transaction")
    store = stores[attempt.store]
    objects = create_uploads(catalog, store, attempt)
    faults.point("prepare.after-uploads")
    return Prepared(
        attempt,
        fencing_token(token, str(attempt.attempt_id)),
        how_of(store),
        _direct_path(store, attempt, objects),
        objects,
        attempt.lease_expires_at,
    )


def _direct_path(store: Store, attempt: Attempt, objects: Sequence[AttemptObject]) -> str | None:
    if not store.profile.direct:
        return None
    assert isinstance(store, MakesJobFolders)
    folder = Prefix(f"{attempt.prefix}{layout.OBJECTS_NAME}")
    return store.make_direct(folder, [item.path for item in objects])


def _opened(
    catalog: Catalog,
    candidates: Sequence[Store],
    writer: Writer,
    token: str,
    request: PrepareRequest,
) -> Attempt:
    with catalog.transaction() as tx:
        stage = stages.locked(tx, writer.project, writer.stage_id)
        policy = policy_of(tx, writer.project)
        generation = generations.require_writing(tx, stage, writer)
        generations.renew(tx, generation, policy.leases.generation)
        attempt = attempts.by_idempotency_key(
            tx, stage.stage_id, writer.generation, request.idempotency_key
        )
        if attempt is None:
            attempt_id = _open(
                tx, stage, writer, generation.actor, token, policy, candidates, request
            )
            return attempts.get(tx, writer.project, attempt_id)
        return _again(tx, attempt, token, policy, request)


def _spill_store(tx: Transaction, project: str) -> list[str]:
    """The store that the policy approves for what finds no room, if it is registered."""
    named = policy_of(tx, project).capacity.spill_store
    return [one.name for one in projects.stores(tx) if one.name == named]


def how_of(store: Store) -> str:
    """How a job sends bytes to a store."""
    if store.profile.direct:
        return "direct"
    return "presigned" if store.profile.presigns else "endpoint"


def _open(
    tx: Transaction,
    stage: Stage,
    writer: Writer,
    actor: str,
    token: str,
    policy: Policy,
    candidates: Sequence[Store],
    request: PrepareRequest,
) -> UUID:
    _require_next(tx, stage, writer, request)
    attempt_id = uuid4()
    event = history.record(
        tx,
        stage.stage_id,
        "prepared",
        actor=actor,
        facts={
            "attempt": str(attempt_id),
            "generation": writer.generation,
            "sequence": request.sequence,
            "bytes": request.size_bytes,
            "objects": len(request.objects),
        },
    )
    newest = checkpoints.latest(tx, stage)
    claimed_bytes = request.size_bytes + _manifest_room(tx, newest, candidates, request)
    # The counters are the last lock; a refusal takes all of this back.
    store = admit(
        tx,
        stage.project,
        policy.capacity,
        candidates,
        claimed_bytes,
        new_job=newest is None,
        actor=actor,
    )
    checkpoint = CheckpointId.of(stage.name, writer.generation, request.sequence)
    new = NewAttempt(
        attempt_id=attempt_id,
        project=stage.project,
        stage_id=stage.stage_id,
        generation=writer.generation,
        sequence=request.sequence,
        step=request.step,
        kind=request.kind,
        idempotency_key=request.idempotency_key,
        request_sha256=request.sha256,
        token=fencing_token(token, str(attempt_id)),
        store=store.name,
        prefix=layout.attempt_prefix(checkpoint, AttemptId(str(attempt_id))),
        declared_bytes=request.size_bytes,
        claimed_bytes=claimed_bytes,
    )
    attempts.begin(tx, new, event=event, lease=policy.leases.writer, grant=policy.leases.grant)
    parts = [_part_bytes(store, item) for item in request.objects]
    attempt_objects.declare(tx, new, request.objects, parts)
    return attempt_id


def _part_bytes(store: Store, item: DeclaredObject) -> int | None:
    return None if store.profile.direct else store.part_bytes(item.size_bytes)


def _manifest_room(
    tx: Transaction, newest: Checkpoint | None, candidates: Sequence[Store], request: PrepareRequest
) -> int:
    """What the manifest will take, wherever the checkpoint finds room."""
    known = checkpoints.manifest_bytes(tx, newest.project, newest.manifest) if newest else 0
    return max(
        manifest_room(((item.path, _parts(store, item)) for item in request.objects), known)
        for store in candidates
    )


def _parts(store: Store, item: DeclaredObject) -> int:
    each_bytes = _part_bytes(store, item)
    return 0 if each_bytes is None else part_count(item.size_bytes, each_bytes)


def _require_next(tx: Transaction, stage: Stage, writer: Writer, request: PrepareRequest) -> None:
    """A sequence is used once, and only forward."""
    require_newer(tx, stage, writer.generation, request.sequence)
    rival = attempts.live_at(tx, stage.stage_id, writer.generation, request.sequence)
    if rival is not None:
        raise AttemptState(
            attempt=str(rival.attempt_id),
            state=rival.state.value,
            action=f"another attempt at sequence {request.sequence}",
            needed="failed or closed",
        )


def require_newer(tx: Transaction, stage: Stage, generation: int, sequence: int) -> None:
    """Raises StaleSequence unless the position lies behind the stage's pointer."""
    latest = checkpoints.latest(tx, stage)
    if latest is not None and latest.id.position >= (generation, sequence):
        raise StaleSequence(
            stage=str(stage.name),
            current=f"{latest.generation}.{latest.sequence}",
            asked=f"{generation}.{sequence}",
        )


def _again(
    tx: Transaction, attempt: Attempt, token: str, policy: Policy, request: PrepareRequest
) -> Attempt:
    locks.attempt(tx, attempt.attempt_id)
    attempt = attempts.get(tx, attempt.project, attempt.attempt_id)
    if attempt.request_sha256 != request.sha256:
        raise IdempotencyConflict(key=request.idempotency_key)
    attempts.require(attempt, State.OPEN, action="preparing it")
    attempts.change_token(tx, attempt, fencing_token(token, str(attempt.attempt_id)))
    return attempts.renew(tx, attempt, lease=policy.leases.writer, grant=policy.leases.grant)


def create_uploads(catalog: Catalog, store: Store, attempt: Attempt) -> Sequence[AttemptObject]:
    """Begin the uploads that an open attempt does not have yet. Each id is recorded before anybody
    can send a part; what a crash leaves in between is a pending upload below the attempt's prefix.
    Raises AttemptState if the attempt was aborted meanwhile; then none of these uploads stays."""
    with catalog.transaction() as tx:
        objects = attempt_objects.of(tx, attempt)
    missing = [item for item in objects if item.upload_id is None]
    if store.profile.direct or not missing:
        return objects
    begun: dict[str, UploadId] = {}
    try:
        for item, upload_id in zip(missing, _begin(store, attempt, missing), strict=False):
            begun[item.path] = upload_id
        faults.point("prepare.before-uploads-are-recorded")
        with catalog.transaction() as tx:
            locks.attempt_shared(tx, attempt.attempt_id)
            now = attempts.get(tx, attempt.project, attempt.attempt_id)
            attempts.require(now, State.OPEN, action="beginning its uploads")
            taken = attempt_objects.record_uploads(tx, attempt, begun)
            objects = attempt_objects.of(tx, attempt)
    except LastgoodError:
        _abort(store, attempt, begun)
        raise
    _abort(store, attempt, {path: begun[path] for path in taken})
    return objects


def _begin(store: Store, attempt: Attempt, objects: Sequence[AttemptObject]) -> Iterator[UploadId]:
    """An upload for each object; over a network several at once."""

    def begin(item: AttemptObject) -> UploadId:
        return store.create_upload(
            Key(layout.object_key(attempt.prefix, item.path)), item.size_bytes
        )

    if not store.profile.presigns or len(objects) == 1:
        yield from map(begin, objects)
        return
    with ThreadPoolExecutor(min(_BEGINNERS, len(objects))) as threads:
        yield from threads.map(begin, objects)


def _abort(store: Store, attempt: Attempt, uploads: Mapping[str, UploadId]) -> None:
    for path, upload_id in uploads.items():
        store.abort_upload(Key(layout.object_key(attempt.prefix, path)), upload_id)
