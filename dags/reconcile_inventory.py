"""Account for every byte of every store, and report what nobody can explain.

Runs daily for the day that has passed, and digests that day's deletions. It deletes nothing.
Quality checks that fail make the run fail, after the report is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, dag, get_current_context, task


@dag(
    schedule=CronDataIntervalTimetable("0 2 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def reconcile_inventory() -> None:
    @task
    def projects() -> list[str]:
        from lastgood.flows import scheduled

        return scheduled.every_project_name()

    @task(pool="lastgood_reading", retries=2, retry_delay=timedelta(seconds=15))
    def reconcile(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        run = get_current_context()["dag_run"]
        start, end = run.data_interval_start, run.data_interval_end
        if start is None or end is None or start == end:  # a run that a person started
            start, end = run.run_after - timedelta(days=1), run.run_after
        return dict(scheduled.reconcile_project(project, start, end))

    @task
    def check(report: dict[str, Any]) -> None:
        from lastgood.flows import scheduled

        scheduled.fail_if_checks_failed(report)

    @task(retries=2, retry_delay=timedelta(seconds=15))
    def digest(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.digest_days(project))

    names = projects()
    digest.expand(project=names)
    check.expand(report=reconcile.expand(project=names))


reconcile_inventory()
