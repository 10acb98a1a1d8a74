"""A catalog and a file store that agree, made row by row, for tests that then make them
disagree."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from lastgood.rules import layout
from lastgood.rules.names import AttemptId, CheckpointId, ManifestDigest, StageId
from lastgood.rules.policy import Policy
from lastgood.stores.base import Key, Prefix
from lastgood.stores.file import FileStore

Connection = psycopg.Connection[tuple[object, ...]]
HOT = {"hot": {"keep": "newest", "count": 4}}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Written:
    """One attempt with its bytes: `key_of` an object's path is where it lies."""

    attempt: str
    prefix: str
    copy_id: int | None
    checkpoint_id: int | None
    checkpoint: CheckpointId
    stored_bytes: int

    def key_of(self, path: str) -> Key:
        return Key(layout.object_key(self.prefix, path))


class Prepared:
    """One store `local` below `root`, and what its catalog says of it. Nobody claims the store: its
    control keys state no facts that a guard could compare."""

    def __init__(
        self, owner_dsn: str, root: Path, *, projects: tuple[str, ...] = ("vision",)
    ) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.store = FileStore("local", root)
        self.owner: Connection = psycopg.connect(owner_dsn, autocommit=True)
        self.owner.execute("SET search_path = lastgood")
        self.owner.execute(
            "INSERT INTO stores (store, kind, config, failure_domain, tier)"
            " VALUES ('local', 'file', %s, 'rack-1', 'fast')",
            (Jsonb({"root": str(root), "direct": False}),),
        )
        for project in projects:
            self.add_project(project)

    def add_project(self, project: str) -> None:
        self.owner.execute(
            "INSERT INTO projects (project, owner, store, policy, config)"
            " VALUES (%s, 'platform', 'local', 'default', %s)",
            (
                project,
                Jsonb(
                    {
                        "finding_owner": "storage-oncall",
                        "finding_deadline_seconds": 259200.0,
                        "classes": {},
                        "lease_seconds": {},
                    }
                ),
            ),
        )
        self.owner.execute(
            "INSERT INTO capacity_counters (project, store) VALUES (%s, 'local')", (project,)
        )
        policy = Policy.parse({"name": "default", "roles": HOT}, where="test")
        self.owner.execute(
            "INSERT INTO policy_versions SELECT %s, 'default', 1, %s, %s, at, at, 'test'"
            "  FROM (SELECT catalog_clock() - interval '30 days' AS at) AS moment",
            (project, policy.digest, Jsonb(policy.to_json())),
        )

    def put(self, key: str, data: bytes) -> Key:
        self.store.put_new(Key(key), data)
        return Key(key)

    def stage(self, project: str = "vision", workload: str = "resnet", stage: str = "train") -> int:
        row = self.owner.execute(
            "SELECT stage_id FROM stages WHERE project = %s AND workload = %s AND stage = %s",
            (project, workload, stage),
        ).fetchone()
        if row is not None:
            return int(str(row[0]))
        row = self.owner.execute(
            "INSERT INTO stages (project, workload, stage, kind, class, generation, last_event,"
            " last_recorded_at) VALUES (%s, %s, %s, 'checkpointed', 'default', 1, 9,"
            " catalog_clock() - interval '2 hours') RETURNING stage_id",
            (project, workload, stage),
        ).fetchone()
        assert row is not None
        self.owner.execute(
            "INSERT INTO generations VALUES (%s, 1, %s, 'k', 'job-1', false, NULL, NULL, NULL,"
            " catalog_clock())",
            (row[0], project),
        )
        self.owner.execute(
            "INSERT INTO generation_leases VALUES (%s, 1, %s, catalog_clock() + interval '1 hour')",
            (row[0], project),
        )
        name = StageId.of(project, workload, stage)
        self.put(layout.generation_key(name, 1), b'{"generation": 1}')
        self.put(layout.event_key(name, 9), b'{"event": 9}')
        return int(str(row[0]))

    def attempt(
        self,
        objects: Mapping[str, bytes],
        *,
        state: str = "open",
        lease: str = "1 hour",
        project: str = "vision",
        sequence: int | None = None,
        write: bool = True,
    ) -> Written:
        """An attempt in this state, its objects published."""
        stage_id = self.stage(project)
        number = next(_numbers) if sequence is None else sequence
        checkpoint = CheckpointId.of(StageId.of(project, "resnet", "train"), 1, number)
        attempt = AttemptId(str(uuid4()))
        prefix = layout.attempt_prefix(checkpoint, attempt)
        size = sum(map(len, objects.values()))
        self.owner.execute(
            """
            INSERT INTO attempts (attempt_id, project, stage_id, generation, sequence, step, kind,
                                  idempotency_key, request_sha256, token_sha256, store, prefix,
                                  declared_bytes, claimed_bytes, recorded_at, state, state_at,
                                  lease_expires_at, grant_expires_at)
            VALUES (%s, %s, %s, 1, %s, %s, 'full', %s, '', %s, 'local', %s, %s, %s,
                    catalog_clock() - interval '1 day', %s, catalog_clock() - interval '1 day',
                    catalog_clock() + %s::interval, catalog_clock() + %s::interval)
            """,
            (attempt, project, stage_id, number, number * 100, attempt, attempt.encode(), prefix,
             size, size, state, lease, lease),
        )  # fmt: skip
        for path, data in objects.items():
            self.owner.execute(
                "INSERT INTO attempt_objects (attempt_id, path, project, size_bytes)"
                " VALUES (%s, %s, %s, %s)",
                (attempt, path, project, len(data)),
            )
            if write:
                self.put(layout.object_key(prefix, path), data)
        return Written(attempt, prefix, None, None, checkpoint, size)

    def commit(
        self,
        objects: Mapping[str, bytes],
        *,
        state: str = "present",
        project: str = "vision",
        sequence: int | None = None,
        age: str = "1 day",
    ) -> Written:
        """A committed checkpoint whose copy is in this state, in the catalog and in the store."""
        taken = self.attempt(objects, state="committed", project=project, sequence=sequence)
        body = json.dumps({"attempt": taken.attempt}).encode()
        digest = ManifestDigest(hashlib.sha256(body).hexdigest())
        marker = layout.marker_bytes(digest)
        self.put(layout.manifest_key(taken.prefix), body)
        self.put(layout.marker_key(taken.prefix), marker)
        self.owner.execute(
            "INSERT INTO manifests VALUES (%s, %s, %s, catalog_clock())", (project, digest, body)
        )
        stage_id = self.stage(project)
        number = taken.checkpoint.sequence
        row = self.owner.execute(
            """
            INSERT INTO checkpoints (project, stage_id, generation, sequence, step, attempt_id,
                                     manifest, total_bytes, object_count, metrics, final,
                                     recorded_at)
            VALUES (%s, %s, 1, %s, %s, %s, %s, %s, %s, %s, false, catalog_clock() - %s::interval)
            RETURNING checkpoint_id
            """,
            (project, stage_id, number, number * 100, taken.attempt, digest, taken.stored_bytes,
             len(objects), Jsonb({"eval/loss": 1 / (number + 1)}), age),
        ).fetchone()  # fmt: skip
        assert row is not None
        checkpoint_id = int(str(row[0]))
        self.owner.execute(
            "INSERT INTO latest_pointers VALUES (%s, %s, 1, %s, %s, catalog_clock())"
            " ON CONFLICT (stage_id) DO UPDATE SET generation = 1, sequence = excluded.sequence,"
            " checkpoint_id = excluded.checkpoint_id",
            (stage_id, project, number, checkpoint_id),
        )
        control_bytes = len(body) + len(marker)
        row = self.owner.execute(
            """
            INSERT INTO copies (project, stage_id, checkpoint_id, store, prefix, control_bytes,
                                recorded_at, state, state_at)
            VALUES (%s, %s, %s, 'local', %s, %s, catalog_clock() - %s::interval, %s,
                    catalog_clock() - %s::interval)
            RETURNING copy_id
            """,
            (project, stage_id, checkpoint_id, taken.prefix, control_bytes, age, state, age),
        ).fetchone()  # fmt: skip
        assert row is not None
        copy_id = int(str(row[0]))
        self._transitions(copy_id, stage_id, project, state, age)
        for path, data in objects.items():
            self.owner.execute(
                "INSERT INTO copy_objects VALUES (%s, %s, %s, %s, %s, NULL)",
                (copy_id, path, project, len(data), hashlib.sha256(data).hexdigest()),
            )
        if state in ("quarantined", "deleting"):
            self.store.quarantine(Prefix(taken.prefix), [])
        if state == "deleted":
            list(self.store.delete(list(self.store.list(Prefix(taken.prefix)))))
        stored = taken.stored_bytes + control_bytes
        return Written(
            taken.attempt, taken.prefix, copy_id, checkpoint_id, taken.checkpoint, stored
        )

    def _transitions(self, copy_id: int, stage_id: int, project: str, state: str, age: str) -> None:
        steps = ["present", "quarantined", "deleting", "deleted"]
        before: str | None = None
        for number, step in enumerate(steps[: steps.index(state) + 1], 1):
            self.owner.execute(
                "INSERT INTO copy_transitions VALUES (%s, %s, %s, %s, %s, %s, 'test', 'made', NULL,"
                " '{}', catalog_clock() - %s::interval)",
                (copy_id, number, project, stage_id, before, step, age),
            )
            before = step

    def close(self) -> None:
        self.owner.close()
