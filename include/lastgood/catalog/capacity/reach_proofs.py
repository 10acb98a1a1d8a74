"""Proofs of reach as they were recorded, and what they are made of beside the gate's verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound
from lastgood.rules.reach import Proof
from lastgood.rules.retention_rules import Position


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One recorded proof."""

    proof_id: int
    project: str
    store: str
    mark_id: int | None
    proof: Proof
    recorded_at: datetime


def record(
    tx: Transaction, project: str, store: str, mark_id: int | None, proof: Proof
) -> ProofRow:
    """Append a proof."""
    row = tx.execute(
        """
        INSERT INTO reach_proofs (project, store, mark_id, reaches, document, recorded_at)
        VALUES (%s, %s, %s, %s, %s, catalog_clock()) RETURNING proof_id, recorded_at
        """,
        (project, store, mark_id, proof.reaches, Jsonb(proof.to_json())),
    ).fetchone()
    assert row is not None
    return ProofRow(row["proof_id"], project, store, mark_id, proof, row["recorded_at"])


def newest(
    tx: Transaction, project: str, store: str, *, after: datetime | None = None
) -> ProofRow | None:
    """The newest proof, if it was recorded after `after` where that is given."""
    row = tx.execute(
        """
        SELECT proof_id, project, store, mark_id, document, recorded_at FROM reach_proofs
         WHERE project = %s AND store = %s
           AND recorded_at > coalesce(%s, '-infinity'::timestamptz)
         ORDER BY recorded_at DESC, proof_id DESC LIMIT 1
        """,
        (project, store, after),
    ).fetchone()
    return _read(row) if row else None


def get(tx: Transaction, project: str, proof_id: int) -> ProofRow:
    """Raises NotFound if the project has no such proof."""
    row = tx.execute(
        """
        SELECT proof_id, project, store, mark_id, document, recorded_at FROM reach_proofs
         WHERE project = %s AND proof_id = %s
        """,
        (project, proof_id),
    ).fetchone()
    if row is None:
        raise NotFound(what="proof of reach", name=str(proof_id))
    return _read(row)


def returning_to_others(
    tx: Transaction, project: str, store: str
) -> Sequence[tuple[int, datetime]]:
    """What the other projects' newest proofs of the last hour say is still to come back in the
    store: bytes, and when. What was to come before now has, and is counted no more, or will not."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (project) proof_id, project, store, mark_id, document, recorded_at
          FROM reach_proofs
         WHERE store = %s AND project <> %s AND recorded_at > catalog_clock() - interval '1 hour'
         ORDER BY project, recorded_at DESC, proof_id DESC
        """,
        (store, project),
    ).fetchall()
    now = history.now(tx)
    return [(size, at) for row in rows for at, size in _read(row).proof.returning if at > now]


def _read(row: dict[str, Any]) -> ProofRow:
    proof = Proof.from_json(row.pop("document"))
    return ProofRow(**row, proof=proof)


@dataclass(frozen=True, slots=True)
class StandingProof:
    """A present copy with a pass that is fresh enough."""

    stage_id: int
    position: Position
    checkpoint_id: int


def standing(
    tx: Transaction, project: str, stage_ids: Iterable[int], levels: Iterable[str], since: datetime
) -> Sequence[StandingProof]:
    """Of these stages every checkpoint that a copy with a pass at one of the levels stands for,
    recorded at or after `since`; a copy of which a later receipt failed stands for nothing."""
    rows = tx.execute(
        """
        SELECT DISTINCT k.stage_id, k.generation, k.sequence, k.checkpoint_id
          FROM receipts r
          JOIN copies c USING (copy_id)
          JOIN checkpoints k ON k.checkpoint_id = c.checkpoint_id
         WHERE r.project = %(project)s AND r.stage_id = ANY(%(stages)s)
           AND r.level = ANY(%(levels)s) AND r.verdict = 'pass' AND r.recorded_at >= %(since)s
           AND c.state = 'present'
           AND NOT EXISTS (SELECT 1 FROM receipts f
                            WHERE f.copy_id = r.copy_id AND f.verdict = 'fail'
                              AND f.number > r.number)
         ORDER BY k.stage_id, k.generation, k.sequence
        """,
        {
            "project": project,
            "stages": sorted(set(stage_ids)),
            "levels": [str(level) for level in levels],
            "since": since,
        },
    )
    return [
        StandingProof(row["stage_id"], (row["generation"], row["sequence"]), row["checkpoint_id"])
        for row in rows
    ]


def needs(tx: Transaction, project: str, checkpoint_ids: Iterable[int]) -> dict[int, set[int]]:
    """Which of these checkpoints each of them depends on."""
    rows = tx.execute(
        """
        SELECT k.checkpoint_id, n.checkpoint_id AS needed
          FROM checkpoints k
          JOIN dependencies d ON d.project = k.project AND d.manifest = k.manifest
          JOIN checkpoints n ON n.project = d.project AND n.manifest = d.depends_on
         WHERE k.project = %(project)s AND k.checkpoint_id = ANY(%(ids)s)
           AND n.checkpoint_id = ANY(%(ids)s)
        """,
        {"project": project, "ids": sorted(set(checkpoint_ids))},
    )
    found: dict[int, set[int]] = {}
    for row in rows:
        found.setdefault(row["checkpoint_id"], set()).add(row["needed"])
    return found


def dependents(tx: Transaction, project: str, checkpoint_ids: Iterable[int]) -> dict[int, set[int]]:
    """By checkpoint the copies, present or in quarantine, of what depends on it directly."""
    rows = tx.execute(
        """
        SELECT n.checkpoint_id, c.copy_id
          FROM checkpoints n
          JOIN dependencies d ON d.project = n.project AND d.depends_on = n.manifest
          JOIN checkpoints k ON k.project = d.project AND k.manifest = d.manifest
          JOIN copies c ON c.checkpoint_id = k.checkpoint_id
         WHERE n.project = %(project)s AND n.checkpoint_id = ANY(%(ids)s)
           AND c.state IN ('present', 'quarantined')
        """,
        {"project": project, "ids": sorted(set(checkpoint_ids))},
    )
    found: dict[int, set[int]] = {}
    for row in rows:
        found.setdefault(row["checkpoint_id"], set()).add(row["copy_id"])
    return found


def next_saves(tx: Transaction, store: str) -> dict[str, int]:
    """By project, the bytes of the newest checkpoint of every stage that is being written, and has
    nothing under way, with its manifest: what the next saves into their own store take."""
    rows = tx.execute(
        """
        SELECT s.project, sum(k.total_bytes + octet_length(m.body))::bigint AS bytes
          FROM stages AS s
          JOIN projects AS p ON p.project = s.project AND p.store = %(store)s
          JOIN generation_leases AS l ON l.stage_id = s.stage_id AND l.generation = s.generation
          JOIN latest_pointers AS n ON n.stage_id = s.stage_id
          JOIN checkpoints AS k ON k.checkpoint_id = n.checkpoint_id
          JOIN manifests AS m ON m.project = k.project AND m.digest = k.manifest
         WHERE l.expires_at > catalog_clock()
           AND NOT EXISTS (SELECT 1 FROM generation_ends AS e
                            WHERE e.stage_id = s.stage_id AND e.generation = s.generation)
           AND NOT EXISTS (SELECT 1 FROM attempts AS a
                            WHERE a.stage_id = s.stage_id AND a.generation = s.generation
                              AND a.state IN ('open', 'sealed'))
         GROUP BY s.project
        """,
        {"store": store},
    )
    return {row["project"]: row["bytes"] for row in rows}


def copy_ids(tx: Transaction, project: str, store: str) -> set[int]:
    """The project's copies in a store that are present or in quarantine."""
    rows = tx.execute(
        """
        SELECT copy_id FROM copies
         WHERE project = %s AND store = %s AND state IN ('present', 'quarantined')
        """,
        (project, store),
    )
    return {row["copy_id"] for row in rows}
