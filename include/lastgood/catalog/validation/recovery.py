"""How fast restores were and how far apart commits are, by class of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Spread:
    """Measurements in seconds: how many, the median, and what 95 of 100 stay within."""

    number: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """A project's workloads of one class, over the last 30 days. `restores` are drills that passed,
    from the first byte of the download to the end of the training step; `gaps` lie between
    successive commits of one writer. None: none yet."""

    project: str
    workload_class: str
    restores: Spread | None
    gaps: Spread | None


def measured(tx: Transaction, project: str | None = None) -> Sequence[Recovery]:
    """What was measured, of one project or of all; a class of which nothing was is left out."""
    rows = tx.execute(
        """
        WITH restores AS (
          SELECT s.project, s.class, count(*) AS number,
                 percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY
                   (r.body #>> '{topology,seconds,download}')::float
                   + (r.body #>> '{topology,seconds,restore}')::float) AS spread
            FROM receipts r JOIN stages s USING (stage_id)
           WHERE r.level = 'restore' AND r.verdict = 'pass'
             AND r.body #>> '{topology,seconds,download}' IS NOT NULL
             AND r.recorded_at > catalog_clock() - interval '30 days'
           GROUP BY s.project, s.class
        ), commits AS (
          SELECT s.project, s.class, extract(epoch FROM k.recorded_at - lag(k.recorded_at) OVER (
                   PARTITION BY k.stage_id, k.generation ORDER BY k.sequence))::float AS gap
            FROM checkpoints k JOIN stages s USING (stage_id)
           WHERE k.recorded_at > catalog_clock() - interval '30 days'
        ), gaps AS (
          SELECT project, class, count(gap) AS number,
                 percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY gap) AS spread
            FROM commits WHERE gap IS NOT NULL GROUP BY project, class
        )
        SELECT project, class, r.number AS restores, r.spread AS restore_spread,
               g.number AS gaps, g.spread AS gap_spread
          FROM restores r FULL JOIN gaps g USING (project, class)
         WHERE %(project)s::text IS NULL OR project = %(project)s
         ORDER BY project, class
        """,
        {"project": project},
    )
    return [
        Recovery(
            row["project"],
            row["class"],
            _spread(row["restores"], row["restore_spread"]),
            _spread(row["gaps"], row["gap_spread"]),
        )
        for row in rows
    ]


def _spread(number: int | None, spread: Sequence[float] | None) -> Spread | None:
    return None if not number or spread is None else Spread(number, spread[0], spread[1])
