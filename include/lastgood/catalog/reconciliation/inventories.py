"""Which inventories of which stores were taken, are kept, and were deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import locks
from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """One inventory as its last event left it. `facts` are that event's: of a completed one its
    totals, and the SHA-256 of its manifest. Instants are UTC."""

    store: str
    inventory: str
    place: str
    state: str  # started | completed | unusable | deleted
    facts: Mapping[str, Any]
    started_at: datetime
    recorded_at: datetime


_CURRENT = """
    SELECT DISTINCT ON (e.store, e.inventory)
           e.store, e.inventory, e.place, e.kind AS state, e.facts,
           (SELECT s.recorded_at FROM inventory_events AS s WHERE s.store = e.store
               AND s.inventory = e.inventory AND s.number = 1) AS started_at, e.recorded_at
      FROM inventory_events AS e
"""


def record(
    tx: Transaction,
    store: str,
    inventory: str,
    kind: str,
    *,
    place: str,
    facts: Mapping[str, Any],
    actor: str,
) -> None:
    """Append what happened to an inventory."""
    tx.execute(
        """
        INSERT INTO inventory_events (store, inventory, number, place, kind, facts, actor,
                                      recorded_at)
        SELECT %(store)s, %(inventory)s, 1 + coalesce(max(number), 0), %(place)s, %(kind)s,
               %(facts)s, %(actor)s, catalog_clock()
          FROM inventory_events WHERE store = %(store)s AND inventory = %(inventory)s
        """,
        {
            "store": store,
            "inventory": inventory,
            "place": place,
            "kind": kind,
            "facts": Jsonb(dict(facts)),
            "actor": actor,
        },
    )


def of_store(tx: Transaction, store: str) -> list[InventoryRow]:
    """Every inventory of a store that was not deleted, the newest first."""
    rows = tx.execute(
        f"SELECT * FROM ({_CURRENT} WHERE e.store = %s"
        " ORDER BY e.store, e.inventory, e.number DESC) AS newest"
        " WHERE state <> 'deleted' ORDER BY started_at DESC, inventory DESC",
        (store,),
    )
    return [InventoryRow(**row) for row in rows]


def lying_in(tx: Transaction, place: str) -> list[InventoryRow]:
    """Every inventory of any store that lies in a store and was not deleted."""
    rows = tx.execute(
        f"SELECT * FROM ({_CURRENT} WHERE e.place = %s"
        " ORDER BY e.store, e.inventory, e.number DESC) AS newest"
        " WHERE state <> 'deleted' ORDER BY store, started_at, inventory",
        (place,),
    )
    return [InventoryRow(**row) for row in rows]


def get(tx: Transaction, store: str, inventory: str) -> InventoryRow:
    """One inventory, also a deleted one. Raises NotFound."""
    row = tx.execute(
        f"{_CURRENT} WHERE e.store = %s AND e.inventory = %s"
        " ORDER BY e.store, e.inventory, e.number DESC",
        (store, inventory),
    ).fetchone()
    if row is None:
        raise NotFound(what=f"inventory of store {store}", name=inventory)
    return InventoryRow(**row)


def find(tx: Transaction, inventory: str) -> InventoryRow:
    """One inventory by its own name, of whatever store. Raises NotFound."""
    row = tx.execute(
        "SELECT store FROM inventory_events WHERE inventory = %s LIMIT 1", (inventory,)
    ).fetchone()
    if row is None:
        raise NotFound(what="inventory", name=inventory)
    return get(tx, row["store"], inventory)


def of_window(tx: Transaction, store: str, start: datetime, end: datetime) -> InventoryRow | None:
    """The first complete and kept inventory of a store that began in [start, end) (UTC)."""
    found = [
        one
        for one in of_store(tx, store)
        if one.state == "completed" and start <= one.started_at < end
    ]
    return found[-1] if found else None


def listed_at(
    tx: Transaction, stores: Sequence[str], until: datetime
) -> Mapping[str, datetime | None]:
    """When each store was last listed whole up to an instant (UTC), None where it never was. A
    report that was made again says nothing of this: its inventory ended when it did."""
    rows = tx.execute(
        """
        SELECT store, max(recorded_at) AS at FROM inventory_events
         WHERE kind = 'completed' AND store = ANY(%s) AND recorded_at <= %s GROUP BY store
        """,
        (list(stores), until),
    )
    known = {row["store"]: row["at"] for row in rows}
    return {store: known.get(store) for store in stores}


@dataclass(frozen=True, slots=True)
class AccountingNumber:
    """What an operator says that a backend accounts: of everything (`total`) or of one cause.
    `replicas`: the backend counts each byte so many times."""

    store: str
    cause: str
    size_bytes: int
    replicas: int
    as_of: datetime
    because: str
    actor: str
    recorded_at: datetime


TOTAL = "total"


def set_number(
    tx: Transaction,
    store: str,
    *,
    cause: str,
    size_bytes: int,
    replicas: int,
    as_of: datetime,
    because: str,
    actor: str,
) -> None:
    """Append an operator's number; the newest of a cause is the one that counts."""
    locks.store_capacity(tx, store)
    tx.execute(
        """
        INSERT INTO accounting_numbers (store, number, cause, bytes, replicas, as_of, because,
                                        actor, recorded_at)
        SELECT %(store)s, 1 + coalesce(max(number), 0), %(cause)s, %(bytes)s, %(replicas)s,
               %(as_of)s, %(because)s, %(actor)s, catalog_clock()
          FROM accounting_numbers WHERE store = %(store)s
        """,
        {
            "store": store,
            "cause": cause,
            "bytes": size_bytes,
            "replicas": replicas,
            "as_of": as_of,
            "because": because,
            "actor": actor,
        },
    )


def numbers(tx: Transaction, store: str) -> list[AccountingNumber]:
    """The newest number of each cause of a store."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (cause) store, cause, bytes AS size_bytes, replicas, as_of, because,
               actor, recorded_at
          FROM accounting_numbers WHERE store = %s ORDER BY cause, number DESC
        """,
        (store,),
    )
    return [AccountingNumber(**row) for row in rows]
