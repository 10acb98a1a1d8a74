"""Incomplete attempts: which of them nobody continues, and how long an upload takes when all
is well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.rules.upload_threshold import Measured

MEASURED_WITHIN = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Incomplete:
    """An attempt that may have to be cleaned up; `workload_class` is its stage's, `holder` its
    writer."""

    attempt_id: UUID
    stage_id: int
    workload: str
    stage: str
    workload_class: str
    holder: str
    state: str
    store: str
    prefix: str
    declared_bytes: int
    recorded_at: datetime
    state_at: datetime
    lease_expires_at: datetime
    grant_expires_at: datetime

    def is_incomplete(self, now: datetime) -> bool:
        """Whether nobody goes on with it: it lost its lease, or is being aborted."""
        return self.state == "aborting" or (self.state == "open" and self.lease_expires_at <= now)

    def quiet_since(self) -> datetime:
        """From when on nobody may write to it."""
        return max(self.lease_expires_at, self.grant_expires_at)


_SELECT = """
    SELECT a.attempt_id, a.stage_id, s.workload, s.stage, s.class AS workload_class, g.holder,
           a.state, a.store, a.prefix, a.declared_bytes, a.recorded_at, a.state_at,
           a.lease_expires_at, a.grant_expires_at
      FROM attempts a
      JOIN stages s ON s.stage_id = a.stage_id
      JOIN generations g ON g.stage_id = a.stage_id AND g.generation = a.generation
"""


def in_state(tx: Transaction, project: str, *states: str) -> list[Incomplete]:
    """The project's attempts in any of these states, oldest first."""
    rows = tx.execute(
        _SELECT
        + " WHERE a.project = %s AND a.state = ANY(%s) ORDER BY a.recorded_at, a.attempt_id",
        (project, list(states)),
    )
    return [Incomplete(**row) for row in rows]


def get(tx: Transaction, project: str, attempt_id: UUID) -> Incomplete | None:
    """One attempt, None if the project has no such."""
    row = tx.execute(
        _SELECT + " WHERE a.project = %s AND a.attempt_id = %s", (project, attempt_id)
    ).fetchone()
    return Incomplete(**row) if row else None


def known(tx: Transaction, project: str, attempt_ids: Iterable[UUID]) -> dict[UUID, Incomplete]:
    """Those of these attempts that the project has."""
    rows = tx.execute(
        _SELECT + " WHERE a.project = %s AND a.attempt_id = ANY(%s)", (project, list(attempt_ids))
    )
    return {row["attempt_id"]: Incomplete(**row) for row in rows}


def measured(tx: Transaction, project: str) -> dict[str, Measured]:
    """How long uploads took from prepare to seal in the last 30 days, by class."""
    rows = tx.execute(
        """
        SELECT s.class, count(*) AS uploads,
               percentile_disc(0.99) WITHIN GROUP (ORDER BY t.recorded_at - a.recorded_at) AS p99,
               max(t.recorded_at - a.recorded_at) AS longest
          FROM attempt_transitions t
          JOIN attempts a USING (attempt_id)
          JOIN stages s ON s.stage_id = a.stage_id
         WHERE t.project = %s AND t.to_state = 'sealed' AND t.recorded_at > catalog_clock() - %s
         GROUP BY s.class
        """,
        (project, MEASURED_WITHIN),
    )
    return {row["class"]: Measured(row["uploads"], row["p99"], row["longest"]) for row in rows}


def classes(tx: Transaction, project: str) -> list[tuple[str, str, str]]:
    """Workload, stage and class of every stage of a project."""
    rows = tx.execute(
        "SELECT workload, stage, class FROM stages WHERE project = %s ORDER BY workload, stage",
        (project,),
    )
    return [(row["workload"], row["stage"], row["class"]) for row in rows]


def recorded_uploads(tx: Transaction, project: str, attempt_id: UUID) -> dict[str, str]:
    """The upload ids of an attempt that were recorded, by path."""
    rows = tx.execute(
        """
        SELECT path, upload_id FROM attempt_objects
         WHERE project = %s AND attempt_id = %s AND upload_id IS NOT NULL
         ORDER BY path COLLATE "C"
        """,
        (project, attempt_id),
    )
    return {row["path"]: row["upload_id"] for row in rows}


def reached_by_commit(tx: Transaction, project: str, attempt_id: UUID, prefix: str) -> bool:
    """Whether a committed checkpoint or one of its copies lies where the attempt wrote."""
    row = tx.execute(
        """
        SELECT EXISTS (SELECT 1 FROM checkpoints
                        WHERE project = %(project)s AND attempt_id = %(id)s)
            OR EXISTS (SELECT 1 FROM copies WHERE project = %(project)s AND prefix = %(prefix)s)
               AS reached
        """,
        {"project": project, "id": attempt_id, "prefix": prefix},
    ).fetchone()
    assert row is not None
    reached: bool = row["reached"]
    return reached
