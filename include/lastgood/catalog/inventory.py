"""What the catalog expects to lie in a store, streamed in the order in which a store lists it.

Every stream ascends by the UTF-8 bytes of its keys (COLLATE "C"), which is also the order of
Python's text. Memory is one batch of a server-side cursor, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import tuple_row

from lastgood.catalog.db import Transaction
from lastgood.rules.layout import (
    CHECKPOINTS_PREFIX,
    CONTROL_PREFIX,
    MANIFEST_NAME,
    MARKER_NAME,
    OBJECTS_NAME,
)

_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """One object, manifest or marker of a copy that is not yet deleted."""

    key: str
    size_bytes: int
    version_id: str | None
    copy_state: str


@dataclass(frozen=True, slots=True)
class OwnedPrefix:
    """A prefix that one attempt, or one stage's control keys, owns. No two of them overlap.

    A stage's has neither `attempt` nor `copy` state, but its newest `generation` and `event`.
    """

    prefix: str
    project: str
    attempt: str | None
    copy: str | None
    lease_live: bool
    generation: int
    event: int

    @property
    def is_stage(self) -> bool:
        return self.attempt is None


def expected_objects(tx: Transaction, store: str, *, below: str = "") -> Iterator[ExpectedObject]:
    """Everything that the copies in `store` consist of, below a prefix, by key."""
    rows = _stream(
        tx,
        "expected_objects",
        """
        WITH held AS (
          SELECT c.copy_id, c.prefix, c.state, c.control_bytes, octet_length(m.body) AS
          manifest_bytes FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id) JOIN manifests
          AS m ON m.project = k.project AND m.digest = k.manifest WHERE c.store = %(store)s AND
          c.state <> 'deleted' AND starts_with(c.prefix, %(below)s)
        )
        SELECT key, size_bytes, version_id, state FROM (
          SELECT h.prefix || %(objects)s || o.path AS key, o.size_bytes, o.version_id, h.state
            FROM held AS h JOIN copy_objects AS o USING (copy_id)
          UNION ALL
          SELECT prefix || %(manifest)s, manifest_bytes, NULL, state FROM held
          UNION ALL
          SELECT prefix || %(marker)s, control_bytes - manifest_bytes, NULL, state FROM held
        ) AS expected
        ORDER BY key COLLATE "C"
        """,
        {
            "store": store,
            "below": below,
            "objects": OBJECTS_NAME,
            "manifest": MANIFEST_NAME,
            "marker": MARKER_NAME,
        },
    )
    return (ExpectedObject(*row) for row in rows)


def owned_prefixes(tx: Transaction, store: str, *, below: str = "") -> Iterator[OwnedPrefix]:
    """Every prefix in `store` that an attempt or a stage owns, below a prefix, by prefix."""
    rows = _stream(
        tx,
        "owned_prefixes",
        """
        SELECT prefix, project, attempt, copy, lease_live, generation, event FROM (
          SELECT a.prefix, a.project, a.state AS attempt, c.state AS copy,
                 a.lease_expires_at > catalog_clock() AS lease_live, 0 AS generation, 0 AS event
            FROM attempts AS a
            LEFT JOIN copies AS c ON c.store = a.store AND c.prefix = a.prefix
           WHERE a.store = %(store)s
          UNION ALL
          SELECT c.prefix, c.project, 'committed', c.state, false, 0, 0
            FROM copies AS c
           WHERE c.store = %(store)s AND NOT EXISTS (
                   SELECT 1 FROM attempts AS a WHERE a.store = c.store AND a.prefix = c.prefix)
          UNION ALL
          SELECT %(control)s || concat_ws('/', project, workload, stage) || '/', project,
                 NULL, NULL, false, generation, last_event
            FROM stages
        ) AS owned
        WHERE starts_with(prefix, %(below)s)
        ORDER BY prefix COLLATE "C"
        """,
        {"store": store, "below": below, "control": f"{CONTROL_PREFIX}stages/"},
    )
    return (OwnedPrefix(*row) for row in rows)


def touched_since(tx: Transaction, store: str, since: datetime) -> list[str]:
    """The prefixes in `store` whose attempt, copy or stage had an event at or after `since` (UTC,
    the catalog's clock): what was listed there may be older or newer than what was expected
    there."""
    rows = tx.execute(
        """
        SELECT prefix FROM attempts
         WHERE store = %(store)s AND greatest(recorded_at, state_at) >= %(since)s
         UNION
        SELECT prefix FROM copies
         WHERE store = %(store)s AND greatest(recorded_at, state_at) >= %(since)s
         UNION
        SELECT %(control)s || concat_ws('/', project, workload, stage) || '/'
          FROM stages WHERE last_recorded_at >= %(since)s
        """,
        {"store": store, "since": since, "control": f"{CONTROL_PREFIX}stages/"},
    )
    return [row["prefix"] for row in rows]


def project_prefixes(project: str) -> tuple[str, str]:
    """Everything below these belongs to the project: its checkpoints, and its control keys."""
    return f"{CHECKPOINTS_PREFIX}{project}/", f"{CONTROL_PREFIX}stages/{project}/"


def _stream(
    tx: Transaction, name: str, query: LiteralString, parameters: dict[str, object]
) -> Iterator[tuple[Any, ...]]:
    """Rows through a server-side cursor of the same transaction."""
    with tx.connection.cursor(name=name, row_factory=tuple_row) as cursor:
        cursor.itersize = _BATCH_ROWS
        cursor.execute(query, parameters)
        yield from cursor
