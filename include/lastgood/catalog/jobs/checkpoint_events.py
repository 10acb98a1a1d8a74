"""What happened to the checkpoints of one stage, for people: moves between states, receipts, and
holds, each with who did it and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from lastgood.catalog.db import Transaction

Kind = Literal["state", "receipt", "hold", "release"]


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """One thing that happened. `word` is the state that a copy came to, the verdict of a receipt,
    or the kind of a hold; `about` the store, the store and level, or the hold's owner. `leaves` and
    `decided` are what the mark said by which a copy moved; None without a mark. `of` counts all
    events of the checkpoint, also those that were not asked for."""

    checkpoint_id: int
    kind: Kind
    at: datetime
    word: str
    about: str
    text: str
    actor: str
    mark_id: int | None
    leaves: str | None
    decided: str | None
    of: int


_EVENTS = """
    WITH happened AS (
      SELECT c.checkpoint_id, 'state' AS kind, t.recorded_at AS at, t.to_state AS word,
             c.store AS about, t.reason AS text, t.actor, t.mark_id, m.leaves,
             m.reasons->>0 AS decided, t.copy_id::text AS same, t.number::bigint AS number
        FROM copy_transitions AS t
        JOIN copies AS c USING (copy_id)
        LEFT JOIN mark_candidates AS m ON m.mark_id = t.mark_id AND m.copy_id = t.copy_id
       WHERE t.stage_id = %(stage_id)s AND c.checkpoint_id = ANY(%(checkpoints)s)
      UNION ALL
      SELECT r.checkpoint_id, 'receipt', r.recorded_at, r.verdict, c.store || ', ' || r.level,
             r.reason, r.validator || ' ' || r.validator_version, NULL, NULL, NULL,
             '', r.number
        FROM receipts AS r
        JOIN copies AS c USING (copy_id)
       WHERE r.stage_id = %(stage_id)s AND r.checkpoint_id = ANY(%(checkpoints)s)
      UNION ALL
      SELECT k.checkpoint_id, 'hold', k.recorded_at, h.kind, h.owner, h.reason, h.placed_by, NULL,
             NULL, NULL, h.hold_id::text, 0
        FROM hold_checkpoints AS k
        JOIN holds AS h USING (hold_id)
       WHERE k.stage_id = %(stage_id)s AND k.checkpoint_id = ANY(%(checkpoints)s)
      UNION ALL
      SELECT k.checkpoint_id, 'release', r.recorded_at, h.kind, h.owner, r.because, r.released_by,
             NULL, NULL, NULL, h.hold_id::text, 1
        FROM hold_checkpoints AS k
        JOIN holds AS h USING (hold_id)
        JOIN hold_releases AS r USING (hold_id)
       WHERE k.stage_id = %(stage_id)s AND k.checkpoint_id = ANY(%(checkpoints)s)
    ), ranked AS (
      SELECT *, row_number() OVER newest AS place, count(*) OVER (PARTITION BY checkpoint_id) AS of
        FROM happened
      WINDOW newest AS (
        PARTITION BY checkpoint_id ORDER BY at DESC, kind, same DESC, number DESC)
    )
    SELECT checkpoint_id, kind, at, word, about, text, actor, mark_id, leaves, decided, of
      FROM ranked WHERE place <= %(newest)s
     ORDER BY checkpoint_id, place
"""


def of_stage(
    tx: Transaction, stage_id: int, checkpoint_ids: Sequence[int], *, newest: int
) -> Mapping[int, Sequence[CheckpointEvent]]:
    """The newest events of each of these checkpoints of a stage, the newest first; one query."""
    found: defaultdict[int, list[CheckpointEvent]] = defaultdict(list)
    values = {"stage_id": stage_id, "checkpoints": list(checkpoint_ids), "newest": newest}
    for row in tx.execute(_EVENTS, values):
        found[row["checkpoint_id"]].append(CheckpointEvent(**row))
    return found


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of one copy, from its intent on: `proved_at` (UTC) and the `certificate` (its
    SHA-256) are there once the store was asked and the bytes are gone."""

    checkpoint_id: int
    store: str
    tombstone_id: UUID
    mark_id: int | None
    intended_at: datetime
    proved_at: datetime | None
    certificate: str | None


def deletions(
    tx: Transaction, stage_id: int, checkpoint_ids: Sequence[int]
) -> Mapping[int, Sequence[Deletion]]:
    """The tombstones of copies of each of these checkpoints of a stage, by store; one query."""
    rows = tx.execute(
        """
        SELECT t.checkpoint_id, t.store, t.tombstone_id, t.mark_id, t.recorded_at AS intended_at,
               p.recorded_at AS proved_at, c.certificate
          FROM tombstones AS t
          LEFT JOIN tombstone_proofs AS p USING (tombstone_id)
          LEFT JOIN certificates AS c USING (tombstone_id)
         WHERE t.stage_id = %s AND t.checkpoint_id = ANY(%s)
         ORDER BY t.checkpoint_id, t.store, t.number
        """,
        (stage_id, list(checkpoint_ids)),
    )
    found: defaultdict[int, list[Deletion]] = defaultdict(list)
    for row in rows:
        found[row["checkpoint_id"]].append(Deletion(**row))
    return found
