"""Counters of what each project has in each store. They are the last lock of a transaction.

`committed` are copies not yet proven gone, `in flight` attempts that own room from prepare until
they are committed or their bytes are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import DictRow

from lastgood.catalog import locks
from lastgood.catalog.db import Transaction
from lastgood.rules.capacity import Use


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A project's use of a store and everybody's, in bytes. `total_bytes` is what the backend said
    that it has, None if it never said."""

    own: Use
    whole: Use
    peak_bytes: int  # the largest checkpoint of any project
    total_bytes: int | None


def locked_use(tx: Transaction, project: str, store: str) -> StoreUse:
    """Lock the store's counters and read them."""
    tx.execute(
        "INSERT INTO capacity_counters (project, store) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (project, store),
    )
    locks.store_capacity(tx, store)
    return use(tx, project, store)


def use(tx: Transaction, project: str, store: str) -> StoreUse:
    """The counters as they stand, for what needs no lock."""
    rows = tx.execute(
        """
        SELECT project, committed_bytes, in_flight_bytes, peak_bytes, backend_bytes, backend_total,
               backend_known_bytes
          FROM capacity_counters WHERE store = %s
         ORDER BY backend_at NULLS FIRST, project COLLATE "C"
        """,
        (store,),
    ).fetchall()
    own = [row for row in rows if row["project"] == project]
    committed = sum(row["committed_bytes"] for row in rows)
    totals = [row["backend_total"] for row in rows if row["backend_total"]]
    return StoreUse(
        own=Use(
            sum(row["committed_bytes"] for row in own), sum(row["in_flight_bytes"] for row in own)
        ),
        whole=Use(
            committed,
            sum(row["in_flight_bytes"] for row in rows),
            _carried_on(rows, committed),
        ),
        peak_bytes=max((row["peak_bytes"] for row in rows), default=0),
        total_bytes=totals[-1] if totals else None,
    )


def _carried_on(rows: Sequence[DictRow], committed_bytes: int) -> int | None:
    """The last backend total with what was committed and proven gone since: what it had beside the
    catalog's own bytes is taken to be there still."""
    told = [row for row in rows if row["backend_bytes"] is not None]
    if not told:
        return None
    newest = told[-1]
    backend: int = newest["backend_bytes"]
    known: int | None = newest["backend_known_bytes"]
    return backend if known is None else committed_bytes + max(0, backend - known)


def sharing(tx: Transaction, store: str) -> list[str]:
    """The projects that have or had bytes in a store, in the order of names."""
    rows = tx.execute(
        'SELECT project FROM capacity_counters WHERE store = %s ORDER BY project COLLATE "C"',
        (store,),
    )
    return [row["project"] for row in rows]


def claim(tx: Transaction, project: str, store: str, size_bytes: int) -> None:
    """An attempt that was admitted owns this room from now on."""
    _add(tx, project, store, committed=0, in_flight=size_bytes)


def commit(
    tx: Transaction, project: str, store: str, *, claimed_bytes: int, stored_bytes: int
) -> None:
    """An attempt's room becomes a copy's."""
    locks.capacity(tx, project, store)
    _add(tx, project, store, committed=stored_bytes, in_flight=-claimed_bytes)
    tx.execute(
        "UPDATE capacity_counters SET peak_bytes = greatest(peak_bytes, %s)"
        " WHERE project = %s AND store = %s",
        (stored_bytes, project, store),
    )


def release_attempt(tx: Transaction, project: str, store: str, claimed_bytes: int) -> None:
    """The bytes of an attempt that was never committed are proven gone."""
    _add(tx, project, store, committed=0, in_flight=-claimed_bytes)


def release_copy(tx: Transaction, project: str, store: str, stored_bytes: int) -> None:
    """The bytes of a copy are proven gone."""
    _add(tx, project, store, committed=-stored_bytes, in_flight=0)


def _add(tx: Transaction, project: str, store: str, *, committed: int, in_flight: int) -> None:
    tx.execute(
        """
        UPDATE capacity_counters
           SET committed_bytes = committed_bytes + %s, in_flight_bytes = in_flight_bytes + %s
         WHERE project = %s AND store = %s
        """,
        (committed, in_flight, project, store),
    )
