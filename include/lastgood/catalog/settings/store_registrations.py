"""Which stores were unregistered, registered anew, by whom and why; and what forbids the first.

A store's row stays for good, for history names it. `unregistered_at` of that row is a cache of the
last event here; whoever lists stores looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history, locks
from lastgood.catalog.db import Transaction
from lastgood.catalog.settings import projects
from lastgood.rules.quantities import counted


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A store that is registered no more: by whom, when (UTC) and why; `config` as it was. `lost`:
    it was given up with what lay in it, `lost_copies` with `lost_bytes` of that."""

    store: str
    kind: str
    config: Mapping[str, Any]
    because: str
    actor: str
    recorded_at: datetime
    lost: bool
    lost_copies: int
    lost_bytes: int


def unregister(
    tx: Transaction, store: str, *, because: str, actor: str, lost: bool = False
) -> datetime:
    """Record that a store is registered no more (`lost`: that it was given up), and forget what its
    backend last accounted; answers when (UTC). The caller holds `locks.store` and saw that nothing
    is in the way."""
    row = projects.store(tx, store)
    at = _append(tx, store, "lost" if lost else "unregistered", row.config, because, actor)
    tx.execute("UPDATE stores SET unregistered_at = %s WHERE store = %s", (at, store))
    tx.execute(
        """
        UPDATE capacity_counters SET backend_bytes = NULL, backend_total = NULL,
               backend_known_bytes = NULL, backend_at = NULL
         WHERE store = %s
        """,
        (store,),
    )
    return at


def register_anew(tx: Transaction, store: str, *, actor: str) -> None:
    """Record that a store, just put, is registered again; nothing for one that was all along."""
    locks.store(tx, store)
    row = tx.execute(
        "SELECT config FROM stores WHERE store = %s AND unregistered_at IS NOT NULL", (store,)
    ).fetchone()
    if row is None:
        return
    _append(tx, store, "registered", row["config"], "it is configured again", actor)
    tx.execute("UPDATE stores SET unregistered_at = NULL WHERE store = %s", (store,))


def was_unregistered(tx: Transaction, store: str) -> bool:
    """Whether a store was ever unregistered."""
    row = tx.execute("SELECT 1 FROM store_registrations WHERE store = %s", (store,)).fetchone()
    return row is not None


def unregistered(tx: Transaction) -> Sequence[Unregistered]:
    """The stores that are registered no more, the last one first."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (r.store) r.store, s.kind, r.document AS config, r.because, r.actor,
               r.recorded_at, r.kind = 'lost' AS lost, l.copies AS lost_copies,
               l.bytes AS lost_bytes
          FROM store_registrations AS r JOIN stores AS s USING (store)
          CROSS JOIN LATERAL (
            SELECT count(*) AS copies,
                   coalesce(sum(k.total_bytes + c.control_bytes), 0)::bigint AS bytes
              FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id)
             WHERE c.store = s.store AND c.state = 'lost') AS l
         WHERE s.unregistered_at IS NOT NULL
         ORDER BY r.store, r.number DESC
        """
    )
    found = [Unregistered(**row) for row in rows]
    return sorted(found, key=lambda one: one.recorded_at, reverse=True)


def writers_of(tx: Transaction, store: str) -> Sequence[tuple[str, int, int]]:
    """The stages that ever had an attempt in a store: project, id, newest generation."""
    rows = tx.execute(
        """
        SELECT project, stage_id, generation FROM stages
         WHERE stage_id IN (SELECT stage_id FROM attempts WHERE store = %s) AND last_event > 0
         ORDER BY stage_id
        """,
        (store,),
    )
    return [(row["project"], row["stage_id"], row["generation"]) for row in rows]


def dependents(tx: Transaction, store: str) -> list[str]:
    """What a store is still needed for, as far as rows tell, in words that name each."""
    return [
        *users(tx, store),
        *contents(tx, store),
        *_counted(tx, store, _DELETIONS, "deletion is", "deletions are", "not proven"),
        *_counted(tx, store, _FINDINGS, "finding is", "findings are", "open"),
        *_lying_inventories(tx, store),
    ]


def users(tx: Transaction, store: str) -> list[str]:
    """What is configured to write to a store, in words that name each."""
    return [*_projects(tx, store), *_inventory_places(tx, store)]


def contents(tx: Transaction, store: str) -> list[str]:
    """What lies in a store of checkpoints and attempts, in words that name each."""
    return [
        *_counted(tx, store, _COPIES, "copy is", "copies are", "{state}"),
        *_counted(tx, store, _ATTEMPTS, "attempt is", "attempts are", "{state}"),
        *_counted(tx, store, _UPLOADS, "upload is", "uploads are", "not gone"),
    ]


_COPIES = """
    SELECT project, state, count(*) AS number FROM copies
     WHERE store = %s AND state NOT IN ('deleted', 'lost')
     GROUP BY project, state ORDER BY project, state"""
_ATTEMPTS = """
    SELECT project, state, count(*) AS number FROM attempts
     WHERE store = %s AND state NOT IN ('committed', 'closed')
     GROUP BY project, state ORDER BY project, state"""
_UPLOADS = """
    SELECT project, '' AS state, count(*) AS number FROM incomplete_uploads
     WHERE store = %s AND state NOT IN ('gone', 'continued', 'lost')
     GROUP BY project ORDER BY project"""
_DELETIONS = """
    SELECT t.project, '' AS state, count(*) AS number
      FROM tombstones AS t LEFT JOIN copies AS c USING (copy_id)
     WHERE t.store = %s AND c.state IS DISTINCT FROM 'deleting' AND c.state IS DISTINCT FROM 'lost'
       AND NOT EXISTS (SELECT 1 FROM attempts AS a    -- ended without a proof: lost with the store
                        WHERE a.attempt_id = t.attempt_id AND a.state = 'closed')
       AND NOT EXISTS (SELECT 1 FROM tombstone_proofs AS p WHERE p.tombstone_id = t.tombstone_id)
     GROUP BY t.project ORDER BY t.project"""
_FINDINGS = """
    SELECT f.project, '' AS state, count(*) AS number FROM findings AS f
      CROSS JOIN LATERAL (SELECT e.kind FROM finding_events AS e
        WHERE e.finding_id = f.finding_id AND e.kind IN ('opened', 'explained', 'closed')
        ORDER BY e.number DESC LIMIT 1) AS s
     WHERE f.store = %s AND s.kind = 'opened' GROUP BY f.project ORDER BY f.project"""


def _counted(tx: Transaction, store: str, query: Any, one: str, many: str, how: str) -> list[str]:
    found = []
    for row in tx.execute(query, (store,)).fetchall():
        of = f" of {row['project']}" if row["project"] else ""
        noun, verb = (one if row["number"] == 1 else many).split()
        found.append(f"{row['number']} {noun}{of} {verb} {how.format(state=row['state'])}")
    return found


def _projects(tx: Transaction, store: str) -> list[str]:
    """But for the one in which drills write: it is made and left with the store."""
    rows = tx.execute(
        """
        SELECT project FROM projects WHERE store = %s
           AND project NOT IN (SELECT project FROM scratch_projects) ORDER BY project
        """,
        (store,),
    )
    return [
        f"project {row['project']} writes to it (projects/{row['project']}.yaml: store)"
        for row in rows
    ]


def _lying_inventories(tx: Transaction, store: str) -> list[str]:
    """Those of other stores that lie in it."""
    rows = tx.execute(
        """
        SELECT store, count(*) AS number FROM (
          SELECT DISTINCT ON (store, inventory) store, kind FROM inventory_events
           WHERE place = %(store)s AND store <> %(store)s
           ORDER BY store, inventory, number DESC) AS newest
         WHERE kind <> 'deleted' GROUP BY store ORDER BY store
        """,
        {"store": store},
    ).fetchall()
    return [
        f"{counted(row['number'], 'inventory', 'inventories')} of store {row['store']} kept in it"
        for row in rows
    ]


def _inventory_places(tx: Transaction, store: str) -> list[str]:
    """The other stores whose inventories are to lie in it."""
    named = tx.execute(
        """
        SELECT store FROM stores
         WHERE config #>> '{inventories,place}' = %(store)s AND store <> %(store)s
           AND unregistered_at IS NULL ORDER BY store
        """,
        {"store": store},
    )
    return [
        f"store {row['store']} keeps its inventories in it"
        f" (stores/{row['store']}.yaml: inventories.place)"
        for row in named
    ]


def _append(
    tx: Transaction, store: str, kind: str, config: Mapping[str, Any], because: str, actor: str
) -> datetime:
    at = history.now(tx)
    tx.execute(
        """
        INSERT INTO store_registrations (store, number, kind, document, because, actor, recorded_at)
        SELECT %(store)s, 1 + coalesce(max(number), 0), %(kind)s, %(document)s, %(because)s,
               %(actor)s, %(at)s
          FROM store_registrations WHERE store = %(store)s
        """,
        {
            "store": store,
            "kind": kind,
            "document": Jsonb(dict(config)),
            "because": because,
            "actor": actor,
            "at": at,
        },
    )
    return at
