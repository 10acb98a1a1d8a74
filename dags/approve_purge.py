"""Ask an operator about a sweep that would take more than the policy lets it take alone.

Runs each hour, after the mark. For each project whose plan waits for approval it shows the plan and
waits for the answer in Airflow's required actions; without one within 50 minutes the answer is no,
and the next mark asks again. It decides nothing else: what is approved is swept by the last task as
`sweep_quarantine` would, copy by copy through the gate, and may delete committed checkpoints. The
sweep itself never waits for an answer. A backfilled run does nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import CronTriggerTimetable, Param, dag, get_current_context, task, task_group
from airflow.sdk.exceptions import AirflowSkipException

APPROVE, REJECT = "Approve", "Reject"
SHOWN = "{{ ti.xcom_pull(task_ids='waiting')[ti.map_index]['%s'] }}"


@dag(
    schedule=CronTriggerTimetable("5 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def approve_purge() -> None:
    @task
    def waiting() -> list[dict[str, Any]]:
        from lastgood.flows import scheduled

        backfilled = get_current_context()["dag_run"].run_type == "backfill"
        return [] if backfilled else scheduled.plans_to_approve()

    @task
    def approve(plan: dict[str, Any], answer: dict[str, Any]) -> str:
        from lastgood.flows import scheduled

        if answer["chosen_options"] != [APPROVE]:
            raise AirflowSkipException("nobody approved it")
        user = answer["responded_by_user"]
        because = answer["params_input"].get("because") or "approved in Airflow"
        scheduled.approve_plan(plan["project"], plan["request"], by=user["name"], because=because)
        return str(plan["project"])

    @task(pool="lastgood_deleting", retries=2, retry_delay=timedelta(seconds=15))
    def sweep(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.sweep_project(project))

    @task_group
    def purge(plan: dict[str, Any]) -> None:
        decide = HITLOperator(
            task_id="decide",
            subject=SHOWN % "subject",
            body=SHOWN % "body",
            options=[APPROVE, REJECT],
            defaults=REJECT,
            params={"because": Param("", type="string", title="Why; it is recorded.")},
            response_timeout=timedelta(minutes=50),
        )
        sweep(approve(plan, decide.output))

    purge.expand(plan=waiting())


approve_purge()
