"""Prove that checkpoints can be restored, and write a receipt for each proof.

Runs when a checkpoint is committed, when an operator asks for a validation or a report misses an
object of a copy, when a project comes to stand above soft in a store and collection may wait for a
receipt, and every half hour for receipts that grow too old. Every byte is read again, every tensor
is loaded in an isolated process, and what the policy wants restored takes one training step by its
contract: on this machine, or in a pod where the contract says so and the Kubernetes provider is
installed. It deletes nothing. A checkpoint that fails is never offered for a restore again.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable, dag, task

from lastgood.pods import RestoreInPod
from lastgood.wakeup import OutboxTrigger

PODS = find_spec("airflow.providers.cncf") is not None
COMMITTED = Asset(
    "lastgood_committed_checkpoints",
    watchers=[
        AssetWatcher(
            "lastgood_outbox_committed",
            OutboxTrigger(["committed", "validation-requested", "receipts-wanted"]),
        )
    ],
)


@dag(
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("*/30 * * * *", timezone="UTC"), assets=[COMMITTED]
    ),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def validate_restores() -> None:
    @task
    def due() -> list[dict[str, Any]]:
        from lastgood.flows import scheduled

        return scheduled.due_validations()

    @task(pool="lastgood_reading", retries=2, retry_delay=timedelta(seconds=15))
    def validate(project: str, copy_ids: list[int]) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.validate_shard(project, copy_ids))

    @task(trigger_rule="all_done")
    def due_restores() -> list[dict[str, Any]]:
        from lastgood.flows import scheduled

        return scheduled.due_restores()

    @task(pool="lastgood_restoring", retries=1, retry_delay=timedelta(seconds=15))
    def restore(project: str, copy_id: int) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.restore_copy(project, copy_id))

    @task(trigger_rule="all_done")
    def due_pods() -> list[dict[str, Any]]:
        from lastgood.flows import scheduled

        return scheduled.due_pods()

    validated = validate.expand_kwargs(due())
    restores = due_restores()
    validated >> restores
    restore.expand_kwargs(restores)
    if PODS:
        pods = due_pods()
        validated >> pods
        RestoreInPod.partial(task_id="restore_in_pod", pool="lastgood_restoring").expand_kwargs(
            pods
        )


validate_restores()
