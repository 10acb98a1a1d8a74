"""Abort uploads that their writers have left, and reclaim their bytes.

Runs every half hour. It takes the inventory of incomplete uploads, and deletes parts and objects of
attempts that never committed: when no lease is live, they are older than the policy's threshold,
their last grant has ended, and no committed checkpoint reaches them. Uploads that belong to nobody
become findings first. It warns of a bucket whose own rule against abandoned uploads is absent or
too short. A backfilled run does nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import CronTriggerTimetable, dag, get_current_context, task


@dag(
    schedule=CronTriggerTimetable("*/30 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def clean_incomplete_uploads() -> None:
    @task
    def projects() -> list[str]:
        from lastgood.flows import scheduled

        backfilled = get_current_context()["dag_run"].run_type == "backfill"
        return [] if backfilled else scheduled.project_names()

    @task(pool="lastgood_deleting", retries=2, retry_delay=timedelta(seconds=15))
    def clean(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.clean_uploads(project))

    clean.expand(project=projects())


clean_incomplete_uploads()
