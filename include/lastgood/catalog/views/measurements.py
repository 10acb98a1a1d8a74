"""What is measured at each scrape, in a few queries over cached states and counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many checkpoints or attempts of a project in a store are in a state, and their bytes."""

    project: str
    store: str
    state: str
    number: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StageAge:
    """Seconds since the newest commit of a stage with a writer: what a crash now would lose."""

    project: str
    workload: str
    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Explained:
    """What the newest report of a project in a store says. `age_seconds` is that of its listing;
    `damaged_left` are damaged copies that it left to the next one."""

    project: str
    store: str
    passed: bool
    backend_bytes: int
    unexplained_bytes: int
    damaged_left: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class StoreTotals:
    """Everybody's bytes in a store, and those of no project, by its newest report."""

    store: str
    backend_bytes: int
    unexplained_bytes: int


def state_counts(tx: Transaction) -> Sequence[StateCount]:
    """Committed, validating, failed, quarantined and incomplete, of every project and store."""
    rows = tx.execute(
        """
        SELECT project, store, state, count(*) AS number, coalesce(sum(bytes), 0)::bigint AS bytes
          FROM (
          SELECT c.project, c.store, k.total_bytes + c.control_bytes AS bytes,
                 CASE WHEN c.state = 'present' THEN 'committed' ELSE 'quarantined' END AS state
            FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id)
           WHERE c.state NOT IN ('deleted', 'lost')
          UNION ALL
          SELECT a.project, a.store, a.declared_bytes,
                 CASE a.state WHEN 'sealed' THEN 'validating' WHEN 'failed' THEN 'failed'
                      ELSE 'incomplete' END
            FROM attempts AS a
           WHERE a.state IN ('sealed', 'failed', 'aborting')
              OR (a.state = 'open' AND a.lease_expires_at <= catalog_clock())
        ) AS counted GROUP BY project, store, state
        """
    )
    return [StateCount(**row) for row in rows]


def oldest_incomplete(tx: Transaction) -> dict[str, float]:
    """Seconds since the oldest incomplete attempt of each project lost its lease."""
    rows = tx.execute(
        """
        SELECT project, extract(epoch FROM catalog_clock() - min(lease_expires_at))::float8 AS age
          FROM attempts
         WHERE state = 'aborting' OR (state = 'open' AND lease_expires_at <= catalog_clock())
         GROUP BY project
        """
    )
    return {row["project"]: max(0.0, row["age"]) for row in rows}


def stage_ages(tx: Transaction) -> Sequence[StageAge]:
    """Of every stage that somebody writes now: since its newest commit, else since the writer
    began."""
    rows = tx.execute(
        """
        SELECT s.project, s.workload, s.stage,
               extract(epoch FROM catalog_clock() - coalesce(k.recorded_at, g.recorded_at))::float8
                 AS seconds
          FROM stages AS s
          JOIN generations AS g ON g.stage_id = s.stage_id AND g.generation = s.generation
          JOIN generation_leases AS l ON l.stage_id = s.stage_id AND l.generation = s.generation
          LEFT JOIN latest_pointers AS p ON p.stage_id = s.stage_id
          LEFT JOIN checkpoints AS k ON k.checkpoint_id = p.checkpoint_id
         WHERE s.kind = 'checkpointed' AND l.expires_at > catalog_clock()
           AND NOT EXISTS (SELECT 1 FROM generation_ends AS e
                            WHERE e.stage_id = s.stage_id AND e.generation = s.generation)
        """
    )
    return [StageAge(**row) for row in rows]


def explained(tx: Transaction) -> Sequence[Explained]:
    """The newest report of each project and registered store: of the latest window, since one of a
    past day may be made again; for the same reason its age counts from the end of its inventory."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (project, store) project, store, passed,
               (document #>> '{equation,backend_bytes}')::bigint AS backend_bytes,
               (document #>> '{equation,lines,unexplained}')::bigint AS unexplained_bytes,
               coalesce((document #>> '{damaged,left}')::bigint, 0) AS damaged_left,
               extract(epoch FROM catalog_clock() - coalesce(
                 (document #>> '{listing,finished_at}')::timestamptz, recorded_at))::float8
                 AS age_seconds
          FROM reports JOIN stores USING (store) WHERE unregistered_at IS NULL
         ORDER BY project, store, window_end DESC, recorded_at DESC, report_id DESC
        """
    )
    return [Explained(**row) for row in rows]


def store_totals(tx: Transaction) -> Sequence[StoreTotals]:
    """Of each registered store, by the newest report of any project in it."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (store) store,
               (document #>> '{store_equation,backend_bytes}')::bigint AS backend_bytes,
               (document #>> '{store_equation,lines,unexplained}')::bigint AS unexplained_bytes
          FROM reports JOIN stores USING (store) WHERE unregistered_at IS NULL
         ORDER BY store, window_end DESC, recorded_at DESC, report_id DESC
        """
    )
    return [StoreTotals(**row) for row in rows]


def open_findings(tx: Transaction) -> dict[tuple[str, str, bool], int]:
    """How many findings are open, by project, store, and whether they are overdue."""
    rows = tx.execute(
        """
        SELECT f.project, f.store, coalesce((a.facts ->> 'deadline')::timestamptz, f.deadline)
                 < catalog_clock() AS overdue, count(*) AS number
          FROM findings AS f
          CROSS JOIN LATERAL (SELECT e.kind FROM finding_events AS e
            WHERE e.finding_id = f.finding_id AND e.kind IN ('opened', 'explained', 'closed')
            ORDER BY e.number DESC LIMIT 1) AS s
          LEFT JOIN LATERAL (SELECT e.facts FROM finding_events AS e
            WHERE e.finding_id = f.finding_id AND e.facts ? 'deadline'
            ORDER BY e.number DESC LIMIT 1) AS a ON true
         WHERE s.kind = 'opened' GROUP BY 1, 2, 3
        """
    )
    return {(row["project"], row["store"], row["overdue"]): row["number"] for row in rows}


def blocked_stages(tx: Transaction) -> dict[str, int]:
    """How many stages of each project may not be restored."""
    rows = tx.execute(
        "SELECT project, count(*) AS number FROM stages WHERE blocked_by IS NOT NULL"
        " GROUP BY project"
    )
    return {row["project"]: row["number"] for row in rows}
