"""How long the steps of a checkpoint's life take, over the last 30 days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of one step: the median, and what 95 of 100 stay within. `where` is the project, of
    an inventory the store."""

    step: str  # "commit" | "validate-<level>" | "delete" | "inventory"
    where: str
    p50: float
    p95: float


def measured(tx: Transaction) -> Sequence[Duration]:
    """Commits from seal to pointer, validations by level, deletions from intent to proof, and
    inventories of stores from their first page to their last. A step that was never taken is left
    out."""
    rows = tx.execute(
        """
        WITH taken AS (
          SELECT 'commit' AS step, s.project AS place, c.recorded_at - s.recorded_at AS took
            FROM attempt_transitions s JOIN attempt_transitions c USING (attempt_id)
           WHERE s.to_state = 'sealed' AND c.to_state = 'committed'
             AND c.recorded_at > catalog_clock() - interval '30 days'
          UNION ALL
          SELECT 'validate-' || level, project, finished_at - started_at
            FROM receipts WHERE recorded_at > catalog_clock() - interval '30 days'
          UNION ALL
          SELECT 'delete', t.project, p.recorded_at - t.recorded_at
            FROM tombstones t JOIN tombstone_proofs p USING (tombstone_id)
           WHERE p.recorded_at > catalog_clock() - interval '30 days'
          UNION ALL
          SELECT 'inventory', b.store, e.recorded_at - b.recorded_at
            FROM inventory_events b JOIN inventory_events e USING (store, inventory)
           WHERE b.kind = 'started' AND e.kind = 'completed'
             AND e.recorded_at > catalog_clock() - interval '30 days'
        )
        SELECT step, place, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (
                 ORDER BY extract(epoch FROM took)::float) AS spread
          FROM taken GROUP BY step, place ORDER BY step, place
        """
    )
    return [Duration(row["step"], row["place"], *row["spread"]) for row in rows]
