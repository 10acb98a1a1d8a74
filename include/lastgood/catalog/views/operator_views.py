"""What operators look at: stages and checkpoints, one query each.

Each takes a project, or None for all of them: operators are not tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.rules.names import CheckpointId

PAGE_ROWS = 200
"""What one answer holds at most, unless asked for less."""


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage as it stands. `active`: its generation was not ended and its lease has not run
    out."""

    stage_id: int
    project: str
    workload: str
    stage: str
    kind: str
    workload_class: str
    generation: int
    holder: str | None
    lease_expires_at: datetime | None
    active: bool
    blocked_by: str | None
    latest: str | None
    latest_step: int | None
    latest_committed_at: datetime | None
    present: int
    present_bytes: int
    quarantined: int
    proven: int  # present copies whose newest receipt passed


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """A checkpoint with its copies ({copy_id, store, state, state_at}), the newest verdict of each
    level, and how many holds and readers stand on it."""

    checkpoint: str
    checkpoint_id: int
    project: str
    workload: str
    stage: str
    stage_id: int
    generation: int
    sequence: int
    step: int
    committed_at: datetime
    bytes: int
    objects: int
    metrics: Mapping[str, Any]
    final: bool
    manifest: str
    attempt: UUID
    resumed_from: str | None
    is_latest: bool
    copies: Sequence[Mapping[str, Any]]
    verdicts: Mapping[str, str]
    holds: int
    readers: int


def stages(tx: Transaction, project: str | None = None) -> list[StageView]:
    """Stages in the order of their names."""
    rows = tx.execute(
        """
        SELECT s.stage_id, s.project, s.workload, s.stage, s.kind, s.class AS workload_class,
               s.generation, g.holder, l.expires_at AS lease_expires_at, s.blocked_by,
               coalesce(l.expires_at > catalog_clock() AND NOT EXISTS (
                 SELECT 1 FROM generation_ends AS e
                  WHERE e.stage_id = s.stage_id AND e.generation = s.generation), false) AS active,
               s.project || '/' || s.workload || '/' || s.stage || '/' || p.generation || '.'
                 || p.sequence AS latest,
               k.step AS latest_step, k.recorded_at AS latest_committed_at,
               coalesce(c.present, 0) AS present, coalesce(c.bytes, 0)::bigint AS present_bytes,
               coalesce(c.quarantined, 0) AS quarantined, coalesce(c.proven, 0) AS proven
          FROM stages AS s
          LEFT JOIN generations AS g
            ON g.stage_id = s.stage_id AND g.generation = s.generation
          LEFT JOIN generation_leases AS l
            ON l.stage_id = s.stage_id AND l.generation = s.generation
          LEFT JOIN latest_pointers AS p ON p.stage_id = s.stage_id
          LEFT JOIN checkpoints AS k ON k.checkpoint_id = p.checkpoint_id
          LEFT JOIN LATERAL (
            SELECT count(*) FILTER (WHERE c.state = 'present') AS present,
                   sum(k.total_bytes + c.control_bytes) FILTER (WHERE c.state = 'present') AS bytes,
                   count(*) FILTER (WHERE c.state IN ('quarantined', 'deleting')) AS quarantined,
                   count(*) FILTER (WHERE c.state = 'present' AND (
                     SELECT r.verdict FROM receipts AS r
                      WHERE r.copy_id = c.copy_id AND r.verdict <> 'inconclusive'
                      ORDER BY r.number DESC LIMIT 1) = 'pass') AS proven
              FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id)
             WHERE c.stage_id = s.stage_id AND c.state NOT IN ('deleted', 'lost')) AS c ON true
         WHERE %(project)s::text IS NULL OR s.project = %(project)s
         ORDER BY s.project COLLATE "C", s.workload COLLATE "C", s.stage COLLATE "C"
        """,
        {"project": project},
    )
    return [StageView(**row) for row in rows]


_CHECKPOINTS = """
    SELECT s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation || '.'
             || k.sequence AS checkpoint,
           k.checkpoint_id, s.project, s.workload, s.stage, s.stage_id, k.generation, k.sequence,
           k.step,
           k.recorded_at AS committed_at, k.total_bytes AS bytes, k.object_count AS objects,
           k.metrics, k.final, k.manifest, k.attempt_id AS attempt,
           k.resumed_from_generation || '.' || k.resumed_from_sequence AS resumed_from,
           coalesce(p.checkpoint_id = k.checkpoint_id, false) AS is_latest,
           c.copies, coalesce(v.verdicts, '{}') AS verdicts,
           (SELECT count(*) FROM hold_checkpoints AS hc JOIN holds AS h USING (hold_id)
             WHERE hc.checkpoint_id = k.checkpoint_id
               AND (h.expires_at IS NULL OR h.expires_at > catalog_clock())
               AND NOT EXISTS (SELECT 1 FROM hold_releases AS r WHERE r.hold_id = h.hold_id))
             AS holds,
           (SELECT count(*) FROM reader_leases AS l
             WHERE l.checkpoint_id = k.checkpoint_id AND l.expires_at > catalog_clock()
               AND NOT EXISTS (SELECT 1 FROM reader_ends AS e WHERE e.lease_id = l.lease_id))
             AS readers
      FROM checkpoints AS k
      JOIN stages AS s ON s.stage_id = k.stage_id
      LEFT JOIN latest_pointers AS p ON p.stage_id = k.stage_id
      CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(jsonb_build_object('copy_id', c.copy_id, 'store', c.store,
                 'state', c.state, 'state_at', c.state_at) ORDER BY c.copy_id), '[]') AS copies,
               coalesce(array_agg(c.state), '{}') AS states
          FROM copies AS c WHERE c.checkpoint_id = k.checkpoint_id) AS c
      LEFT JOIN LATERAL (
        SELECT jsonb_object_agg(level, verdict) AS verdicts FROM (
          SELECT DISTINCT ON (r.level) r.level, r.verdict FROM receipts AS r
           WHERE r.checkpoint_id = k.checkpoint_id
           ORDER BY r.level, (r.verdict = 'inconclusive'), r.number DESC) AS newest) AS v ON true
"""


def checkpoints(
    tx: Transaction,
    *,
    project: str | None = None,
    workload: str | None = None,
    stage: str | None = None,
    state: str | None = None,
    deleted: bool = False,
    limit: int = PAGE_ROWS,
    skip: int = 0,
) -> list[CheckpointView]:
    """Checkpoints, the newest of each stage first. `state` is a copy's, and keeps those that have a
    copy in it; without it, those whose every copy is deleted or lost are left out, unless
    `deleted`. `skip` leaves that many of the first ones out."""
    rows = tx.execute(
        _CHECKPOINTS
        + """
         WHERE (%(project)s::text IS NULL OR s.project = %(project)s)
           AND (%(workload)s::text IS NULL OR s.workload = %(workload)s)
           AND (%(stage)s::text IS NULL OR s.stage = %(stage)s)
           AND CASE WHEN %(state)s::text IS NULL
                    THEN %(deleted)s OR NOT c.states <@ '{deleted,lost}'
                    ELSE %(state)s = ANY(c.states) END
         ORDER BY s.project COLLATE "C", s.workload COLLATE "C", s.stage COLLATE "C",
                  k.generation DESC, k.sequence DESC
         LIMIT %(limit)s OFFSET %(skip)s
        """,
        {
            "project": project,
            "workload": workload,
            "stage": stage,
            "state": state,
            "deleted": deleted,
            "limit": limit,
            "skip": skip,
        },
    )
    return [CheckpointView(**row) for row in rows]


def checkpoint(tx: Transaction, name: CheckpointId) -> CheckpointView | None:
    """One checkpoint, also one that is deleted; None if there is none."""
    row = tx.execute(
        _CHECKPOINTS
        + """
         WHERE s.project = %s AND s.workload = %s AND s.stage = %s
           AND k.generation = %s AND k.sequence = %s
        """,
        (name.project, name.workload, name.stage, name.generation, name.sequence),
    ).fetchone()
    return None if row is None else CheckpointView(**row)


def objects(tx: Transaction, name: CheckpointId) -> Sequence[Mapping[str, Any]]:
    """The objects of a checkpoint's oldest copy: path, size_bytes and sha256 of each."""
    return tx.execute(
        """
        SELECT o.path, o.size_bytes, o.sha256
          FROM copy_objects AS o
          JOIN copies AS c USING (copy_id)
          JOIN checkpoints AS k USING (checkpoint_id)
          JOIN stages AS s ON s.stage_id = k.stage_id
         WHERE s.project = %(project)s AND s.workload = %(workload)s AND s.stage = %(stage)s
           AND k.generation = %(generation)s AND k.sequence = %(sequence)s
           AND c.copy_id = (SELECT min(o.copy_id) FROM copies AS o
                             WHERE o.checkpoint_id = k.checkpoint_id)
         ORDER BY o.path COLLATE "C"
        """,
        {
            "project": name.project,
            "workload": name.workload,
            "stage": name.stage,
            "generation": name.generation,
            "sequence": name.sequence,
        },
    ).fetchall()
