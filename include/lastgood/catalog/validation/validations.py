"""What a validator asks of the catalog: what is present, what was said of it, where to walk
back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.jobs.dependencies import LACKING, SOUND
from lastgood.rules.cadence import CopySeen, Seen
from lastgood.rules.retention_rules import Level, ReceiptVerdict

REQUESTED = "validation-requested"


@dataclass(frozen=True, slots=True)
class PresentCopy:
    """A present copy with its latest receipt of each level. `failed`: its newest word is a
    failure. `contract` is the one that its manifest names."""

    copy_id: int
    seen: CopySeen
    failed: bool
    contract: str | None


def project_of(tx: Transaction, copy_id: int) -> str:
    """The project of a copy, for a task that was handed only its id. Raises NotFound."""
    row = tx.execute("SELECT project FROM copies WHERE copy_id = %s", (copy_id,)).fetchone()
    if row is None:
        raise errors.NotFound(what="copy", name=str(copy_id))
    project: str = row["project"]
    return project


def request(tx: Transaction, copy: Copy, level: Level, *, actor: str) -> None:
    """Ask for a validation of a copy whose stage this transaction has locked."""
    history.record(
        tx,
        copy.stage_id,
        REQUESTED,
        actor=actor,
        facts={
            "checkpoint": str(copy.checkpoint),
            "copy_id": copy.copy_id,
            "level": level.value,
        },
    )


def requested(tx: Transaction, project: str, since: datetime) -> list[tuple[int, Level]]:
    """What was asked for since an instant and not done after it, of present copies: the oldest
    request first."""
    rows = tx.execute(
        """
        SELECT (e.facts->>'copy_id')::bigint AS copy_id, e.facts->>'level' AS level
          FROM events e
          JOIN copies c ON c.copy_id = (e.facts->>'copy_id')::bigint AND c.state = 'present'
         WHERE e.project = %(project)s AND e.kind = %(kind)s AND e.recorded_at > %(since)s
           AND NOT EXISTS (SELECT 1 FROM receipts r
                            WHERE r.copy_id = c.copy_id AND r.level = e.facts->>'level'
                              AND r.recorded_at > e.recorded_at)
         ORDER BY e.recorded_at
        """,
        {"project": project, "kind": REQUESTED, "since": since},
    )
    return [(row["copy_id"], Level(row["level"])) for row in rows]


def unknown_at(
    tx: Transaction,
    project: str,
    store: str,
    prefixes: Sequence[str],
    *,
    seen_at: datetime,
    asked_since: datetime,
) -> list[tuple[int, int]]:
    """Of the project's present copies at these prefixes of a store those of which nothing is known
    yet of what was seen there at `seen_at`: stage and copy, in order. Known are a copy whose newest
    word is a failure, one that was validated since, and one whose validation was asked for since
    `asked_since` and is not done."""
    rows = tx.execute(
        """
        SELECT c.stage_id, c.copy_id
          FROM copies c
         WHERE c.project = %(project)s AND c.store = %(store)s AND c.state = 'present'
           AND c.prefix = ANY(%(prefixes)s)
           AND NOT EXISTS (
               SELECT FROM (SELECT verdict, recorded_at FROM receipts r
                             WHERE r.copy_id = c.copy_id AND r.verdict <> 'inconclusive'
                             ORDER BY number DESC LIMIT 1) AS last
                WHERE last.verdict = 'fail' OR last.recorded_at > %(seen_at)s)
         ORDER BY c.stage_id, c.copy_id
        """,
        {
            "project": project,
            "store": store,
            "prefixes": list(prefixes),
            "seen_at": seen_at,
        },
    ).fetchall()
    waiting = {copy_id for copy_id, _ in requested(tx, project, asked_since)}
    return [(row["stage_id"], row["copy_id"]) for row in rows if row["copy_id"] not in waiting]


def contract_of(tx: Transaction, project: str, copy_id: int) -> str | None:
    """The contract that a copy's manifest names for restore drills."""
    row = tx.execute(
        """
        SELECT k.contract FROM copies c JOIN checkpoints k USING (checkpoint_id)
         WHERE c.project = %s AND c.copy_id = %s
        """,
        (project, copy_id),
    ).fetchone()
    return None if row is None else row["contract"]


def present(tx: Transaction, project: str) -> dict[int, list[PresentCopy]]:
    """The present copies of each stage, oldest checkpoint first; without those whose commit
    still has its completion marker to write."""
    rows = tx.execute(
        """
        SELECT c.stage_id, c.copy_id, k.generation, k.sequence, k.contract, r.level,
               r.verdict, r.finished_at, r.validator_version, r.settled, k.recorded_at,
               coalesce((SELECT l.verdict FROM receipts l
                          WHERE l.copy_id = c.copy_id AND l.verdict <> 'inconclusive'
                          ORDER BY l.number DESC LIMIT 1), 'pass') = 'fail' AS failed
          FROM copies c
          JOIN checkpoints k USING (checkpoint_id)
          JOIN attempts a ON a.attempt_id = k.attempt_id AND a.finished_at IS NOT NULL
          LEFT JOIN LATERAL (
               SELECT DISTINCT ON (level) level, verdict, finished_at, validator_version,
                      coalesce((body->'topology'->>'settled')::boolean, false) AS settled
                 FROM receipts WHERE copy_id = c.copy_id ORDER BY level, number DESC) r ON true
         WHERE c.project = %s AND c.state = 'present'
         ORDER BY c.stage_id, k.generation, k.sequence, c.copy_id
        """,
        (project,),
    )
    stages: dict[int, dict[int, PresentCopy]] = {}
    for row in rows:
        known = stages.setdefault(row["stage_id"], {})
        before = known.get(row["copy_id"])
        told = dict(before.seen.receipts) if before else {}
        if row["level"] is not None:
            told[Level(row["level"])] = Seen(
                ReceiptVerdict(row["verdict"]),
                row["finished_at"],
                row["validator_version"],
                row["settled"],
            )
        position = row["generation"], row["sequence"]
        known[row["copy_id"]] = PresentCopy(
            row["copy_id"],
            CopySeen(position, told, committed_at=row["recorded_at"]),
            row["failed"],
            row["contract"],
        )
    return {stage_id: list(known.values()) for stage_id, known in stages.items()}


def is_finished(tx: Transaction, copy: Copy) -> bool:
    """Whether the commit of a copy has written its completion marker."""
    row = tx.execute(
        "SELECT finished_at IS NOT NULL AS finished FROM attempts WHERE attempt_id = %s",
        (copy.attempt_id,),
    ).fetchone()
    assert row is not None
    finished: bool = row["finished"]
    return finished


def restorable(tx: Transaction, project: str, stage_id: int) -> list[int]:
    """The present copies of a stage whose newest word is no failure, nor that of anything that they
    depend on, from the latest pointer back to the oldest checkpoint."""
    rows = tx.execute(
        f"""
        SELECT c.copy_id
          FROM copies c
          JOIN checkpoints k USING (checkpoint_id)
          LEFT JOIN latest_pointers p ON p.stage_id = c.stage_id
         WHERE c.project = %s AND c.stage_id = %s AND {SOUND} AND NOT EXISTS ({LACKING})
           AND (p.stage_id IS NULL OR (k.generation, k.sequence) <= (p.generation, p.sequence))
         ORDER BY k.generation DESC, k.sequence DESC, c.copy_id
        """,
        (project, stage_id),
    )
    return [row["copy_id"] for row in rows]


def descendants(tx: Transaction, copy: Copy) -> list[int]:
    """The generations that must not go on if a copy is corrupt: the one that wrote it, and
    those that resumed from it; only those that have not ended."""
    rows = tx.execute(
        """
        SELECT g.generation FROM generations g
         WHERE g.project = %(project)s AND g.stage_id = %(stage_id)s
           AND (g.generation = %(generation)s
                OR (g.resumed_from_generation, g.resumed_from_sequence)
                   = (%(generation)s, %(sequence)s))
           AND NOT EXISTS (SELECT 1 FROM generation_ends e
                            WHERE e.stage_id = g.stage_id AND e.generation = g.generation
                              AND e.how IN ('fenced', 'released'))
         ORDER BY g.generation
        """,
        {
            "project": copy.project,
            "stage_id": copy.stage_id,
            "generation": copy.checkpoint.generation,
            "sequence": copy.checkpoint.sequence,
        },
    )
    return [row["generation"] for row in rows]
