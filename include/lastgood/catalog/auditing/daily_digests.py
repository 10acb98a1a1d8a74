"""One digest for each day in UTC over the chains of a project's deletions, each naming the one of
the day before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class DailyDigest:
    """A recorded day; `digest` is the SHA-256 of its canonical body."""

    project: str
    day: date
    number: int
    previous: str | None
    digest: str
    body: Mapping[str, Any]
    recorded_at: datetime


_SELECT = "SELECT project, day, number, previous, digest, body, recorded_at FROM daily_digests"


def newest(tx: Transaction, project: str) -> DailyDigest | None:
    """The last day that was digested."""
    row = tx.execute(
        _SELECT + " WHERE project = %s ORDER BY number DESC LIMIT 1", (project,)
    ).fetchone()
    return DailyDigest(**row) if row else None


def of_project(
    tx: Transaction, project: str, *, after: int = 0, limit: int | None = None
) -> list[DailyDigest]:
    """A project's chain behind a number, the oldest first; with a limit the newest of them."""
    rows = tx.execute(
        f"""
        SELECT * FROM ({_SELECT} WHERE project = %s AND number > %s
                       ORDER BY number DESC LIMIT %s) AS newest
         ORDER BY number
        """,
        (project, after, limit),
    )
    return [DailyDigest(**row) for row in rows]


def first_day(tx: Transaction, project: str) -> date | None:
    """The day in UTC of a project's first deletion; None while there is none."""
    row = tx.execute(
        """
        SELECT (min(recorded_at) AT TIME ZONE 'UTC')::date AS day FROM tombstones
         WHERE project = %s
        """,
        (project,),
    ).fetchone()
    return row["day"] if row else None


def heads(tx: Transaction, project: str, day: date) -> dict[str, dict[str, Any]]:
    """The last intent and the last certificate of a day in UTC, number and digest, by the stage's
    name; of every stage that has one. The project is locked, so that nothing of the day follows."""
    rows = tx.execute(
        """
        WITH of_day AS (
          SELECT 'tombstones' AS chained, stage_id, number, digest, recorded_at FROM tombstones
           WHERE project = %(project)s
             AND recorded_at >= (%(day)s::date)::timestamp AT TIME ZONE 'UTC'
             AND recorded_at < (%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'
          UNION ALL
          SELECT 'certificates', stage_id, number, certificate, recorded_at FROM certificates
           WHERE project = %(project)s
             AND recorded_at >= (%(day)s::date)::timestamp AT TIME ZONE 'UTC'
             AND recorded_at < (%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'
        )
        SELECT DISTINCT ON (chained, stage_id) chained, number, digest,
               s.project || '/' || s.workload || '/' || s.stage AS stage
          FROM of_day JOIN stages s USING (stage_id)
         ORDER BY chained, stage_id, number DESC
        """,
        {"project": project, "day": day},
    )
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["stage"], {})[row["chained"]] = [row["number"], row["digest"]]
    return found


def append(tx: Transaction, digest: DailyDigest) -> None:
    """Record a day, once: a second one of the same day or number is refused by the database."""
    tx.execute(
        """
        INSERT INTO daily_digests (project, day, number, previous, digest, body, recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s)
        """,
        (
            digest.project,
            digest.day,
            digest.number,
            digest.previous,
            digest.digest,
            Jsonb(dict(digest.body)),
            digest.recorded_at,
        ),
    )
