"""Read and verify the checkpoints whose commit was too large to verify while the client waited.

Runs when an attempt is sealed, and every five minutes in case that alarm was lost. It deletes
nothing: an attempt whose bytes are wrong fails, and they stay as evidence.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable, dag, task

from lastgood.wakeup import OutboxTrigger

SEALED = Asset(
    "lastgood_sealed_attempts",
    watchers=[AssetWatcher("lastgood_outbox_sealed", OutboxTrigger(["sealed"]))],
)


@dag(
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[SEALED]
    ),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def verify_commits() -> None:
    @task
    def pending() -> list[str]:
        from lastgood.flows import scheduled

        return scheduled.pending_commits()

    @task(pool="lastgood_reading", retries=2, retry_delay=timedelta(seconds=15))
    def finish(attempt: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        return dict(scheduled.finish_commit(attempt))

    finish.expand(attempt=pending())


verify_commits()
