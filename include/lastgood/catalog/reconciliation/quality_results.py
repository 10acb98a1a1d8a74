"""What each quality check said of each report: kept for good, and read back as a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lastgood.catalog.db import Transaction


class Result(Protocol):
    """One check of one report, as it is recorded."""

    @property
    def suite(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def passed(self) -> bool: ...
    @property
    def observed(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PastResult:
    """What a check said at `recorded_at` (UTC)."""

    report_id: int
    passed: bool
    recorded_at: datetime


def add(
    tx: Transaction,
    report_id: int,
    *,
    project: str,
    store: str,
    results: Sequence[Result],
    at: datetime,
) -> None:
    """Append a report's results, in the order in which the checks were run."""
    for number, one in enumerate(results, 1):
        tx.execute(
            """
            INSERT INTO quality_results (report_id, number, project, store, suite, name, severity,
                                         owner, passed, observed, recorded_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
            """,
            (
                report_id,
                number,
                project,
                store,
                one.suite,
                one.name,
                one.severity,
                one.owner,
                one.passed,
                one.observed,
                at,
            ),
        )


def past(
    tx: Transaction, project: str, store: str, *, reports: int
) -> Mapping[str, Sequence[PastResult]]:
    """What each check said in the last so many reports of a project in a store, the oldest first,
    by the check's name."""
    rows = tx.execute(
        """
        SELECT name, report_id, passed, recorded_at FROM quality_results
         WHERE report_id IN (SELECT report_id FROM reports
                              WHERE project = %(project)s AND store = %(store)s
                              ORDER BY recorded_at DESC, report_id DESC LIMIT %(reports)s)
         ORDER BY recorded_at, report_id, number
        """,
        {"project": project, "store": store, "reports": reports},
    )
    found: dict[str, list[PastResult]] = defaultdict(list)
    for row in rows:
        name = row.pop("name")
        found[name].append(PastResult(**row))
    return found


def of_stores(tx: Transaction, suite: str) -> Mapping[str, bool]:
    """Whether every check of a suite passed in the newest report of each registered store that has
    it: of the latest window, since one of a past day may be made again."""
    rows = tx.execute(
        """
        SELECT q.store, bool_and(q.passed) AS passed
          FROM (SELECT DISTINCT ON (store) report_id FROM reports JOIN stores USING (store)
                 WHERE unregistered_at IS NULL
                 ORDER BY store, window_end DESC, recorded_at DESC, report_id DESC) AS newest
          JOIN quality_results AS q USING (report_id)
         WHERE q.suite = %s GROUP BY q.store ORDER BY q.store
        """,
        (suite,),
    )
    return {row["store"]: row["passed"] for row in rows}
