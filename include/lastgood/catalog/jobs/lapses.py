"""Lapses: leases that ran out become history when somebody looks.

Renewals are not history, so "as of T" a lease stands until its end was recorded. Marks, sweeps and
clean-ups look first; what lapses after that stands until the next look, which only keeps more.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.catalog import history, locks
from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Lapses:
    """How many leases were found to have run out."""

    generations: int
    readers: int


_RUN_OUT = """
    SELECT stage_id FROM generation_leases l
     WHERE l.project = %(project)s AND l.expires_at <= catalog_clock()
       AND NOT EXISTS (SELECT 1 FROM generation_ends e
                        WHERE e.stage_id = l.stage_id AND e.generation = l.generation)
    UNION
    SELECT stage_id FROM reader_leases r
     WHERE r.project = %(project)s AND r.expires_at <= catalog_clock()
       AND NOT EXISTS (SELECT 1 FROM reader_ends e WHERE e.lease_id = r.lease_id)
    ORDER BY stage_id
"""


def stages(tx: Transaction, project: str) -> list[int]:
    """The stages with leases that ran out unobserved."""
    return [row["stage_id"] for row in tx.execute(_RUN_OUT, {"project": project})]


def observe(tx: Transaction, project: str, stage_id: int) -> Lapses:
    """Record the lapse of each lease of a stage that has run out by the catalog's clock."""
    locks.project_shared(tx, project)
    locks.stages(tx, [stage_id])
    generations = tx.execute(
        """
        SELECT l.generation, l.expires_at FROM generation_leases l
         WHERE l.project = %s AND l.stage_id = %s AND l.expires_at <= catalog_clock()
           AND NOT EXISTS (SELECT 1 FROM generation_ends e
                            WHERE e.stage_id = l.stage_id AND e.generation = l.generation)
         ORDER BY l.generation
        """,
        (project, stage_id),
    ).fetchall()
    for row in generations:
        _end_generation(tx, project, stage_id, row["generation"], f"ran out at {row['expires_at']}")
    readers = tx.execute(
        """
        SELECT r.lease_id, r.reader, r.checkpoint_id FROM reader_leases r
         WHERE r.project = %s AND r.stage_id = %s AND r.expires_at <= catalog_clock()
           AND NOT EXISTS (SELECT 1 FROM reader_ends e WHERE e.lease_id = r.lease_id)
         ORDER BY r.recorded_at, r.lease_id
        """,
        (project, stage_id),
    ).fetchall()
    for row in readers:
        event = history.record(
            tx,
            stage_id,
            "reader-ended",
            actor="system",
            facts={"lease": str(row["lease_id"]), "reader": row["reader"], "how": "lapsed"},
        )
        tx.execute(
            "INSERT INTO reader_ends (lease_id, project, how, recorded_at)"
            " VALUES (%s, %s, 'lapsed', %s)",
            (row["lease_id"], project, event.recorded_at),
        )
    return Lapses(len(generations), len(readers))


def _end_generation(
    tx: Transaction, project: str, stage_id: int, generation: int, reason: str
) -> None:
    event = history.record(
        tx,
        stage_id,
        "lapsed",
        actor="system",
        facts={"generation": generation, "reason": reason},
    )
    tx.execute(
        """
        INSERT INTO generation_ends (stage_id, generation, project, how, reason, recorded_at)
        VALUES (%s, %s, %s, 'lapsed', %s, %s) ON CONFLICT DO NOTHING
        """,
        (stage_id, generation, project, reason, event.recorded_at),
    )
