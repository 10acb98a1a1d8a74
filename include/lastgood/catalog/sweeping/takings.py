"""What sweeps took in the last day: many small ones must not do what a large one has to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Day:
    """The day until now. `existed` are the copies that are older than a day, those among them that
    were taken meanwhile included; `taken` are these: put into quarantine when they were older than
    a day, not taken back, and not approved by anybody."""

    since: datetime
    taken: int
    existed: int


def of_day(tx: Transaction, project: str) -> Day:
    """Count the last 24 hours by the catalog's clock."""
    row = tx.execute(
        """
        WITH day AS (
          SELECT catalog_clock() - interval '1 day' AS since
        ), approved AS (
          SELECT q.policy_digest, a.recorded_at AS at, unnest(q.to_quarantine) AS copy_id
            FROM sweep_requests q JOIN sweep_approvals a USING (request_id), day
           WHERE q.project = %(project)s AND a.recorded_at > day.since - interval '1 day'
        ), taken AS (
          SELECT DISTINCT ON (t.copy_id) t.copy_id, t.recorded_at AS at, m.policy_digest, c.state,
                 (SELECT max(back.recorded_at) FROM copy_transitions back
                   WHERE back.copy_id = t.copy_id AND back.to_state = 'present') AS present_at
            FROM copy_transitions t JOIN copies c USING (copy_id)
                 LEFT JOIN marks m USING (mark_id), day
           WHERE t.project = %(project)s AND t.to_state = 'quarantined'
             AND t.recorded_at > day.since
             AND t.recorded_at >= c.recorded_at + interval '1 day' AND c.state <> 'present'
           ORDER BY t.copy_id, t.number DESC
        )
        SELECT day.since,
               (SELECT count(*) FROM taken WHERE NOT EXISTS (
                  SELECT FROM approved
                   WHERE approved.copy_id = taken.copy_id
                     AND approved.policy_digest = taken.policy_digest
                     AND approved.at BETWEEN taken.present_at AND taken.at)) AS taken,
               (SELECT count(*) FROM copies c
                 WHERE c.project = %(project)s AND c.state NOT IN ('deleted', 'lost')
                   AND c.recorded_at <= day.since)
               + (SELECT count(*) FROM taken WHERE state IN ('deleted', 'lost')) AS existed
          FROM day
        """,
        {"project": project},
    ).fetchone()
    assert row is not None
    return Day(row["since"], row["taken"], row["existed"])
