"""Drills: which stages are due, and the append-only record of what each drill showed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from lastgood import errors
from lastgood.catalog.db import Transaction
from lastgood.rules.names import StageId


@dataclass(frozen=True, slots=True)
class DueStage:
    """A stage with something to restore, and when a drill last did so. `active`: somebody writes it
    now. `waiting_bytes`: what attempts behind its last good checkpoint have declared, and a
    recovery would not find."""

    stage_id: int
    stage: StageId
    last_drilled_at: datetime | None
    active: bool
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One stage's restore in a drill; `result` has the levels, the seconds and the objectives."""

    stage_id: int
    stage: str
    checkpoint: str | None
    passed: bool
    result: Mapping[str, Any]
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class ExpectationRow:
    """One thing that the life of a scratch checkpoint had to show, and what was seen."""

    number: int
    expectation: str
    passed: bool
    evidence: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill with all that it showed. `passed` None: it was cut off, or is under way."""

    drill_id: UUID
    project: str
    actor: str
    plan: Mapping[str, Any]
    recorded_at: datetime
    passed: bool | None
    ended_at: datetime | None
    restores: Sequence[RestoreRow] = ()
    expectations: Sequence[ExpectationRow] = ()


_SELECT = """
    SELECT d.drill_id, d.project, d.actor, d.plan, d.recorded_at, e.passed,
           e.recorded_at AS ended_at
      FROM drills d LEFT JOIN drill_ends e USING (drill_id)
"""


def due(tx: Transaction, project: str) -> list[DueStage]:
    """The stages of a project with a present checkpoint, the longest not drilled first."""
    rows = tx.execute(
        """
        SELECT s.stage_id, s.workload, s.stage,
               (SELECT max(r.recorded_at) FROM drill_restores r WHERE r.stage_id = s.stage_id)
                 AS last_drilled_at,
               EXISTS (SELECT 1 FROM generation_leases l
                        WHERE l.stage_id = s.stage_id AND l.generation = s.generation
                          AND l.expires_at > catalog_clock()
                          AND NOT EXISTS (SELECT 1 FROM generation_ends e
                                           WHERE e.stage_id = l.stage_id
                                             AND e.generation = l.generation)) AS active,
               (SELECT coalesce(sum(a.declared_bytes), 0)::bigint FROM attempts a
                 WHERE a.stage_id = s.stage_id AND a.state IN ('open', 'sealed'))
                 AS waiting_bytes
          FROM stages s
         WHERE s.project = %s
           AND EXISTS (SELECT 1 FROM copies c WHERE c.stage_id = s.stage_id
                          AND c.state = 'present')
         ORDER BY last_drilled_at NULLS FIRST, s.workload COLLATE "C", s.stage COLLATE "C"
        """,
        (project,),
    )
    return [
        DueStage(
            row["stage_id"],
            StageId.of(project, row["workload"], row["stage"]),
            row["last_drilled_at"],
            row["active"],
            row["waiting_bytes"],
        )
        for row in rows
    ]


def begin(tx: Transaction, project: str, *, actor: str, sample: int, within: timedelta) -> UUID:
    """Record that a drill of a project began: of so many stages, each due once `within` so long."""
    drill_id = uuid4()
    plan = {"sample": sample, "within_seconds": int(within.total_seconds())}
    tx.execute(
        "INSERT INTO drills (drill_id, project, actor, plan, recorded_at) VALUES (%s, %s, %s, %s,"
        " catalog_clock())",
        (drill_id, project, actor, Jsonb(plan)),
    )
    return drill_id


def add_restore(
    tx: Transaction,
    drill_id: UUID,
    project: str,
    stage_id: int,
    checkpoint_id: int | None,
    *,
    passed: bool,
    result: Mapping[str, Any],
) -> None:
    """Record what came of one stage's restore."""
    tx.execute(
        """
        INSERT INTO drill_restores (drill_id, project, stage_id, checkpoint_id, passed, result,
                                    recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, catalog_clock())
        """,
        (drill_id, project, stage_id, checkpoint_id, passed, Jsonb(dict(result))),
    )


def add_expectation(
    tx: Transaction,
    drill_id: UUID,
    project: str,
    number: int,
    expectation: str,
    *,
    passed: bool,
    evidence: str,
) -> None:
    """Record the verdict over one expectation."""
    tx.execute(
        """
        INSERT INTO drill_expectations (drill_id, number, project, expectation, passed, evidence,
                                        recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, catalog_clock())
        """,
        (drill_id, number, project, expectation, passed, evidence),
    )


def end(tx: Transaction, drill_id: UUID, project: str) -> bool:
    """Record that a drill ended: passed if all that it recorded did, and it recorded something;
    answers whether it did."""
    row = tx.execute(
        """
        INSERT INTO drill_ends (drill_id, project, passed, recorded_at)
        SELECT %(drill)s, %(project)s, coalesce(bool_and(passed), false), catalog_clock()
          FROM (SELECT passed FROM drill_restores WHERE drill_id = %(drill)s
                UNION ALL
                SELECT passed FROM drill_expectations WHERE drill_id = %(drill)s) AS shown
        RETURNING passed
        """,
        {"drill": drill_id, "project": project},
    ).fetchone()
    assert row is not None
    passed: bool = row["passed"]
    return passed


def get(tx: Transaction, drill_id: UUID) -> Drill:
    """A drill with all that it showed. Raises NotFound."""
    row = tx.execute(_SELECT + " WHERE d.drill_id = %s", (drill_id,)).fetchone()
    if row is None:
        raise errors.NotFound(what="drill", name=str(drill_id))
    restores = tx.execute(
        """
        SELECT r.stage_id, s.project || '/' || s.workload || '/' || s.stage AS stage,
               s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation || '.'
                 || k.sequence AS checkpoint, r.passed, r.result, r.recorded_at
          FROM drill_restores r JOIN stages s USING (stage_id)
          LEFT JOIN checkpoints k USING (checkpoint_id)
         WHERE r.drill_id = %s ORDER BY r.recorded_at, r.stage_id
        """,
        (drill_id,),
    ).fetchall()
    expectations = tx.execute(
        """
        SELECT number, expectation, passed, evidence, recorded_at FROM drill_expectations
         WHERE drill_id = %s ORDER BY number
        """,
        (drill_id,),
    ).fetchall()
    return Drill(
        **row,
        restores=[RestoreRow(**one) for one in restores],
        expectations=[ExpectationRow(**one) for one in expectations],
    )


def newest(tx: Transaction, project: str | None = None, *, limit: int = 50) -> list[Drill]:
    """The newest drills of a project, or of all, without what they showed."""
    rows = tx.execute(
        _SELECT
        + """
         WHERE %(project)s::text IS NULL OR d.project = %(project)s
         ORDER BY d.recorded_at DESC LIMIT %(limit)s
        """,
        {"project": project, "limit": limit},
    )
    return [Drill(**row) for row in rows]


def last_failed(tx: Transaction, project: str | None = None) -> list[Drill]:
    """The newest drill of each project, where that failed. One that has not ended within a day was
    cut off; a younger one may be under way, and the one before it counts."""
    rows = tx.execute(
        f"""
        SELECT * FROM (
          SELECT DISTINCT ON (project) * FROM ({_SELECT}
           WHERE (e.passed IS NOT NULL OR d.recorded_at < catalog_clock() - interval '1 day')
             AND (%(project)s::text IS NULL OR d.project = %(project)s)) AS ended
           ORDER BY project, recorded_at DESC) AS newest
         WHERE passed IS NOT TRUE ORDER BY project
        """,
        {"project": project},
    )
    return [Drill(**row) for row in rows]


def scratch_projects(tx: Transaction) -> set[str]:
    """The projects in which drills write: nobody trains there."""
    return {row["project"] for row in tx.execute("SELECT project FROM scratch_projects")}


def take_scratch(tx: Transaction, project: str, store: str) -> None:
    """Make a project, just put, the scratch project of a store. Raises Conflict if the store has
    another one."""
    tx.execute(
        """
        INSERT INTO scratch_projects (project, store, recorded_at)
        VALUES (%s, %s, catalog_clock()) ON CONFLICT DO NOTHING
        """,
        (project, store),
    )
    row = tx.execute("SELECT project FROM scratch_projects WHERE store = %s", (store,)).fetchone()
    if row is None or row["project"] != project:
        reason = f"store {store} has another scratch project, or {project} is that of another store"
        raise errors.Conflict(reason=reason)
