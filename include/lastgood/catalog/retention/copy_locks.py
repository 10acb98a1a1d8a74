"""What stores' locks keep of copies now, by the last look at each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Transaction
from lastgood.rules.copy_locks import LockLook
from lastgood.rules.names import CheckpointId


@dataclass(frozen=True, slots=True)
class LockedCopy:
    """A copy of which something is locked."""

    checkpoint: CheckpointId
    copy_id: int
    state: str
    look: LockLook


def standing(tx: Transaction, project: str, store: str) -> Sequence[LockedCopy]:
    """The copies that the store still has and of which the last look found something locked: first
    what nobody knows the end of, then what is locked longest."""
    rows = tx.execute(
        """
        SELECT s.workload, s.stage, p.generation, p.sequence, c.copy_id, c.state,
               l.versions, l.bytes AS size_bytes, l.ends_at, l.seen, l.reason, l.recorded_at
          FROM (SELECT DISTINCT ON (copy_id) * FROM copy_locks WHERE project = %(project)s
                 ORDER BY copy_id, look_id DESC) AS l
          JOIN copies AS c USING (copy_id) JOIN checkpoints AS p USING (checkpoint_id)
          JOIN stages AS s ON s.stage_id = c.stage_id
         WHERE c.project = %(project)s AND c.store = %(store)s
           AND c.state NOT IN ('deleted', 'lost')
           AND l.versions > 0
         ORDER BY l.ends_at DESC NULLS FIRST, c.copy_id
        """,
        {"project": project, "store": store},
    )
    return [_locked(project, row) for row in rows]


def totals(tx: Transaction) -> Mapping[tuple[str, str], tuple[int, int]]:
    """How many copies have something locked, and the bytes of that, by project and store."""
    rows = tx.execute(
        """
        SELECT c.project, c.store, count(*) AS copies, sum(l.bytes)::bigint AS bytes
          FROM (SELECT DISTINCT ON (copy_id) copy_id, versions, bytes FROM copy_locks
                 ORDER BY copy_id, look_id DESC) AS l
          JOIN copies AS c USING (copy_id)
         WHERE c.state NOT IN ('deleted', 'lost') AND l.versions > 0
         GROUP BY c.project, c.store
        """
    )
    return {(row["project"], row["store"]): (row["copies"], row["bytes"]) for row in rows}


def _locked(project: str, row: dict[str, object]) -> LockedCopy:
    name = [row.pop(part) for part in ("workload", "stage", "generation", "sequence")]
    copy_id, state = row.pop("copy_id"), row.pop("state")
    look = LockLook(**row)  # type: ignore[arg-type]
    return LockedCopy(CheckpointId(project, *name), copy_id, state, look)  # type: ignore[arg-type]
