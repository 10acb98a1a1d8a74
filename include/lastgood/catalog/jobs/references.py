"""What refers to a copy at this moment, read under the stage's lock: whatever is named here
keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.copies import Copy, State

LATEST_POINTER = "the latest pointer"


@dataclass(frozen=True, slots=True)
class Pass:
    """A receipt that speaks for a copy."""

    receipt: str
    copy_id: int
    manifest: str
    level: str
    recorded_at: datetime


def readers(tx: Transaction, copy: Copy) -> list[str]:
    """Reader leases on the checkpoint that have not ended. One that ran out counts until its
    lapse is recorded, and one that was renewed after that counts again."""
    rows = tx.execute(
        """
        SELECT l.lease_id, l.reader, l.expires_at FROM reader_leases l
          LEFT JOIN reader_ends e USING (lease_id)
         WHERE l.project = %s AND l.checkpoint_id = %s
           AND (e.lease_id IS NULL OR (e.how = 'lapsed' AND l.expires_at > catalog_clock()))
         ORDER BY l.lease_id
        """,
        (copy.project, copy.checkpoint_id),
    )
    return [f"{row['reader']} ({row['lease_id']})" for row in rows]


def writers(tx: Transaction, copy: Copy) -> list[str]:
    """Generations of the copy's stage that are under way, whatever they refer to."""
    rows = tx.execute(
        """
        SELECT 'generation ' || g.generation || ', under way' AS what
          FROM generations g
          LEFT JOIN generation_leases l USING (stage_id, generation)
         WHERE g.project = %s AND g.stage_id = %s
           AND NOT EXISTS (
               SELECT 1 FROM generation_ends e
                WHERE e.stage_id = g.stage_id AND e.generation = g.generation
                  AND (e.how <> 'lapsed' OR l.expires_at <= catalog_clock()))
         ORDER BY g.generation
        """,
        (copy.project, copy.stage_id),
    )
    return [row["what"] for row in rows]


def active(tx: Transaction, copy: Copy) -> list[str]:
    """Generations under way that resumed from the checkpoint or committed it last, and the stage's
    latest pointer."""
    rows = tx.execute(
        """
        WITH writing AS (
          SELECT g.generation, g.resumed_from_generation, g.resumed_from_sequence
            FROM generations g
            LEFT JOIN generation_leases l USING (stage_id, generation)
           WHERE g.project = %(project)s AND g.stage_id = %(stage_id)s
             AND NOT EXISTS (
                 SELECT 1 FROM generation_ends e
                  WHERE e.stage_id = g.stage_id AND e.generation = g.generation
                    AND (e.how <> 'lapsed' OR l.expires_at <= catalog_clock()))
        )
        SELECT 'generation ' || generation || ' resumed from it' AS what
          FROM writing
         WHERE (resumed_from_generation, resumed_from_sequence) = (%(generation)s, %(sequence)s)
        UNION ALL
        SELECT 'generation ' || generation || ' committed it last'
          FROM writing
         WHERE generation = %(generation)s
           AND %(sequence)s = (SELECT max(k.sequence) FROM checkpoints k
                                WHERE k.stage_id = %(stage_id)s AND k.generation = %(generation)s)
        UNION ALL
        SELECT %(pointer)s FROM latest_pointers
         WHERE stage_id = %(stage_id)s AND checkpoint_id = %(checkpoint_id)s
        """,
        {
            "pointer": LATEST_POINTER,
            "project": copy.project,
            "stage_id": copy.stage_id,
            "checkpoint_id": copy.checkpoint_id,
            "generation": copy.checkpoint.generation,
            "sequence": copy.checkpoint.sequence,
        },
    )
    return [row["what"] for row in rows]


def dependents(tx: Transaction, copy: Copy) -> list[str]:
    """Manifests that need this one: committed with a copy that still exists, or sealed and about to
    be committed. A copy in quarantine needs the bytes of this one, not that it is present: what
    takes it back takes this one back with it (see `needed`)."""
    rows = tx.execute(
        """
        SELECT s.workload || '/' || s.stage || '/' || k.generation || '.' || k.sequence AS what
          FROM dependencies d
          JOIN checkpoints k ON k.project = d.project AND k.manifest = d.manifest
          JOIN stages s ON s.stage_id = k.stage_id
         WHERE d.project = %(project)s AND d.depends_on = %(manifest)s
           AND EXISTS (SELECT 1 FROM copies c WHERE c.checkpoint_id = k.checkpoint_id
                          AND (c.state = 'present'
                               OR c.state = 'quarantined' AND NOT %(present)s))
        UNION ALL
        SELECT 'sealed attempt ' || attempt_id
          FROM attempts
         WHERE project = %(project)s AND state = 'sealed' AND manifest IS NOT NULL
           AND jsonb_exists(convert_from(manifest, 'UTF8')::jsonb -> 'dependencies', %(manifest)s)
        ORDER BY what
        """,
        {
            "project": copy.project,
            "manifest": copy.manifest,
            "present": copy.state is State.PRESENT,
        },
    )
    return [row["what"] for row in rows]


def needed(tx: Transaction, project: str, checkpoint_ids: Iterable[int]) -> list[int]:
    """The checkpoints that these depend on, however far, by id: manifests never change, so neither
    does this."""
    rows = tx.execute(
        """
        WITH RECURSIVE needed AS (
          SELECT d.depends_on AS manifest
            FROM checkpoints k JOIN dependencies d USING (project, manifest)
           WHERE k.project = %(project)s AND k.checkpoint_id = ANY(%(ids)s)
           UNION
          SELECT d.depends_on
            FROM needed n JOIN dependencies d
                 ON d.project = %(project)s AND d.manifest = n.manifest
        )
        SELECT k.checkpoint_id
          FROM needed n JOIN checkpoints k ON k.project = %(project)s AND k.manifest = n.manifest
         ORDER BY k.checkpoint_id
        """,
        {"project": project, "ids": list(checkpoint_ids)},
    )
    return [row["checkpoint_id"] for row in rows]


def passes(
    tx: Transaction, project: str, copy_ids: Iterable[int], levels: Iterable[str], since: datetime
) -> list[Pass]:
    """The newest passing receipt of any of the levels for each of these copies that is
    present, if it was recorded at or after `since`."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (r.copy_id)
               r.receipt, r.copy_id, k.manifest, r.level, r.recorded_at
          FROM receipts r JOIN copies c USING (copy_id)
          JOIN checkpoints k ON k.checkpoint_id = c.checkpoint_id
         WHERE r.project = %s AND r.copy_id = ANY(%s) AND r.level = ANY(%s)
           AND r.verdict = 'pass' AND r.recorded_at >= %s AND c.state = 'present'
         ORDER BY r.copy_id, r.number DESC
        """,
        (project, list(copy_ids), [str(level) for level in levels], since),
    )
    return [Pass(**row) for row in rows]
