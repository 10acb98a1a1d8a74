"""Show that the last good checkpoints can be restored in time, and that a checkpoint's whole life
goes as it must: save, validation, hold, interruption, quarantine, undo, deletion, certificate.

Runs weekly, and restores each stage at least once in four weeks, as a recovery would, without
fencing anybody. It can delete only what it wrote itself, in a scratch project of the store, through
the same gate as ever. The run fails if a restore or an expectation did; the record is written
before.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import CronTriggerTimetable, dag, get_current_context, task


@dag(
    schedule=CronTriggerTimetable("0 5 * * 1", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
    params={"sample": None},
)
def drill() -> None:
    @task
    def projects() -> list[str]:
        from lastgood.flows import scheduled

        backfilled = get_current_context()["dag_run"].run_type == "backfill"
        return [] if backfilled else scheduled.project_names()

    @task(pool="lastgood_restoring", retries=1, retry_delay=timedelta(minutes=1))
    def restore_and_live(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        sample = get_current_context()["params"]["sample"]
        return dict(scheduled.drill_project(project, sample))

    @task
    def check(told: dict[str, Any]) -> None:
        from lastgood.flows import scheduled

        scheduled.fail_if_drill_failed(told)

    check.expand(told=restore_and_live.expand(project=projects()))


drill()
