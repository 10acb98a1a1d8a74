"""The numbers of the catalog that a report shows beside the byte equation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.rules import layout


@dataclass(frozen=True, slots=True)
class Freed:
    """What was proven gone of one kind, in a window: `why` is a mark's reason, or what the deletion
    was for; `left` the role that was left, None where it was none of retention's."""

    left: str | None
    why: str
    number: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OldestAttempt:
    """The incomplete attempt whose lease ran out first."""

    attempt_id: UUID
    workload: str
    stage: str
    state: str
    declared_bytes: int
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True)
class OldestUpload:
    """The pending upload that was seen first and is still there."""

    key: str
    owner: str
    first_seen_at: datetime
    part_bytes: int | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """What the last report of one day (`at`, the end of its window, in UTC) accounted for; `lines`
    are the project's, in bytes."""

    at: datetime
    backend_bytes: int
    store_bytes: int
    lines: Mapping[str, int]


def freed(
    tx: Transaction, project: str, store: str, window: tuple[datetime, datetime]
) -> Sequence[Freed]:
    """What was proven gone in [start, end), the most bytes first. `bytes` are those of the keys
    that were deleted."""
    rows = tx.execute(
        """
        WITH proven AS (
          SELECT t.tombstone_id, m.leaves, t.attempt_id, m.copy_id,
                 CASE WHEN t.attempt_id IS NOT NULL THEN 'what an abandoned attempt left'
                      ELSE coalesce(m.reasons ->> 0, 'an operator retired it') END AS why
            FROM tombstone_proofs AS p JOIN tombstones AS t USING (tombstone_id)
            LEFT JOIN mark_candidates AS m ON m.mark_id = t.mark_id AND m.copy_id = t.copy_id
           WHERE t.project = %(project)s AND t.store = %(store)s
             AND p.recorded_at >= %(start)s AND p.recorded_at < %(end)s
        ), sizes AS (
          SELECT tombstone_id, sum(size_bytes) FILTER (WHERE outcome = 'gone') AS bytes FROM (
            SELECT DISTINCT ON (k.tombstone_id, k.key, k.version_id) k.*
              FROM tombstone_keys AS k JOIN proven USING (tombstone_id)
             ORDER BY k.tombstone_id, k.key, k.version_id, k.number DESC
          ) AS newest GROUP BY tombstone_id
        )
        SELECT nullif(leaves, 'none') AS "left", why, count(*) AS number,
               coalesce(sum(bytes), 0)::bigint AS bytes
          FROM proven LEFT JOIN sizes USING (tombstone_id)
         GROUP BY 1, 2 ORDER BY bytes DESC, 1, 2 LIMIT 100
        """,
        {"project": project, "store": store, "start": window[0], "end": window[1]},
    )
    return [Freed(**row) for row in rows]


def existing_copies(tx: Transaction, project: str, store: str) -> Mapping[int, str]:
    """The state of every copy of a project that a store still has, by its id."""
    rows = tx.execute(
        "SELECT copy_id, state FROM copies"
        " WHERE project = %s AND store = %s AND state NOT IN ('deleted', 'lost')",
        (project, store),
    )
    return {row["copy_id"]: row["state"] for row in rows}


def newest_keys(tx: Transaction, project: str, store: str) -> Sequence[str]:
    """The keys of the manifest and of one object of the newest copy that a store has; none where
    there is no copy."""
    row = tx.execute(
        """
        SELECT c.prefix, (SELECT min(o.path) FROM copy_objects AS o WHERE o.copy_id = c.copy_id)
               AS path
          FROM copies AS c WHERE c.project = %s AND c.store = %s AND c.state = 'present'
         ORDER BY c.copy_id DESC LIMIT 1
        """,
        (project, store),
    ).fetchone()
    if row is None:
        return ()
    objects = () if row["path"] is None else (layout.object_key(row["prefix"], row["path"]),)
    return (layout.manifest_key(row["prefix"]), *objects)


def oldest_attempt(tx: Transaction, project: str, store: str) -> OldestAttempt | None:
    """Of the attempts that nobody continues."""
    row = tx.execute(
        """
        SELECT a.attempt_id, s.workload, s.stage, a.state, a.declared_bytes, a.lease_expires_at
          FROM attempts AS a JOIN stages AS s USING (stage_id)
         WHERE a.project = %s AND a.store = %s
           AND (a.state = 'aborting'
                OR (a.state = 'open' AND a.lease_expires_at <= catalog_clock()))
         ORDER BY a.lease_expires_at, a.attempt_id LIMIT 1
        """,
        (project, store),
    ).fetchone()
    return OldestAttempt(**row) if row else None


def oldest_upload(tx: Transaction, project: str, store: str) -> OldestUpload | None:
    """Of the inventory of incomplete uploads."""
    row = tx.execute(
        """
        SELECT key, owner, first_seen_at, part_bytes FROM incomplete_uploads
         WHERE project = %s AND store = %s AND state NOT IN ('gone', 'continued', 'lost')
         ORDER BY first_seen_at, entry_id LIMIT 1
        """,
        (project, store),
    ).fetchone()
    return OldestUpload(**row) if row else None


def trend(
    tx: Transaction, project: str, store: str, *, before: datetime, days: int
) -> Sequence[TrendPoint]:
    """The last report of each of the last so many days before the day of an instant (UTC), the
    oldest first."""
    rows = tx.execute(
        """
        SELECT at, (document #>> '{equation,backend_bytes}')::bigint AS backend_bytes,
               (document #>> '{store_equation,backend_bytes}')::bigint AS store_bytes,
               document #> '{equation,lines}' AS lines
          FROM (SELECT DISTINCT ON ((window_end AT TIME ZONE 'UTC')::date)
                       window_end AS at, document
                  FROM reports
                 WHERE project = %s AND store = %s
                   AND (window_end AT TIME ZONE 'UTC')::date < (%s AT TIME ZONE 'UTC')::date
                 ORDER BY (window_end AT TIME ZONE 'UTC')::date DESC, recorded_at DESC,
                          report_id DESC LIMIT %s) AS newest
         ORDER BY at
        """,
        (project, store, before, days),
    )
    return [TrendPoint(**_whole(row)) for row in rows]


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"lines": {line: int(size) for line, size in row["lines"].items()}}
