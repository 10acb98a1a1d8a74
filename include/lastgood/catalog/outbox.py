"""The events that somebody still waits to hear of. `history.record` puts each one in, and `wake`
what is of no stage.

Delivery is tracked per row, never by the highest id: ids commit out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Undelivered:
    """One event that has not been delivered."""

    outbox_id: int
    project: str
    kind: str


def wake(tx: Transaction, project: str, kind: str) -> None:
    """Put in that somebody is to wake up for a project as a whole. One that still waits is
    enough."""
    tx.execute(
        """
        INSERT INTO outbox (project, kind)
        SELECT %(project)s, %(kind)s
         WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE delivered_at IS NULL
                             AND project = %(project)s AND kind = %(kind)s AND stage_id IS NULL)
        """,
        {"project": project, "kind": kind},
    )


def undelivered(tx: Transaction, kinds: Sequence[str], *, limit: int = 10_000) -> list[Undelivered]:
    """The oldest events of these kinds, of every project, that nobody has delivered."""
    tx.execute(
        """
        SELECT outbox_id, project, kind
          FROM outbox
         WHERE delivered_at IS NULL AND kind = ANY(%(kinds)s)
         ORDER BY outbox_id
         LIMIT %(limit)s
        """,
        {"kinds": list(kinds), "limit": limit},
    )
    return [Undelivered(**row) for row in tx]


def deliver(tx: Transaction, events: Sequence[Undelivered]) -> None:
    """Record that these were delivered. Delivering one again changes nothing."""
    tx.execute(
        """
        UPDATE outbox SET delivered_at = catalog_clock()
         WHERE outbox_id = ANY(%(ids)s) AND delivered_at IS NULL
        """,
        {"ids": [event.outbox_id for event in events]},
    )


def deliver_others(tx: Transaction, kinds: Sequence[str]) -> int:
    """Record events of every other kind as delivered: nobody waits for them. Returns how many."""
    tx.execute(
        """
        UPDATE outbox SET delivered_at = catalog_clock()
         WHERE delivered_at IS NULL AND kind <> ALL(%(kinds)s)
        """,
        {"kinds": list(kinds)},
    )
    return tx.rowcount
