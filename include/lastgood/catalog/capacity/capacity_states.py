"""Where each project stands in each store, as history: a row for each change, with its numbers and
its cause.

Rows are written under the project's shared lock and the store's counters, and later than every mark
that was made: what a mark has judged by does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.rules.capacity import Standing


@dataclass(frozen=True, slots=True)
class StateRow:
    """One change. `numbers` are the standing's, as they were."""

    project: str
    store: str
    number: int
    state: str
    cause: str
    numbers: dict[str, Any]
    proof_id: int | None
    actor: str
    recorded_at: datetime


_COLUMNS = "project, store, number, state, cause, numbers, proof_id, actor, recorded_at"


def newest(tx: Transaction, project: str, store: str) -> StateRow | None:
    """The last change. None: it always stood open."""
    row = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM capacity_states
         WHERE project = %s AND store = %s ORDER BY number DESC LIMIT 1
        """,
        (project, store),
    ).fetchone()
    return StateRow(**row) if row else None


def record(
    tx: Transaction,
    project: str,
    store: str,
    standing: Standing,
    *,
    cause: str,
    proof_id: int | None,
    actor: str,
) -> StateRow:
    """Append a change. The caller holds the project's shared lock and the store's counters."""
    row = tx.execute(
        f"""
        WITH last AS (
          SELECT max(number) AS number
            FROM capacity_states WHERE project = %(project)s AND store = %(store)s
        )
        INSERT INTO capacity_states ({_COLUMNS})
        SELECT %(project)s, %(store)s, coalesce(last.number, 0) + 1, %(state)s, %(cause)s,
               %(numbers)s, %(proof_id)s, %(actor)s, %(at)s
          FROM last
        RETURNING {_COLUMNS}
        """,
        {
            "project": project,
            "store": store,
            "state": standing.state.value,
            "cause": cause,
            "numbers": Jsonb(standing.to_json()),
            "proof_id": proof_id,
            "actor": actor,
            "at": history.next_instant(tx, project),
        },
    ).fetchone()
    assert row is not None
    return StateRow(**row)


def opened_at(tx: Transaction, project: str, store: str) -> datetime | None:
    """When the project last came to stand open in the store; None if it always did, or never
    again."""
    row = tx.execute(
        """
        SELECT max(recorded_at) AS at FROM capacity_states
         WHERE project = %s AND store = %s AND state = 'open'
        """,
        (project, store),
    ).fetchone()
    assert row is not None
    at: datetime | None = row["at"]
    return at


def pressed_since(tx: Transaction, project: str, as_of: datetime) -> datetime | None:
    """Since when the project has not stood open in one of its stores, as of an instant; None if it
    does in all."""
    row = tx.execute(
        """
        SELECT min(s.recorded_at) AS since FROM capacity_states AS s
         WHERE s.project = %(project)s AND s.recorded_at <= %(as_of)s AND s.state <> 'open'
           AND NOT EXISTS (SELECT 1 FROM capacity_states AS o
                            WHERE o.project = s.project AND o.store = s.store
                              AND o.state = 'open' AND o.number > s.number
                              AND o.recorded_at <= %(as_of)s)
        """,
        {"project": project, "as_of": as_of},
    ).fetchone()
    assert row is not None
    since: datetime | None = row["since"]
    return since


def changes(tx: Transaction, project: str | None = None, *, limit: int = 100) -> Sequence[StateRow]:
    """The changes of one project or of all, the newest first."""
    rows = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM capacity_states
         WHERE %(project)s::text IS NULL OR project = %(project)s
         ORDER BY recorded_at DESC, project, store, number DESC LIMIT %(limit)s
        """,
        {"project": project, "limit": limit},
    )
    return [StateRow(**row) for row in rows]


def as_of(tx: Transaction, project: str | None, at: datetime) -> Sequence[StateRow]:
    """The last change of every project and store up to an instant."""
    rows = tx.execute(
        f"""
        SELECT DISTINCT ON (project, store) {_COLUMNS} FROM capacity_states
         WHERE (%(project)s::text IS NULL OR project = %(project)s) AND recorded_at <= %(at)s
         ORDER BY project, store, number DESC
        """,
        {"project": project, "at": at},
    )
    return [StateRow(**row) for row in rows]
