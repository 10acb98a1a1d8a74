"""When and how much each stage committed, for whoever compares it with its past."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from lastgood.catalog.db import Transaction
from lastgood.rules.bursts import Commit
from lastgood.rules.names import StageId


def recent(
    tx: Transaction, project: str, store: str, *, days: int, limit: int = 5000
) -> Iterator[tuple[StageId, list[Commit]]]:
    """Each stage of a project with commits into a store within so many days, and the newest commits
    that it ever made there, the oldest of them first."""
    rows = tx.execute(
        """
        WITH active AS (
          SELECT DISTINCT k.stage_id FROM checkpoints k
           WHERE k.project = %(project)s
             AND k.recorded_at > catalog_clock() - make_interval(days => %(days)s)
        )
        SELECT s.workload, s.stage, k.recorded_at, k.total_bytes
          FROM active
          JOIN stages s USING (stage_id)
          CROSS JOIN LATERAL (
            SELECT c.recorded_at, c.total_bytes
              FROM checkpoints c
              JOIN copies p ON p.checkpoint_id = c.checkpoint_id AND p.store = %(store)s
             WHERE c.stage_id = active.stage_id
             ORDER BY c.generation DESC, c.sequence DESC LIMIT %(limit)s) k
         ORDER BY s.workload COLLATE "C", s.stage COLLATE "C", k.recorded_at
        """,
        {"project": project, "store": store, "days": days, "limit": limit},
    )
    for (workload, stage), found in groupby(rows, key=itemgetter("workload", "stage")):
        commits = [Commit(row["recorded_at"], row["total_bytes"]) for row in found]
        yield StageId.of(project, workload, stage), commits
