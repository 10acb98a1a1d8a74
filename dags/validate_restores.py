"""Prove that checkpoints can be restored, and write a receipt for each proof.

Runs when a checkpoint is committed, and every half hour for receipts that grow too old. It deletes
nothing. A checkpoint that fails is never offered for a restore again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable, dag, task

from lastgood.wakeup import OutboxTrigger

COMMITTED = Asset(
    "lastgood_committed_checkpoints",
    watchers=[AssetWatcher("lastgood_outbox_committed", OutboxTrigger(["committed"]))],
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

    validate.expand_kwargs(due())


validate_restores()
