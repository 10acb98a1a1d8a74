"""Decide for every checkpoint whether a rule of the policy keeps it, and record the decision.

Runs hourly, and when somebody asks. It deletes nothing: a mark names candidates, and the sweep
judges each of them again. A backfilled run decides as of the end of its interval, by the policy
that was in force then or by the one that its configuration names, as in
`--dag-run-conf '{"policy": "candidate@v7"}'`. Such a mark is a replay, and no sweep follows it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, dag, get_current_context, task


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def mark_retention() -> None:
    @task
    def projects() -> list[str]:
        from lastgood.flows import scheduled

        return scheduled.marked_projects(
            (get_current_context()["dag_run"].conf or {}).get("policy")
        )

    @task(retries=2, retry_delay=timedelta(seconds=15))
    def mark(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        run = get_current_context()["dag_run"]
        policy = (run.conf or {}).get("policy")
        if run.run_type == "backfill":
            at = run.data_interval_end or run.run_after
            return dict(scheduled.mark_again(project, at, policy))
        if run.run_type == "manual":
            return dict(scheduled.mark_asked(project, run.logical_date, policy))
        return dict(scheduled.mark_now(project))

    mark.expand(project=projects())


mark_retention()
