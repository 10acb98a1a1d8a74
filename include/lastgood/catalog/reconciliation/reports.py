"""Reconciliation reports, and the numbers of the catalog that go into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """One report without its document."""

    report_id: int
    project: str
    store: str
    window_start: datetime
    window_end: datetime
    passed: bool
    unexplained_bytes: int
    failed_checks: int
    first_failed: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Report:
    """One report whole. `document` is what the JSON file holds, and what the HTML shows."""

    report_id: int
    project: str
    store: str
    passed: bool
    document: Mapping[str, Any]
    recorded_at: datetime


_SUMMARY = """
    SELECT report_id, project, store, window_start, window_end, passed, recorded_at,
           coalesce((document #>> '{equation,lines,unexplained}')::bigint, 0) AS unexplained_bytes,
           (SELECT count(*) FROM jsonb_array_elements(document -> 'checks') AS c
             WHERE NOT (c ->> 'passed')::boolean AND c ->> 'suite' <> 'store') AS failed_checks,
           document #>> '{verdict,first_failed,name}' AS first_failed
      FROM reports
"""


def add(
    tx: Transaction,
    *,
    project: str,
    store: str,
    window: tuple[datetime, datetime],
    document: Mapping[str, Any],
    passed: bool,
    recorded_at: datetime,
) -> int:
    """Append a report; answers its id, which becomes part of its document when it is read."""
    row = tx.execute(
        """
        INSERT INTO reports (store, project, window_start, window_end, document, passed,
                             recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING report_id
        """,
        (store, project, *window, Jsonb(dict(document)), passed, recorded_at),
    ).fetchone()
    assert row is not None
    report_id: int = row["report_id"]
    return report_id


def get(tx: Transaction, report_id: int) -> Report:
    """One report with its document. Raises NotFound."""
    row = tx.execute(
        "SELECT report_id, project, store, passed, document, recorded_at"
        "  FROM reports WHERE report_id = %s",
        (report_id,),
    ).fetchone()
    if row is None:
        raise NotFound(what="report", name=str(report_id))
    row["document"] = {"report": report_id, **row["document"]}
    return Report(**row)


def before(tx: Transaction, report: Report) -> int | None:
    """The id of the report before one, of the same project and store; None for the first."""
    row = tx.execute(
        """
        SELECT report_id FROM reports
         WHERE project = %s AND store = %s AND report_id < %s ORDER BY report_id DESC LIMIT 1
        """,
        (report.project, report.store, report.report_id),
    ).fetchone()
    return None if row is None else int(row["report_id"])


def summaries(
    tx: Transaction,
    *,
    project: str | None = None,
    store: str | None = None,
    limit: int = 100,
    skip: int = 0,
) -> Sequence[ReportSummary]:
    """The newest reports first, of one project or store where given, after the `skip` newest."""
    rows = tx.execute(
        _SUMMARY
        + """
         WHERE (%(project)s::text IS NULL OR project = %(project)s)
           AND (%(store)s::text IS NULL OR store = %(store)s)
         ORDER BY recorded_at DESC, report_id DESC LIMIT %(limit)s OFFSET %(skip)s
        """,
        {"project": project, "store": store, "limit": limit, "skip": skip},
    )
    return [ReportSummary(**row) for row in rows]


def newest(tx: Transaction, project: str, store: str) -> ReportSummary | None:
    """The report of the latest window, since one of a past day may be made again; None before the
    first."""
    row = tx.execute(
        _SUMMARY
        + """
         WHERE report_id = (SELECT report_id FROM reports WHERE project = %s AND store = %s
                             ORDER BY window_end DESC, recorded_at DESC, report_id DESC LIMIT 1)
        """,
        (project, store),
    ).fetchone()
    return ReportSummary(**row) if row else None


STATES = ("committed", "validating", "failed", "quarantined", "incomplete")
"""What is counted, in the order in which it is shown."""


def counts(tx: Transaction, project: str, store: str) -> Mapping[str, tuple[int, int]]:
    """(number, bytes as the catalog has them) of each of STATES, for a project in a store.

    Committed and quarantined (deleting ones included) are checkpoints by their copy in this store;
    the others are attempts, with the bytes that they declared.
    """
    rows = tx.execute(
        """
        SELECT state, count(*) AS number, coalesce(sum(bytes), 0)::bigint AS bytes FROM (
          SELECT CASE WHEN c.state = 'present' THEN 'committed' ELSE 'quarantined' END AS state,
                 k.total_bytes + c.control_bytes AS bytes
            FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id)
           WHERE c.project = %(project)s AND c.store = %(store)s
             AND c.state NOT IN ('deleted', 'lost')
          UNION ALL
          SELECT CASE a.state WHEN 'sealed' THEN 'validating' WHEN 'failed' THEN 'failed'
                 ELSE 'incomplete' END, a.declared_bytes
            FROM attempts AS a
           WHERE a.project = %(project)s AND a.store = %(store)s
             AND (a.state IN ('sealed', 'failed', 'aborting')
                  OR (a.state = 'open' AND a.lease_expires_at <= catalog_clock()))
        ) AS counted GROUP BY state
        """,
        {"project": project, "store": store},
    ).fetchall()
    known = {row["state"]: (row["number"], row["bytes"]) for row in rows}
    return {state: known.get(state, (0, 0)) for state in STATES}


def activity(tx: Transaction, project: str, window: tuple[datetime, datetime]) -> Mapping[str, int]:
    """How many events of each kind the project recorded in [start, end)."""
    rows = tx.execute(
        "SELECT kind, count(*) AS number FROM events"
        " WHERE project = %s AND recorded_at >= %s AND recorded_at < %s"
        " GROUP BY kind ORDER BY kind",
        (project, *window),
    )
    return {row["kind"]: row["number"] for row in rows}


def lost(
    tx: Transaction, project: str, window: tuple[datetime, datetime]
) -> Mapping[str, tuple[int, int]]:
    """(copies, bytes) that the project lost in [start, end) with each store that was given up."""
    rows = tx.execute(
        "SELECT facts->>'store' AS store, count(*) AS copies,"
        "       coalesce(sum((facts->>'bytes')::bigint), 0)::bigint AS bytes"
        "  FROM events WHERE project = %s AND kind = 'lost' AND recorded_at >= %s"
        "   AND recorded_at < %s GROUP BY 1 ORDER BY 1",
        (project, *window),
    )
    return {row["store"]: (row["copies"], row["bytes"]) for row in rows}


def newest_backend_at(tx: Transaction, store: str) -> datetime | None:
    """Of when (UTC) the newest accounting of a store is that any of its projects had; None before
    the first. The caller holds the lock of the store's counters."""
    row = tx.execute(
        "SELECT max(backend_at) AS at FROM capacity_counters WHERE store = %s", (store,)
    ).fetchone()
    return None if row is None else row["at"]


def note_backend(
    tx: Transaction,
    project: str,
    store: str,
    *,
    backend_bytes: int,
    backend_total: int | None,
    known_bytes: int,
    at: datetime,
) -> bool:
    """Keep what the backend accounted for at `at` (UTC), for admission, and how much of it the
    catalog knew as its own. The caller holds the lock of the project's counters."""
    tx.execute(
        """
        INSERT INTO capacity_counters (project, store, backend_bytes, backend_total,
                                       backend_known_bytes, backend_at)
        VALUES (%(project)s, %(store)s, %(bytes)s, %(total)s, %(known)s, %(at)s)
        ON CONFLICT (project, store) DO UPDATE
           SET backend_bytes = excluded.backend_bytes, backend_total = excluded.backend_total,
               backend_known_bytes = excluded.backend_known_bytes,
               backend_at = excluded.backend_at
         WHERE capacity_counters.backend_at IS NULL
            OR capacity_counters.backend_at <= excluded.backend_at
        """,
        {
            "project": project,
            "store": store,
            "bytes": backend_bytes,
            "total": backend_total,
            "known": known_bytes,
            "at": at,
        },
    )
    return tx.rowcount == 1
