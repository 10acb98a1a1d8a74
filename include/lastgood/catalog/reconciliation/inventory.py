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
    INVENTORIES_PREFIX,
    MANIFEST_NAME,
    MARKER_NAME,
    OBJECTS_NAME,
)

_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """One object, manifest or marker of a copy that is neither deleted nor lost. `settled`: the
    copy's attempt is committed, so that a key which lies there as expected needs no further
    look."""

    key: str
    size_bytes: int
    version_id: str | None
    copy_state: str
    project: str
    settled: bool


@dataclass(frozen=True, slots=True)
class OwnedPrefix:
    """A prefix that one attempt, or one stage's control keys, owns. No two of them overlap.

    A stage's has neither `attempt` nor `copy` state, but its newest `generation` and `event`; a
    kept inventory's has none of these, and no project.
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


_EXPECTED: LiteralString = """
    WITH held AS (
      SELECT c.copy_id, c.prefix, c.state, c.project, c.control_bytes,
             octet_length(m.body) AS manifest_bytes,
             coalesce(a.state, 'committed') = 'committed' AS settled
        FROM copies AS c
        JOIN checkpoints AS k USING (checkpoint_id)
        JOIN manifests AS m ON m.project = k.project AND m.digest = k.manifest
        LEFT JOIN attempts AS a ON a.store = c.store AND a.prefix = c.prefix
       WHERE c.store = %(store)s AND c.state NOT IN ('deleted', 'lost')
         AND (%(of)s::text = '' OR c.prefix = %(of)s)
    )
    SELECT key, size_bytes, version_id, state, project, settled FROM (
      SELECT h.prefix || %(objects)s || o.path AS key, o.size_bytes, o.version_id, h.state,
             h.project, h.settled
        FROM held AS h JOIN copy_objects AS o USING (copy_id)
      UNION ALL
      SELECT prefix || %(manifest)s, manifest_bytes, NULL, state, project, settled FROM held
      UNION ALL
      SELECT prefix || %(marker)s, control_bytes - manifest_bytes, NULL, state, project, settled
        FROM held
    ) AS expected
    ORDER BY key COLLATE "C"
"""


def expected_objects(tx: Transaction, store: str, *, of: str = "") -> Iterator[ExpectedObject]:
    """Everything that the copies in `store` consist of, by key; with `of`, of the copy with exactly
    this prefix."""
    rows = _stream(tx, "expected_objects", _EXPECTED, _expected_parameters(store, of))
    return (ExpectedObject(*row) for row in rows)


def export_expected(tx: Transaction, store: str) -> Iterator[memoryview]:
    """The same of the whole store as CSV without a header, the fastest way out of the catalog: the
    columns of ExpectedObject, booleans as `t` and `f`, an absent version unquoted and empty."""
    query: LiteralString = f"COPY ({_EXPECTED}) TO STDOUT (FORMAT csv)"
    with tx.copy(query, _expected_parameters(store, "")) as copy:
        for chunk in copy:
            yield memoryview(chunk)


def _expected_parameters(store: str, of: str) -> dict[str, object]:
    return {
        "store": store,
        "of": of,
        "objects": OBJECTS_NAME,
        "manifest": MANIFEST_NAME,
        "marker": MARKER_NAME,
    }


def begin_snapshot(tx: Transaction) -> None:
    """Let every later query of this transaction see the catalog at one moment. For looking alone:
    what decides looks anew after its lock."""
    tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def shard_bounds(tx: Transaction, store: str, objects_per_shard: int) -> list[str]:
    """Prefixes of copies that cut what is expected in `store` into shards of about so many
    objects."""
    rows = tx.execute(
        """
        WITH sized AS (
          SELECT c.prefix, sum(k.object_count + 2) OVER (ORDER BY c.prefix COLLATE "C") AS reached,
                 k.object_count + 2 AS own
            FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id)
           WHERE c.store = %(store)s AND c.state NOT IN ('deleted', 'lost')
        )
        SELECT prefix FROM sized
         WHERE reached / %(size)s > (reached - own) / %(size)s
         ORDER BY prefix COLLATE "C"
        """,
        {"store": store, "size": objects_per_shard},
    )
    return [row["prefix"] for row in rows]


def owned_prefixes(tx: Transaction, store: str, *, of: str = "") -> Iterator[OwnedPrefix]:
    """Every prefix in `store` that an attempt, a stage or a kept inventory owns, by prefix; with
    `of`, exactly this one."""
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
          UNION ALL
          SELECT %(inventories)s || concat_ws('/', e.store, e.inventory) || '/', '-',
                 NULL, NULL, false, 0, 0
            FROM inventory_events AS e
           WHERE e.place = %(store)s AND e.kind <> 'deleted' AND NOT EXISTS (
                   SELECT 1 FROM inventory_events AS later WHERE later.store = e.store
                      AND later.inventory = e.inventory AND later.number > e.number)
        ) AS owned
        WHERE %(of)s::text = '' OR prefix = %(of)s
        ORDER BY prefix COLLATE "C"
        """,
        {
            "store": store,
            "of": of,
            "control": f"{CONTROL_PREFIX}stages/",
            "inventories": INVENTORIES_PREFIX,
        },
    )
    return (OwnedPrefix(*row) for row in rows)


def moving(tx: Transaction, store: str, since: datetime) -> list[str]:
    """The prefixes in `store`, by prefix, whose bytes moved or may move since `since` (UTC, the
    catalog's clock): the attempts that may be written or cleared now, the inventories that are
    being taken, and whatever had an event."""
    rows = tx.execute(
        """
        SELECT prefix FROM (
          SELECT prefix FROM attempts
           WHERE store = %(store)s AND (greatest(recorded_at, state_at) >= %(since)s
                 OR state = 'sealed' OR state = 'aborting'
                 OR state = 'open' AND lease_expires_at > catalog_clock())
          UNION
          SELECT prefix FROM copies
           WHERE store = %(store)s AND (greatest(recorded_at, state_at) >= %(since)s
                 OR state = 'deleting')
          UNION
          SELECT %(control)s || concat_ws('/', project, workload, stage) || '/'
            FROM stages WHERE last_recorded_at >= %(since)s
          UNION
          SELECT %(inventories)s || concat_ws('/', store, inventory) || '/'
            FROM inventory_events WHERE place = %(store)s
           GROUP BY store, inventory
          HAVING max(recorded_at) >= %(since)s OR bool_and(kind = 'started')
        ) AS found ORDER BY prefix COLLATE "C"
        """,
        {
            "store": store,
            "since": since,
            "control": f"{CONTROL_PREFIX}stages/",
            "inventories": INVENTORIES_PREFIX,
        },
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
