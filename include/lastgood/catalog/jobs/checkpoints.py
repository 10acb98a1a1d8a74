"""Checkpoints, their manifests, and the pointer to the latest of each stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.dependencies import LACKING, SOUND
from lastgood.catalog.jobs.stages import Stage
from lastgood.errors import NotFound
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import CheckpointId, ManifestDigest, StageId


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One committed checkpoint."""

    checkpoint_id: int
    stage_id: int
    project: str
    workload: str
    stage: str
    generation: int
    sequence: int
    step: int
    attempt_id: UUID
    manifest: ManifestDigest
    total_bytes: int
    object_count: int
    metrics: Mapping[str, Any]
    final: bool
    recorded_at: datetime

    @property
    def id(self) -> CheckpointId:
        stage = StageId.of(self.project, self.workload, self.stage)
        return CheckpointId.of(stage, self.generation, self.sequence)


@dataclass(frozen=True, slots=True)
class ReadableCopy:
    """A copy that may be restored from: present, and not found damaged."""

    copy_id: int
    store: str
    prefix: str


_SELECT = """
    SELECT k.checkpoint_id, k.stage_id, k.project, s.workload, s.stage, k.generation, k.sequence,
           k.step, k.attempt_id, k.manifest, k.total_bytes, k.object_count, k.metrics, k.final,
           k.recorded_at
      FROM checkpoints k JOIN stages s ON s.stage_id = k.stage_id
"""


def find(tx: Transaction, checkpoint: CheckpointId) -> Checkpoint | None:
    """One checkpoint by name, None if nothing was committed there."""
    row = tx.execute(
        _SELECT
        + """ WHERE k.project = %s AND s.workload = %s AND s.stage = %s
                AND k.generation = %s AND k.sequence = %s""",
        (
            checkpoint.project,
            checkpoint.workload,
            checkpoint.stage,
            checkpoint.generation,
            checkpoint.sequence,
        ),
    ).fetchone()
    return Checkpoint(**row) if row else None


def of_attempt(tx: Transaction, attempt: Attempt) -> Checkpoint:
    """What a committed attempt became. Raises NotFound for any other."""
    row = tx.execute(
        _SELECT + " WHERE k.attempt_id = %s AND k.project = %s",
        (attempt.attempt_id, attempt.project),
    ).fetchone()
    if row is None:
        raise NotFound(what="checkpoint of attempt", name=str(attempt.attempt_id))
    return Checkpoint(**row)


def latest(tx: Transaction, stage: Stage) -> Checkpoint | None:
    """Where the stage's pointer stands, None before the first commit."""
    row = tx.execute(
        _SELECT + " JOIN latest_pointers p USING (checkpoint_id) WHERE p.stage_id = %s",
        (stage.stage_id,),
    ).fetchone()
    return Checkpoint(**row) if row else None


def count(tx: Transaction, stage: Stage) -> int:
    """How many checkpoints of the stage were ever committed."""
    row = tx.execute(
        "SELECT count(*) AS count FROM checkpoints WHERE stage_id = %s", (stage.stage_id,)
    ).fetchone()
    assert row is not None
    found: int = row["count"]
    return found


def readable_copy(tx: Transaction, checkpoint: Checkpoint) -> ReadableCopy | None:
    """A present copy, also in its store, whose newest conclusive receipt is no failure, where all
    that the checkpoint depends on has one, too; or None."""
    row = tx.execute(
        f"""
        SELECT c.copy_id, c.store, c.prefix FROM copies c JOIN checkpoints k USING (checkpoint_id)
         WHERE c.checkpoint_id = %s AND {SOUND} AND NOT EXISTS ({LACKING})
           AND c.carried_out >= (SELECT max(t.number) FROM copy_transitions t
                                  WHERE t.copy_id = c.copy_id)
         ORDER BY c.copy_id LIMIT 1
        """,
        (checkpoint.checkpoint_id,),
    ).fetchone()
    return ReadableCopy(**row) if row else None


def lacking(tx: Transaction, checkpoint: Checkpoint) -> Checkpoint | None:
    """The first of what a checkpoint depends on, however far, of which no copy is sound."""
    row = tx.execute(
        _SELECT
        + f""" WHERE k.checkpoint_id IN (
                 SELECT b.checkpoint_id FROM checkpoints k
                  CROSS JOIN LATERAL ({LACKING}) b WHERE k.checkpoint_id = %s)
               ORDER BY k.checkpoint_id LIMIT 1""",
        (checkpoint.checkpoint_id,),
    ).fetchone()
    return Checkpoint(**row) if row else None


def copy_states(tx: Transaction, checkpoint: Checkpoint) -> dict[str, str]:
    """The state of each copy by store; `damaged` is a present one that failed validation, `coming
    back` one that was taken out of quarantine and that its store has not shown yet."""
    rows = tx.execute(
        """
        SELECT c.store, CASE WHEN c.state = 'present' AND (
                  SELECT r.verdict = 'fail' FROM receipts r
                   WHERE r.copy_id = c.copy_id AND r.verdict <> 'inconclusive'
                   ORDER BY r.number DESC LIMIT 1) THEN 'damaged'
                  WHEN c.state = 'present' AND c.carried_out < (
                  SELECT max(t.number) FROM copy_transitions t WHERE t.copy_id = c.copy_id)
                  THEN 'coming back' ELSE c.state END AS state
          FROM copies c WHERE c.checkpoint_id = %s ORDER BY c.store
        """,
        (checkpoint.checkpoint_id,),
    )
    return {row["store"]: row["state"] for row in rows}


def manifest_body(tx: Transaction, project: str, digest: str) -> bytes:
    """The canonical bytes of a manifest. Raises NotFound."""
    row = tx.execute(
        "SELECT body FROM manifests WHERE project = %s AND digest = %s", (project, digest)
    ).fetchone()
    if row is None:
        raise NotFound(what="manifest", name=digest)
    return bytes(row["body"])


def manifest_bytes(tx: Transaction, project: str, digest: str) -> int:
    """How large a manifest is, without reading it. Raises NotFound."""
    row = tx.execute(
        "SELECT octet_length(body) AS bytes FROM manifests WHERE project = %s AND digest = %s",
        (project, digest),
    ).fetchone()
    if row is None:
        raise NotFound(what="manifest", name=digest)
    found: int = row["bytes"]
    return found


def stages_of_manifests(
    tx: Transaction, project: str, digests: Collection[str]
) -> dict[str, list[int]]:
    """The stages in which each of these manifests was committed, to be locked before it is used."""
    rows = tx.execute(
        "SELECT manifest, array_agg(DISTINCT stage_id) AS stage_ids FROM checkpoints"
        " WHERE project = %s AND manifest = ANY(%s) GROUP BY manifest",
        (project, sorted(digests)),
    )
    return {row["manifest"]: row["stage_ids"] for row in rows}


def present_manifests(tx: Transaction, project: str, digests: Collection[str]) -> set[str]:
    """Those of these manifests that have a present copy which was not found damaged, and so has all
    that they depend on: what may be built on."""
    rows = tx.execute(
        f"""
        SELECT DISTINCT k.manifest FROM checkpoints k JOIN copies c USING (checkpoint_id)
         WHERE k.project = %s AND k.manifest = ANY(%s) AND {SOUND} AND NOT EXISTS ({LACKING})
        """,
        (project, sorted(digests)),
    )
    return {row["manifest"] for row in rows}


def record(
    tx: Transaction,
    attempt: Attempt,
    manifest: Manifest,
    digest: ManifestDigest,
    body: bytes,
    *,
    resumed_from: tuple[int, int] | None,
    recorded_at: datetime,
) -> int:
    """Record a verified checkpoint of a locked stage, with what it depends on; answers its id."""
    tx.execute(
        "INSERT INTO manifests (project, digest, body, recorded_at) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        (attempt.project, digest, body, recorded_at),
    )
    tx.executemany(
        "INSERT INTO dependencies (project, manifest, depends_on) VALUES (%s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [(attempt.project, digest, needed) for needed in manifest.dependencies],
    )
    resumed_generation, resumed_sequence = resumed_from or (None, None)
    row = tx.execute(
        """
        INSERT INTO checkpoints (project, stage_id, generation, sequence, step, attempt_id,
                    manifest, total_bytes, object_count, metrics, contract, final,
                    resumed_from_generation, resumed_from_sequence, recorded_at)
             VALUES (%(project)s, %(stage_id)s, %(generation)s, %(sequence)s, %(step)s,
                    %(attempt_id)s, %(manifest)s, %(total_bytes)s, %(object_count)s, %(metrics)s,
                    %(contract)s, %(final)s, %(resumed_generation)s, %(resumed_sequence)s, %(at)s)
          RETURNING checkpoint_id
        """,
        {
            "project": attempt.project,
            "stage_id": attempt.stage_id,
            "generation": attempt.generation,
            "sequence": attempt.sequence,
            "step": attempt.step,
            "attempt_id": attempt.attempt_id,
            "manifest": digest,
            "total_bytes": manifest.size_bytes,
            "object_count": len(manifest.objects),
            "metrics": Jsonb(dict(manifest.metrics)),
            "contract": None if manifest.restore is None else manifest.restore.contract,
            "final": manifest.final,
            "resumed_generation": resumed_generation,
            "resumed_sequence": resumed_sequence,
            "at": recorded_at,
        },
    ).fetchone()
    assert row is not None
    checkpoint_id: int = row["checkpoint_id"]
    return checkpoint_id


def advance_pointer(
    tx: Transaction, attempt: Attempt, checkpoint_id: int, moved_at: datetime
) -> bool:
    """Compare and set in one statement: the pointer goes to this checkpoint if that is forward in
    (generation, sequence). False, and nothing moved, if it is not."""
    tx.execute(
        """
        INSERT INTO latest_pointers AS p (stage_id, project, generation, sequence, checkpoint_id,
                                          moved_at)
             VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (stage_id) DO UPDATE
           SET generation = excluded.generation, sequence = excluded.sequence,
               checkpoint_id = excluded.checkpoint_id, moved_at = excluded.moved_at
         WHERE (p.generation, p.sequence) < (excluded.generation, excluded.sequence)
        """,
        (
            attempt.stage_id,
            attempt.project,
            attempt.generation,
            attempt.sequence,
            checkpoint_id,
            moved_at,
        ),
    )
    return tx.rowcount == 1


def reset_pointer(
    tx: Transaction, stage: Stage, checkpoint: Checkpoint | None, moved_at: datetime
) -> Sequence[int] | None:
    """The recorded exception, after an integrity failure: put the pointer to a checkpoint that was
    found valid, or away. The caller records `pointer-reset`. Answers where it stood."""
    before = latest(tx, stage)
    tx.execute("DELETE FROM latest_pointers WHERE stage_id = %s", (stage.stage_id,))
    if checkpoint is not None:
        tx.execute(
            "INSERT INTO latest_pointers (stage_id, project, generation, sequence, checkpoint_id,"
            " moved_at) VALUES (%s, %s, %s, %s, %s, %s)",
            (
                stage.stage_id,
                stage.project,
                checkpoint.generation,
                checkpoint.sequence,
                checkpoint.checkpoint_id,
                moved_at,
            ),
        )
    return None if before is None else (before.generation, before.sequence)


def at(tx: Transaction, stage: Stage, position: tuple[int, int]) -> Checkpoint:
    """The checkpoint at (generation, sequence) of a stage. Raises NotFound."""
    found = find(tx, CheckpointId.of(stage.name, *position))
    if found is None:
        raise NotFound(what="checkpoint", name=f"{stage.name}/{position[0]}.{position[1]}")
    return found
