"""The inventory of incomplete uploads: what was found unfinished, how it went on, and the proof
that it is gone.

    waiting -> fenced -> aborting -> gone      of an attempt that nobody continues
    waiting -> reported -> aborting -> gone    below no attempt's prefix: a finding comes first
    waiting -> continued                       its writer came back, or committed it

What is left when an operator gives up its store is lost: nothing proves that it is gone.

What turns up again after it was gone, as a part does that was on its way, waits again. The state is
the last row of `incomplete_upload_states`; each abort is a row of `incomplete_upload_tries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction

State = Literal["waiting", "reported", "fenced", "aborting", "gone", "continued", "lost"]
Source = Literal["recorded", "listed"]
LEFT: Sequence[State] = ("waiting", "reported", "fenced", "aborting")
OBJECTS = ""
"""The upload id of what an attempt left as objects beside its uploads."""


@dataclass(frozen=True, slots=True)
class Found:
    """An unfinished upload as a look found it. `parts` and `part_bytes` are None where only the
    catalog knows of it; `initiated_at` is the store's clock; `reason` is why it counts as
    incomplete."""

    key: str
    upload_id: str
    attempt_id: UUID | None
    source: Source
    owner: str
    initiated_at: datetime | None
    parts: int | None
    part_bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Try:
    """One abort and what came of it; `part_bytes` were held just before."""

    outcome: Literal["gone", "absent", "failed"]
    part_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An upload of the inventory as it stands. The lease and the grant are its attempt's; `proof`
    is there once it is gone."""

    entry_id: int
    project: str
    store: str
    key: str
    upload_id: str
    attempt_id: UUID | None
    source: Source
    owner: str
    initiated_at: datetime | None
    first_seen_at: datetime
    listed_at: datetime | None
    parts: int | None
    part_bytes: int | None
    state: State
    state_at: datetime
    tries: int
    reason: str
    lease_expires_at: datetime | None
    grant_expires_at: datetime | None
    proof: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Left:
    """How much of a project is left in a store in one state; `oldest_seconds` since the first
    look."""

    project: str
    store: str
    state: str
    number: int
    part_bytes: int
    oldest_seconds: float


_SELECT = """
    SELECT u.entry_id, u.project, u.store, u.key, u.upload_id, u.attempt_id, u.source, u.owner,
           u.initiated_at, u.first_seen_at, u.listed_at, u.parts, u.part_bytes, u.state, u.state_at,
           u.tries, s.reason, a.lease_expires_at, a.grant_expires_at,
           CASE WHEN u.state = 'gone' THEN s.facts END AS proof
      FROM incomplete_uploads u
      JOIN incomplete_upload_states s ON s.entry_id = u.entry_id AND s.number = u.changes
      LEFT JOIN attempts a ON a.attempt_id = u.attempt_id
"""


def see(
    tx: Transaction, project: str, store: str, found: Iterable[Found], *, actor: str, at: datetime
) -> None:
    """Take what a look at `at` found into the inventory: new ones wait, known ones are seen again,
    and those that were gone or continued wait again, if the store shows them."""
    listed = sorted(found, key=lambda one: (one.key, one.upload_id))
    tx.execute(
        """
        WITH seen AS (
          INSERT INTO incomplete_uploads AS u
                 (project, store, key, upload_id, attempt_id, source, owner, initiated_at,
                  first_seen_at, listed_at, parts, part_bytes, state, state_at, changes)
          SELECT %(project)s, %(store)s, key, upload_id, attempt_id, source, owner, initiated_at,
                 %(at)s, CASE WHEN part_bytes IS NOT NULL THEN %(at)s END, parts, part_bytes,
                 'waiting', %(at)s, 1
            FROM unnest(%(key)s::text[], %(upload_id)s::text[], %(attempt_id)s::uuid[],
                        %(source)s::text[], %(owner)s::text[], %(initiated_at)s::timestamptz[],
                        %(parts)s::integer[], %(part_bytes)s::bigint[], %(reason)s::text[])
                 AS f (key, upload_id, attempt_id, source, owner, initiated_at, parts, part_bytes,
                       reason)
          ON CONFLICT (store, key, upload_id) DO UPDATE
             SET attempt_id = excluded.attempt_id, owner = excluded.owner,
                 initiated_at = coalesce(excluded.initiated_at, u.initiated_at),
                 listed_at = coalesce(excluded.listed_at, u.listed_at),
                 parts = coalesce(excluded.parts, u.parts),
                 part_bytes = coalesce(excluded.part_bytes, u.part_bytes),
                 state = CASE WHEN u.state IN ('gone', 'continued', 'lost') THEN 'waiting'
                              ELSE u.state END,
                 state_at = CASE WHEN u.state IN ('gone', 'continued', 'lost')
                                 THEN excluded.state_at ELSE u.state_at END,
                 changes = u.changes
                           + CASE WHEN u.state IN ('gone', 'continued', 'lost') THEN 1 ELSE 0 END
           WHERE excluded.part_bytes IS NOT NULL OR u.state NOT IN ('gone', 'continued', 'lost')
          RETURNING u.entry_id, u.project, u.key, u.upload_id, u.changes, u.state, u.state_at
        )
        INSERT INTO incomplete_upload_states
               (entry_id, number, project, state, reason, facts, actor, recorded_at)
        SELECT s.entry_id, s.changes, s.project, 'waiting', f.reason, '{}', %(actor)s, %(at)s
          FROM seen AS s
          JOIN unnest(%(key)s::text[], %(upload_id)s::text[], %(reason)s::text[])
               AS f (key, upload_id, reason) USING (key, upload_id)
         WHERE s.state = 'waiting' AND s.state_at = %(at)s
        ON CONFLICT DO NOTHING
        """,
        {
            "project": project,
            "store": store,
            "actor": actor,
            "at": at,
            **{field.name: [getattr(one, field.name) for one in listed] for field in fields(Found)},
        },
    )


def move(
    tx: Transaction,
    entries: Iterable[int],
    state: State,
    *,
    reason: str,
    actor: str,
    at: datetime,
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Put entries into a state; those that are in it already stay. Answers how many moved."""
    moved = tx.execute(
        """
        WITH moved AS (
          UPDATE incomplete_uploads
             SET state = %(state)s, state_at = %(at)s, changes = changes + 1,
                 parts = CASE WHEN %(state)s = 'gone' THEN 0 ELSE parts END,
                 part_bytes = CASE WHEN %(state)s = 'gone' THEN 0 ELSE part_bytes END
           WHERE entry_id = ANY(%(entries)s) AND state <> %(state)s
          RETURNING entry_id, project, changes
        )
        INSERT INTO incomplete_upload_states
               (entry_id, number, project, state, reason, facts, actor, recorded_at)
        SELECT entry_id, changes, project, %(state)s, %(reason)s, %(facts)s, %(actor)s, %(at)s
          FROM moved
        """,
        {
            "entries": sorted(entries),
            "state": state,
            "reason": reason,
            "facts": Jsonb(dict(facts or {})),
            "actor": actor,
            "at": at,
        },
    )
    return moved.rowcount


def tried(tx: Transaction, tries: Mapping[int, Try], *, actor: str, at: datetime) -> None:
    """Record one abort of each of these entries."""
    tx.executemany(
        """
        WITH counted AS (
          UPDATE incomplete_uploads SET tries = tries + 1 WHERE entry_id = %s
          RETURNING entry_id, tries, project
        )
        INSERT INTO incomplete_upload_tries
               (entry_id, number, project, outcome, part_bytes, reason, actor, recorded_at)
        SELECT entry_id, tries, project, %s, %s, %s, %s, %s FROM counted
        """,
        [
            (entry, one.outcome, one.part_bytes, one.reason, actor, at)
            for entry, one in sorted(tries.items())
        ],
    )


def left(tx: Transaction, project: str, store: str | None = None) -> list[Entry]:
    """What is not known to be gone or continued, by key."""
    rows = tx.execute(
        _SELECT
        + """
         WHERE u.project = %(project)s AND (%(store)s::text IS NULL OR u.store = %(store)s)
           AND u.state NOT IN ('gone', 'continued', 'lost')
         ORDER BY u.store, u.key COLLATE "C", u.upload_id
        """,
        {"project": project, "store": store},
    )
    return [Entry(**row) for row in rows]


def left_in_store(tx: Transaction, store: str) -> list[Entry]:
    """What is not known to be gone or continued in a store, of any project, by key."""
    rows = tx.execute(
        _SELECT
        + """
         WHERE u.store = %s AND u.state NOT IN ('gone', 'continued', 'lost')
         ORDER BY u.key COLLATE "C", u.upload_id
        """,
        (store,),
    )
    return [Entry(**row) for row in rows]


def of_attempt(tx: Transaction, project: str, attempt_id: UUID) -> list[Entry]:
    """Everything that was ever found of an attempt, by key."""
    rows = tx.execute(
        _SELECT
        + ' WHERE u.project = %s AND u.attempt_id = %s ORDER BY u.key COLLATE "C", u.upload_id',
        (project, attempt_id),
    )
    return [Entry(**row) for row in rows]


def shown(
    tx: Transaction,
    project: str | None = None,
    *,
    ended: bool = False,
    limit: int = 200,
    skip: int = 0,
) -> list[Entry]:
    """For people: what is left, the oldest first, after the `skip` first; with `ended` also what is
    gone or continued."""
    rows = tx.execute(
        _SELECT
        + """
         WHERE (%(project)s::text IS NULL OR u.project = %(project)s)
           AND (%(ended)s OR u.state NOT IN ('gone', 'continued', 'lost'))
         ORDER BY u.state IN ('gone', 'continued', 'lost'), u.first_seen_at, u.entry_id
         LIMIT %(limit)s OFFSET %(skip)s
        """,
        {"project": project, "ended": ended, "limit": limit, "skip": skip},
    )
    return [Entry(**row) for row in rows]


def totals(tx: Transaction) -> list[Left]:
    """How much is left, of every project and store, by state."""
    rows = tx.execute(
        """
        SELECT project, store, state, count(*) AS number,
               coalesce(sum(part_bytes), 0)::bigint AS part_bytes,
               extract(epoch FROM catalog_clock() - min(first_seen_at))::float8 AS oldest_seconds
          FROM incomplete_uploads WHERE state NOT IN ('gone', 'continued', 'lost')
         GROUP BY project, store, state ORDER BY project, store, state
        """
    )
    return [Left(**row) for row in rows]


def history(tx: Transaction, project: str, entry_id: int) -> Sequence[Mapping[str, Any]]:
    """The states and tries of one entry, in the order in which they came."""
    return tx.execute(
        """
        SELECT 'state' AS kind, state AS what, reason, facts, actor, recorded_at, number
          FROM incomplete_upload_states WHERE project = %(project)s AND entry_id = %(entry)s
        UNION ALL
        SELECT 'try', outcome, reason, jsonb_build_object('part_bytes', part_bytes), actor,
               recorded_at, number
          FROM incomplete_upload_tries WHERE project = %(project)s AND entry_id = %(entry)s
         ORDER BY recorded_at, kind, number
        """,
        {"project": project, "entry": entry_id},
    ).fetchall()


def note_foreign(tx: Transaction, store: str, number: int, *, at: datetime) -> None:
    """Keep how many uploads a look at a store found below no project's prefix."""
    tx.execute(
        """
        INSERT INTO foreign_upload_counts (store, number, recorded_at) VALUES (%s, %s, %s)
        ON CONFLICT (store) DO UPDATE SET number = excluded.number,
                                          recorded_at = excluded.recorded_at
        """,
        (store, number, at),
    )


def foreign(tx: Transaction) -> dict[str, int]:
    """How many uploads below no project's prefix the newest look at each registered store found."""
    rows = tx.execute(
        """
        SELECT store, number FROM foreign_upload_counts JOIN stores USING (store)
         WHERE unregistered_at IS NULL ORDER BY store
        """
    )
    return {row["store"]: row["number"] for row in rows}
