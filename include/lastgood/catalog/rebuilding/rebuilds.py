"""Rebuilds: how often this catalog was made anew from its stores, and what it became by it.

A rebuild makes the next incarnation. It is begun in the transaction that takes over the identity
that the stores name, and until its end is recorded the catalog serves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.errors import Conflict

ACTOR = "system:rebuild"
"""Who places the holds of a rebuild, and writes its history."""

_SPACE = 0x1A57EB1D  # the advisory lock of the one rebuild that may run in a catalog


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One rebuild; `ended` once its catalog may serve."""

    incarnation: int
    rebuild_id: UUID
    catalog_id: UUID
    previous_catalog_id: UUID
    stores: Sequence[str]
    actor: str
    because: str
    recorded_at: datetime
    ended: bool


def alone(tx: Transaction) -> None:
    """Let this transaction, while it lasts, be the one rebuild of this catalog. It waits a moment:
    the server may not have noticed yet that one was killed. Raises Conflict."""
    tx.execute("SET LOCAL lock_timeout = '5s'")
    try:
        tx.execute("SELECT pg_advisory_xact_lock(%s)", (_SPACE,))
    except LockNotAvailable:
        reason = "another rebuild of this catalog is running; wait for its end"
        raise Conflict(reason=reason) from None


def current(tx: Transaction) -> Rebuild | None:
    """The rebuild that made this incarnation of the catalog; None for one never rebuilt."""
    row = tx.execute(
        """
        SELECT r.incarnation, r.rebuild_id, r.catalog_id, r.previous_catalog_id, r.stores, r.actor,
               r.because, r.recorded_at, e.incarnation IS NOT NULL AS ended
          FROM identity i
          JOIN rebuilds r USING (incarnation)
          LEFT JOIN rebuild_ends e USING (incarnation)
        """
    ).fetchone()
    return Rebuild(**row) if row else None


def has_history(tx: Transaction) -> bool:
    """Whether any stage was ever opened: such a catalog is nobody else's."""
    return tx.execute("SELECT 1 FROM stages LIMIT 1").fetchone() is not None


def begin(
    tx: Transaction,
    *,
    rebuild_id: UUID,
    catalog_id: UUID,
    incarnation: int,
    stores: Sequence[str],
    actor: str,
    because: str,
) -> None:
    """Become this incarnation of the catalog that the stores name."""
    tx.execute(
        """
        INSERT INTO rebuilds (incarnation, rebuild_id, catalog_id, previous_catalog_id, stores,
                              actor, because, recorded_at)
        SELECT %s, %s, %s, catalog_id, %s, %s, %s, catalog_clock() FROM identity
        """,
        (incarnation, rebuild_id, catalog_id, Jsonb(list(stores)), actor, because),
    )
    tx.execute("UPDATE identity SET catalog_id = %s, incarnation = %s", (catalog_id, incarnation))


def end(tx: Transaction, incarnation: int, result: Mapping[str, Any]) -> None:
    """The catalog may serve from now on."""
    tx.execute(
        "INSERT INTO rebuild_ends (incarnation, result, recorded_at)"
        " VALUES (%s, %s, catalog_clock()) ON CONFLICT DO NOTHING",
        (incarnation, Jsonb(dict(result))),
    )


def former_ids(tx: Transaction) -> set[str]:
    """The ids that this catalog had before rebuilds gave it those that its stores name."""
    rows = tx.execute("SELECT previous_catalog_id FROM rebuilds")
    return {str(row["previous_catalog_id"]) for row in rows}


def incarnations(tx: Transaction) -> set[int]:
    """The incarnations that rebuilds made."""
    return {row["incarnation"] for row in tx.execute("SELECT incarnation FROM rebuilds")}


def hold_of(tx: Transaction, project: str, reason: str) -> UUID | None:
    """The hold that a rebuild placed in a project for exactly this reason, standing or not."""
    row = tx.execute(
        "SELECT hold_id FROM holds WHERE project = %s AND placed_by = %s AND reason = %s",
        (project, ACTOR, reason),
    ).fetchone()
    return None if row is None else row["hold_id"]


def not_held(tx: Transaction, hold_id: UUID, stage_id: int) -> list[int]:
    """The checkpoints of a stage that can still be kept and that a hold has not taken."""
    rows = tx.execute(
        """
        SELECT DISTINCT k.checkpoint_id, k.generation, k.sequence
          FROM checkpoints k JOIN copies c USING (checkpoint_id)
         WHERE k.stage_id = %s AND c.state IN ('present', 'quarantined')
           AND NOT EXISTS (SELECT 1 FROM hold_checkpoints h
                            WHERE h.checkpoint_id = k.checkpoint_id AND h.hold_id = %s)
         ORDER BY k.generation, k.sequence
        """,
        (stage_id, hold_id),
    )
    return [row["checkpoint_id"] for row in rows]


def holds_standing(tx: Transaction, project: str) -> list[UUID]:
    """The holds of rebuilds that nobody has released. While there is one, nothing that a rebuild
    found is removed."""
    rows = tx.execute(
        """
        SELECT h.hold_id FROM holds h LEFT JOIN hold_releases r USING (hold_id)
         WHERE h.project = %s AND h.placed_by = %s AND r.hold_id IS NULL ORDER BY h.recorded_at
        """,
        (project, ACTOR),
    )
    return [row["hold_id"] for row in rows]
