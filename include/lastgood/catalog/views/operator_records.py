"""What operators look up: receipts, incomplete uploads, marks, tombstones, and use of stores.

Each takes a project, or None for all of them: operators are not tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.catalog.views.operator_views import PAGE_ROWS
from lastgood.rules.names import CheckpointId


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """One receipt beside the checkpoint that it judges."""

    receipt: str
    checkpoint: str
    store: str
    level: str
    verdict: str
    validator: str
    validator_version: str
    started_at: datetime
    finished_at: datetime
    bytes_read: int
    reason: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class UploadView:
    """An attempt that is not committed: open, sealed, failed, aborting. `incomplete`: nobody goes
    on with it, so clean-up will take it."""

    attempt: UUID
    checkpoint: str
    project: str
    store: str
    prefix: str
    state: str
    incomplete: bool
    holder: str
    declared_bytes: int
    objects: int
    recorded_at: datetime
    lease_expires_at: datetime
    grant_expires_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class MarkView:
    """One mark without its candidates."""

    mark_id: int
    project: str
    kind: str
    at: datetime
    policy: str
    policy_version: int
    digest: str
    code_version: str
    counts: Mapping[str, Any]
    candidates: int
    candidate_bytes: int
    recorded_at: datetime


def receipts(
    tx: Transaction,
    *,
    project: str | None = None,
    checkpoint: CheckpointId | None = None,
    verdict: str | None = None,
    limit: int = PAGE_ROWS,
) -> list[ReceiptView]:
    """Receipts, the newest first."""
    name = checkpoint.stage_id if checkpoint is not None else None
    rows = tx.execute(
        """
        SELECT r.receipt, s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation
                 || '.' || k.sequence AS checkpoint,
               c.store, r.level, r.verdict, r.validator, r.validator_version, r.started_at,
               r.finished_at, r.bytes_read, r.reason, r.recorded_at
          FROM receipts AS r
          JOIN checkpoints AS k USING (checkpoint_id)
          JOIN copies AS c ON c.copy_id = r.copy_id
          JOIN stages AS s ON s.stage_id = r.stage_id
         WHERE (%(project)s::text IS NULL OR s.project = %(project)s)
           AND (%(workload)s::text IS NULL OR (s.workload = %(workload)s AND s.stage = %(stage)s))
           AND (%(generation)s::bigint IS NULL
                OR (k.generation = %(generation)s AND k.sequence = %(sequence)s))
           AND (%(verdict)s::text IS NULL OR r.verdict = %(verdict)s)
         ORDER BY r.recorded_at DESC, r.stage_id, r.number DESC LIMIT %(limit)s
        """,
        {
            "project": name.project if name is not None else project,
            "workload": name.workload if name is not None else None,
            "stage": name.stage if name is not None else None,
            "generation": checkpoint.generation if checkpoint is not None else None,
            "sequence": checkpoint.sequence if checkpoint is not None else None,
            "verdict": verdict,
            "limit": limit,
        },
    )
    return [ReceiptView(**row) for row in rows]


def uploads(
    tx: Transaction, project: str | None = None, *, limit: int = PAGE_ROWS, skip: int = 0
) -> list[UploadView]:
    """Attempts that are neither committed nor closed, after the `skip` first: incomplete ones
    first, the oldest first."""
    rows = tx.execute(
        """
        SELECT a.attempt_id AS attempt, s.project || '/' || s.workload || '/' || s.stage || '/'
                 || a.generation || '.' || a.sequence AS checkpoint,
               a.project, a.store, a.prefix, a.state,
               (a.state = 'aborting' OR (a.state = 'open'
                 AND a.lease_expires_at <= catalog_clock())) AS incomplete,
               g.holder, a.declared_bytes, a.recorded_at, a.lease_expires_at, a.grant_expires_at,
               (SELECT count(*) FROM attempt_objects AS o WHERE o.attempt_id = a.attempt_id)
                 AS objects,
               coalesce((SELECT t.reason FROM attempt_transitions AS t
                          WHERE t.attempt_id = a.attempt_id ORDER BY t.number DESC LIMIT 1), '')
                 AS reason
          FROM attempts AS a
          JOIN stages AS s ON s.stage_id = a.stage_id
          JOIN generations AS g ON g.stage_id = a.stage_id AND g.generation = a.generation
         WHERE a.state NOT IN ('committed', 'closed')
           AND (%(project)s::text IS NULL OR a.project = %(project)s)
         ORDER BY incomplete DESC, a.recorded_at, a.attempt_id LIMIT %(limit)s OFFSET %(skip)s
        """,
        {"project": project, "limit": limit, "skip": skip},
    )
    return [UploadView(**row) for row in rows]


def marks(tx: Transaction, project: str | None = None, *, limit: int = PAGE_ROWS) -> list[MarkView]:
    """Marks, the newest first."""
    rows = tx.execute(
        _MARKS
        + """
         WHERE %(project)s::text IS NULL OR m.project = %(project)s
         ORDER BY m.recorded_at DESC, m.mark_id DESC LIMIT %(limit)s
        """,
        {"project": project, "limit": limit},
    )
    return [MarkView(**row) for row in rows]


_MARKS = """
    SELECT m.mark_id, m.project, m.kind, m.at, m.policy, m.policy_version, m.digest, m.code_version,
           m.counts, c.candidates, c.candidate_bytes, m.recorded_at
      FROM marks AS m
     CROSS JOIN LATERAL (
       SELECT count(*) AS candidates, coalesce(sum(bytes), 0)::bigint AS candidate_bytes
         FROM mark_candidates AS c WHERE c.mark_id = m.mark_id) AS c
"""


def mark(tx: Transaction, mark_id: int) -> MarkView | None:
    """One mark, None if there is none."""
    row = tx.execute(_MARKS + " WHERE m.mark_id = %s", (mark_id,)).fetchone()
    return None if row is None else MarkView(**row)


def mark_candidates(
    tx: Transaction, mark_id: int, *, limit: int = PAGE_ROWS
) -> Sequence[Mapping[str, Any]]:
    """The candidates of a mark: checkpoint, store, the role that it leaves, reasons and bytes."""
    return tx.execute(
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation || '.'
                 || k.sequence AS checkpoint,
               c.store, m.leaves, m.reasons, m.bytes, c.state
          FROM mark_candidates AS m
          JOIN copies AS c USING (copy_id)
          JOIN checkpoints AS k ON k.checkpoint_id = m.checkpoint_id
          JOIN stages AS s ON s.stage_id = m.stage_id
         WHERE m.mark_id = %s ORDER BY s.stage_id, k.generation, k.sequence LIMIT %s
        """,
        (mark_id, limit),
    ).fetchall()


def mark_changes(
    tx: Transaction, mark_id: int, *, limit: int = PAGE_ROWS
) -> Sequence[Mapping[str, Any]]:
    """What changed since the mark before it: checkpoint and `entered`, `left` or `new`."""
    return tx.execute(
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation || '.'
                 || k.sequence AS checkpoint, m.change
          FROM mark_changes AS m
          JOIN checkpoints AS k USING (checkpoint_id)
          JOIN stages AS s ON s.stage_id = k.stage_id
         WHERE m.mark_id = %s ORDER BY m.change, s.stage_id, k.generation, k.sequence LIMIT %s
        """,
        (mark_id, limit),
    ).fetchall()


@dataclass(frozen=True, slots=True)
class ProjectStore:
    """A project in one of its stores, with what admission counts there."""

    project: str
    store: str
    owner: str
    kind: str
    committed_bytes: int
    in_flight_bytes: int
    peak_bytes: int
    backend_bytes: int | None
    backend_total: int | None
    backend_at: datetime | None


def project_stores(tx: Transaction, project: str | None = None) -> list[ProjectStore]:
    """Every project in every registered store that it uses or used, in the order of names."""
    rows = tx.execute(
        """
        SELECT c.project, c.store, p.owner, s.kind, c.committed_bytes, c.in_flight_bytes,
               c.peak_bytes, c.backend_bytes, c.backend_total, c.backend_at
          FROM capacity_counters AS c
          JOIN projects AS p ON p.project = c.project
          JOIN stores AS s ON s.store = c.store AND s.unregistered_at IS NULL
         WHERE %(project)s::text IS NULL OR c.project = %(project)s
         ORDER BY c.project COLLATE "C", c.store COLLATE "C"
        """,
        {"project": project},
    )
    return [ProjectStore(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class Deleted:
    """One tombstone for people: what was deleted, under which mark, and whether it is proven
    gone."""

    tombstone: UUID
    checkpoint: str | None
    attempt: UUID | None
    project: str
    store: str
    mark_id: int | None
    policy_digest: str
    bytes: int
    actor: str
    intended_at: datetime
    proved_at: datetime | None
    lost: bool
    facts: Mapping[str, Any]


def tombstones(
    tx: Transaction, project: str | None = None, *, limit: int = PAGE_ROWS, skip: int = 0
) -> list[Deleted]:
    """Tombstones, the newest first, after the `skip` newest."""
    rows = tx.execute(
        """
        SELECT t.tombstone_id AS tombstone,
               CASE WHEN k.checkpoint_id IS NOT NULL THEN s.project || '/' || s.workload || '/'
                 || s.stage || '/' || k.generation || '.' || k.sequence END AS checkpoint,
               t.attempt_id AS attempt, t.project, t.store, t.mark_id, t.policy_digest, t.bytes,
               t.actor, t.recorded_at AS intended_at, p.recorded_at AS proved_at,
               p.recorded_at IS NULL AND coalesce(c.state = 'lost', a.state = 'closed') AS lost,
               t.facts
          FROM tombstones AS t
          JOIN stages AS s ON s.stage_id = t.stage_id
          LEFT JOIN checkpoints AS k ON k.checkpoint_id = t.checkpoint_id
          LEFT JOIN tombstone_proofs AS p USING (tombstone_id)
          LEFT JOIN copies AS c ON c.copy_id = t.copy_id
          LEFT JOIN attempts AS a ON a.attempt_id = t.attempt_id
         WHERE %(project)s::text IS NULL OR t.project = %(project)s
         ORDER BY t.recorded_at DESC, t.tombstone_id LIMIT %(limit)s OFFSET %(skip)s
        """,
        {"project": project, "limit": limit, "skip": skip},
    )
    return [Deleted(**row) for row in rows]


def data_directory(tx: Transaction) -> str | None:
    """Where the catalog's server keeps its data, None if this role may not know."""
    row = tx.execute(
        """
        SELECT CASE WHEN pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')
               THEN current_setting('data_directory') END AS folder
        """
    ).fetchone()
    assert row is not None
    folder: str | None = row["folder"]
    return folder
