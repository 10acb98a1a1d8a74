"""Quarantine what the current mark gives up, and delete what has been in quarantine long enough.

Runs every quarter of an hour, and at once when a project comes to stand above soft in a store. It
trusts no event: whatever woke it, it looks again, and a project that stands above soft is marked
anew first. It deletes committed checkpoints, and only those that the gate lets go, judged twice:
before quarantine and again before deletion. Each deletion leaves a tombstone. A backfilled run does
nothing. A run that is handed a mark, by its configuration (`{"mark": 12}`) or by an event that woke
it, fails unless that is the newest live one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import (
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    dag,
    get_current_context,
    task,
)
from airflow.sdk.exceptions import AirflowFailException

from lastgood.wakeup import OutboxTrigger

ROOM_WANTED = Asset(
    "lastgood_room_wanted",
    watchers=[AssetWatcher("lastgood_outbox_room_wanted", OutboxTrigger(["room-wanted"]))],
)


def handed() -> list[Any]:
    """What this run was handed as marks."""
    context = get_current_context()
    given = [context["dag_run"].conf or {}]
    for events in context["triggering_asset_events"].values():
        given += [event.extra or {} for event in events]
    return [one["mark"] for one in given if "mark" in one]


@dag(
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("*/15 * * * *", timezone="UTC"), assets=[ROOM_WANTED]
    ),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["lastgood"],
)
def sweep_quarantine() -> None:
    @task
    def projects() -> list[str]:
        from lastgood.flows import scheduled

        backfilled = get_current_context()["dag_run"].run_type == "backfill"
        return [] if backfilled else scheduled.swept_projects(handed())

    @task(pool="lastgood_deleting", retries=2, retry_delay=timedelta(seconds=15))
    def sweep(project: str) -> dict[str, Any]:
        from lastgood.errors import MarkNotSweepable
        from lastgood.flows import scheduled

        marks = handed()
        try:
            return dict(scheduled.sweep_project(project, marks))
        except MarkNotSweepable as error:
            if not marks:
                raise
            raise AirflowFailException(str(error)) from error  # it never becomes the newest again

    sweep.expand(project=projects())


sweep_quarantine()
