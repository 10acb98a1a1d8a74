"""Who was told of which overdue finding, and when."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.catalog.reconciliation.findings import Finding


def told(tx: Transaction, run: str, notifier: str) -> set[UUID]:
    """The findings that a run has told of by this notifier already."""
    rows = tx.execute(
        "SELECT finding_id FROM finding_alerts WHERE run = %s AND notifier = %s", (run, notifier)
    )
    return {row["finding_id"] for row in rows}


def record(tx: Transaction, found: Iterable[Finding], *, run: str, notifier: str) -> None:
    """Record that a run told of these findings; again is nothing new."""
    for one in found:
        tx.execute(
            """
            INSERT INTO finding_alerts (finding_id, run, notifier, project, owner, deadline, bytes,
                                        recorded_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s, catalog_clock())
            ON CONFLICT (finding_id, run, notifier) DO NOTHING
            """,
            (
                one.finding_id,
                run,
                notifier,
                one.project,
                one.owner,
                one.deadline,
                one.size_bytes,
            ),
        )


def numbers(tx: Transaction) -> dict[tuple[str, str], int]:
    """How many alerts were ever given, by project and notifier."""
    rows = tx.execute(
        "SELECT project, notifier, count(*) AS number FROM finding_alerts GROUP BY 1, 2"
    )
    return {(row["project"], row["notifier"]): row["number"] for row in rows}
