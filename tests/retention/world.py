"""A project as an operator would have it: a catalog, a store with real bytes, a policy, a clock
that a test moves. Checkpoints are committed through the catalog's own functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import (
    attempt_objects,
    attempts,
    checkpoints,
    copies,
    copy_transitions,
    generations,
    stages,
)
from lastgood.catalog.jobs.attempt_objects import DeclaredObject
from lastgood.catalog.jobs.attempts import NewAttempt
from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.catalog.keeping import holds
from lastgood.catalog.retention.marks import MarkCandidate
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.catalog.validation import receipts
from lastgood.catalog.validation.receipts import Level, Receipt, Validation, Verdict
from lastgood.flows import control_keys
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import sweep
from lastgood.rules import canonical, layout
from lastgood.rules.manifest import CheckpointKind, Manifest, ManifestObject, ResumedFrom
from lastgood.rules.names import AttemptId, CheckpointId, StageId
from lastgood.rules.policy import Policy
from lastgood.stores.base import Key, Store
from lastgood.stores.file import FileStore
from tests.factories import upload_object

PROJECT = "vision"
POLICY: dict[str, Any] = {
    "name": "short",
    "roles": {"hot": {"keep": "newest", "count": 2}},
    "gate": {"level": "checksum", "receipt_max_age": "7d"},
    "quarantine": {"grace": "1h", "approve_above": None, "share_guard": "100%"},
    "uploads": {"abort_after": "1h"},
    "forensic_retention": "2d",
    "lineage": True,
}


@dataclass
class World:
    """One project `vision` with stage `gpt/pretrain` and store `local`."""

    catalog: Catalog
    owner: psycopg.Connection[Any]
    store: Store
    stores: Any = field(default_factory=dict)
    writer: str = "trainer"
    _offset: timedelta = timedelta(0)

    # --- configuration ---

    def promote(self, changes: Mapping[str, Any] | None = None, *, name: str = "short") -> Policy:
        """Put a policy in force: the short one with these changes."""
        document = {**POLICY, "name": name, **(changes or {})}
        policy = Policy.parse(document, where="test")
        with self.catalog.transaction() as tx:
            locks.project_exclusive(tx, PROJECT)
            policy_versions.promote(
                tx, PROJECT, name, policy.digest, policy.to_json(), recorded_by="test"
            )
        return policy

    # --- time ---

    @property
    def offset(self) -> timedelta:
        """How far the catalog's clock was put from the server's."""
        return self._offset

    def advance(self, by: timedelta) -> None:
        """Let this much time pass by the catalog's clock, as if it had really passed."""
        self.set_clock(self._offset + by)
        self.owner.execute("DELETE FROM lastgood.clock_readings")

    def advance_to_morning(self) -> None:
        """To six o'clock UTC: for what happens within the hours of one day, whenever it is run."""
        now = self.now()
        morning = now.replace(hour=6, minute=0, second=0, microsecond=0)
        self.advance((morning - now) % timedelta(days=1))

    def set_clock(self, offset: timedelta) -> None:
        """Put the catalog's clock this far from the server's; readings of it stay as they are."""
        self._offset = offset
        self.owner.execute(
            "CREATE OR REPLACE FUNCTION lastgood.catalog_clock() RETURNS timestamptz LANGUAGE sql"
            f" VOLATILE AS 'SELECT clock_timestamp() + interval ''{offset.total_seconds()} s'''"
        )

    def now(self) -> datetime:
        with self.catalog.transaction() as tx:
            return history.now(tx)

    # --- a training job ---

    def generation(
        self,
        number: int = 1,
        *,
        stage: str = "pretrain",
        resumed_from: tuple[int, int] | None = None,
        lease: timedelta = timedelta(minutes=15),
    ) -> int:
        """Let a stage be acquired up to this generation; answers the stage's id."""
        name = self.stage_name(stage)
        while True:
            with self.catalog.transaction() as tx:
                opened = stages.open_locked(
                    tx, name, kind=None, workload_class=None, actor="runner:test"
                )
                if opened.generation >= number:
                    return opened.stage_id
                generations.fence_earlier(tx, opened, actor="runner:test", reason="a newer one")
                generations.begin(
                    tx,
                    opened,
                    idempotency_key=str(uuid4()),
                    holder=self.writer,
                    fresh=False,
                    resumed_from=resumed_from if opened.generation + 1 == number else None,
                    preemption_id=None,
                    lease=lease,
                )

    def release_writer(self, *, stage: str = "pretrain") -> None:
        with self.catalog.transaction() as tx:
            locked = stages.find_locked(tx, self.stage_name(stage))
            last = generations.get(tx, PROJECT, locked.stage_id, locked.generation)
            generations.release(tx, locked, last)

    def stage_name(self, stage: str = "pretrain") -> StageId:
        return StageId.of(PROJECT, "gpt", stage)

    def prepare(
        self,
        sequence: int,
        objects: Mapping[str, bytes],
        *,
        generation: int = 1,
        stage: str = "pretrain",
        grant: timedelta = timedelta(minutes=15),
        kind: str = "full",
    ) -> attempts.Attempt:
        """An open attempt whose writer has sent nothing yet."""
        stage_id = self.generation(generation, stage=stage)
        checkpoint = CheckpointId.of(self.stage_name(stage), generation, sequence)
        attempt_id = uuid4()
        declared = sum(map(len, objects.values()))
        with self.catalog.transaction() as tx:
            stages.locked(tx, PROJECT, stage_id)
            event = history.record(tx, stage_id, "prepared", actor="runner:test", facts={})
            new = NewAttempt(
                attempt_id=attempt_id,
                project=PROJECT,
                stage_id=stage_id,
                generation=generation,
                sequence=sequence,
                step=sequence * 100,
                kind=kind,
                idempotency_key=str(attempt_id),
                request_sha256="0" * 64,
                token=str(attempt_id),
                store=self.store.name,
                prefix=layout.attempt_prefix(checkpoint, AttemptId(str(attempt_id))),
                declared_bytes=declared,
                claimed_bytes=declared,
            )
            listed = [DeclaredObject(path, len(data), None) for path, data in objects.items()]
            attempts.begin(tx, new, event=event, lease=grant, grant=grant)
            attempt_objects.declare(tx, new, listed, [None] * len(listed))
            capacity.claim(tx, PROJECT, self.store.name, declared)
            return attempts.get(tx, PROJECT, attempt_id)

    def commit(
        self,
        sequence: int,
        objects: Mapping[str, bytes] | None = None,
        *,
        generation: int = 1,
        stage: str = "pretrain",
        metrics: Mapping[str, float] | None = None,
        depends_on: Sequence[Copy] = (),
        resumed_from: Copy | None = None,
        receipt: Verdict | None = "pass",
        level: Level = "checksum",
        declares: Mapping[str, Any] | None = None,
    ) -> Copy:
        """A committed checkpoint with its bytes in the store, and a receipt unless it is None.
        `declares` are further fields of its manifest."""
        data = objects or {"model.bin": f"{stage} {generation}.{sequence}".encode() * 10}
        kind = "incremental" if depends_on else "full"
        attempt = self.prepare(sequence, data, generation=generation, stage=stage, kind=kind)
        for path, content in data.items():
            upload_object(self.store, layout.object_key(attempt.prefix, path), content)
        manifest = _manifest(attempt, data, metrics or {}, depends_on, resumed_from)
        manifest = replace(manifest, **(declares or {}))
        body = canonical.canonical_bytes(manifest)
        digest = canonical.digest(body)
        marker = layout.marker_bytes(digest)
        self.store.put_new(Key(layout.manifest_key(attempt.prefix)), body)
        with self.catalog.transaction() as tx:
            copy_id = self._record(tx, attempt, manifest, digest, body, len(body) + len(marker))
        self.store.put_new(Key(layout.marker_key(attempt.prefix)), marker)
        copy = self.copy(copy_id)
        if receipt is not None:
            self.receipt(copy, receipt, level)
        return copy

    def _record(
        self,
        tx: Transaction,
        attempt: attempts.Attempt,
        manifest: Manifest,
        digest: Any,
        body: bytes,
        control_bytes: int,
    ) -> int:
        stages.locked(tx, PROJECT, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        attempts.transition(
            tx, attempt, attempts.State.SEALED, actor="runner:test", reason="", manifest=body
        )
        sealed = attempts.get(tx, PROJECT, attempt.attempt_id)
        event = attempts.transition(
            tx, sealed, attempts.State.COMMITTED, actor="runner:test", reason=""
        )
        origin = manifest.resumed_from
        checkpoint_id = checkpoints.record(
            tx,
            sealed,
            manifest,
            digest,
            body,
            resumed_from=(origin.generation, origin.sequence) if origin else None,
            recorded_at=event.recorded_at,
        )
        copy_id = copy_transitions.create(
            tx,
            checkpoint_id=checkpoint_id,
            store=attempt.store,
            prefix=attempt.prefix,
            control_bytes=control_bytes,
            objects=[
                CopyObject(o.path, o.size_bytes, o.sha256, self._version(attempt, o.path))
                for o in manifest.objects
            ],
            actor="runner:test",
            recorded_at=event.recorded_at,
        )
        holds.apply_standing_selectors(tx, checkpoint_id)
        checkpoints.advance_pointer(tx, sealed, checkpoint_id, event.recorded_at)
        capacity.commit(
            tx,
            PROJECT,
            attempt.store,
            claimed_bytes=attempt.claimed_bytes,
            stored_bytes=manifest.size_bytes + control_bytes,
        )
        attempts.finished(tx, sealed)
        return copy_id

    def _version(self, attempt: attempts.Attempt, path: str) -> str | None:
        if not self.store.profile.versioned:
            return None
        there = self.store.stat(Key(layout.object_key(attempt.prefix, path)))
        return None if there is None else there.version_id

    def receipt(self, copy: Copy, verdict: Verdict = "pass", level: Level = "checksum") -> Receipt:
        """A receipt without reading anything."""
        with self.catalog.transaction() as tx:
            stages.locked(tx, PROJECT, copy.stage_id)
            now = history.now(tx)
            said = Validation(level, verdict, "test", "1", now, now, 0, verdict)
            return receipts.append(tx, copy, said, actor="test")

    # --- what the tests look at ---

    def copy(self, copy: Copy | int) -> Copy:
        with self.catalog.transaction() as tx:
            return copies.get(tx, PROJECT, copy if isinstance(copy, int) else copy.copy_id)

    def state(self, copy: Copy) -> str:
        return self.copy(copy).state.value

    def keys(self, copy: Copy) -> dict[str, bool]:
        """What lies below a copy's prefix: hidden or not, by key relative to it."""
        return {
            one.key.removeprefix(copy.prefix): one.hidden for one in self.store.list(copy.prefix)
        }

    def mark(self) -> int:
        mark_id: int = mark.run(self.catalog, PROJECT)["mark_id"]
        return mark_id

    def sweep(self, **options: Any) -> dict[str, Any]:
        return sweep.run(self.catalog, self.stores, PROJECT, "dag:test", **options)

    def row(self, query: str, *values: object) -> tuple[Any, ...]:
        found = self.owner.execute(query, values).fetchone()  # type: ignore[call-overload]
        assert found is not None
        row: tuple[Any, ...] = found
        return row


def simple_manifest(attempt: attempts.Attempt, data: Mapping[str, bytes]) -> Manifest:
    """The manifest of a full checkpoint with these objects."""
    return _manifest(attempt, data, {}, (), None)


def _manifest(
    attempt: attempts.Attempt,
    data: Mapping[str, bytes],
    metrics: Mapping[str, float],
    depends_on: Sequence[Copy],
    resumed_from: Copy | None,
) -> Manifest:
    objects = tuple(
        ManifestObject(path, len(content), canonical.digest(content))
        for path, content in sorted(data.items())
    )
    origin = None
    if resumed_from is not None:
        origin = ResumedFrom(*resumed_from.checkpoint.position, resumed_from.manifest)
    name = attempt.checkpoint
    return Manifest(
        name.project,
        name.workload,
        name.stage,
        name.generation,
        name.sequence,
        attempt.step,
        objects,
        kind=CheckpointKind(attempt.kind),
        metrics=metrics,
        dependencies=tuple(copy.manifest for copy in depends_on),  # type: ignore[misc]
        resumed_from=origin,
    )


def candidates_of_mark(tx: Transaction, project: str, mark_id: int) -> list[MarkCandidate]:
    """The candidates of a mark, by stage and the oldest checkpoint first."""
    rows = tx.execute(
        """
        SELECT m.copy_id, m.stage_id, m.checkpoint_id, m.leaves, m.reasons, m.bytes
          FROM mark_candidates m JOIN checkpoints k USING (checkpoint_id)
         WHERE m.project = %s AND m.mark_id = %s
         ORDER BY m.stage_id, k.generation, k.sequence, m.copy_id
        """,
        (project, mark_id),
    )
    return [MarkCandidate(**row) for row in rows]


@contextmanager
def opened(
    catalog_dsn: str, owner_dsn: str, root: Path, store: Store | None = None
) -> Iterator[World]:
    """A world over a fresh catalog and an empty store: at `root`, unless another is given."""
    if store is None:
        root.mkdir(parents=True, exist_ok=True)
        store = FileStore("local", root)
    config = {"name": store.name, "kind": store.profile.kind, "root": str(root)}
    with Catalog(catalog_dsn) as catalog, psycopg.connect(owner_dsn, autocommit=True) as owner:
        with catalog.transaction() as tx:
            projects.put_store(
                tx, StoreRow(store.name, store.profile.kind, config, "rack-1", "fast")
            )
            projects.put(tx, Project(PROJECT, "team", store.name, "short", {}, None))
        control_keys.claim(catalog, store)
        world = World(catalog, owner, store, {store.name: store})
        world.promote()
        yield world
