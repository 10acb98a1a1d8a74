"""Account for every byte of every store, and report what nobody can explain.

Runs daily for the day that has passed. Every store is listed, in shards of its key space, into an
inventory that is kept; a shard that fails makes its inventory unusable, and what hangs on it fails.
Quality checks that fail make the run fail, after the report is written: each project's for its own
damage, and a store's totals once. Whoever has an overdue
finding is told, and the day's deletions are digested. It deletes nothing but old inventories. A
backfilled run makes the reports of its day again from the inventories that are kept of it, or says
that none is; it lists, digests, deletes and aborts nothing, and tells nobody.
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

    @task
    def digest(project: str) -> dict[str, Any]:
        from lastgood.flows import scheduled

        if get_current_context()["dag_run"].run_type == "backfill":
            return {}
        return dict(scheduled.digest_days(project))

    @task
    def begin() -> list[dict[str, Any]]:
        from lastgood.flows import scheduled_inventories

        is_backfill = get_current_context()["dag_run"].run_type == "backfill"
        return [] if is_backfill else scheduled_inventories.begin_all()

    @task
    def shards(begun: list[dict[str, Any]]) -> list[dict[str, Any]]:
        from lastgood.flows import scheduled_inventories

        return scheduled_inventories.shards_of(begun)

    @task(pool="lastgood_reading", retries=2, retry_delay=timedelta(seconds=15))
    def list_shard(begun: dict[str, Any], shard: list[Any]) -> dict[str, Any]:
        from lastgood.flows import scheduled_inventories

        return scheduled_inventories.list_one(begun, shard)

    @task(pool="lastgood_reading", trigger_rule="all_done")
    def complete(begun: dict[str, Any], listed: list[dict[str, Any]]) -> dict[str, Any]:
        from lastgood.flows import scheduled_inventories

        return scheduled_inventories.complete_one(begun, listed or ())

    @task(pool="lastgood_reading", trigger_rule="all_done")
    def reconcile(project: str, completed: list[dict[str, Any]]) -> dict[str, Any]:
        from lastgood.flows import scheduled_inventories

        run = get_current_context()["dag_run"]
        start, end = run.data_interval_start, run.data_interval_end
        if start is None or end is None or start == end:  # a run that a person started
            start, end = run.run_after - timedelta(days=1), run.run_after
        if run.run_type == "backfill":
            return scheduled_inventories.report_again(project, start, end)
        return scheduled_inventories.report_project(project, start, end, completed or ())

    @task
    def check(report: dict[str, Any]) -> None:
        from lastgood.flows import scheduled_inventories

        scheduled_inventories.fail_if_checks_failed(report)

    @task(trigger_rule="all_done")
    def check_stores(reports: list[dict[str, Any]]) -> None:
        from lastgood.flows import scheduled_inventories

        scheduled_inventories.fail_if_store_checks_failed(reports or ())

    # A call, not a callback: what a callback raises is only logged, and nobody would be told.
    @task(trigger_rule="all_done", retries=2, retry_delay=timedelta(seconds=30))
    def tell_owners() -> None:
        from lastgood.notifiers import OverdueFindings

        context = get_current_context()
        if context["dag_run"].run_type != "backfill":
            OverdueFindings()(context)

    names = projects()
    digest.expand(project=names)  # on its own: a store that is not listed hides no deletion
    begun = begin()
    listed = list_shard.expand_kwargs(shards(begun))
    completed = complete.partial(listed=listed).expand(begun=begun)
    written = reconcile.partial(completed=completed).expand(project=names)
    check.expand(report=written)
    check_stores(written)
    # beside the checks, not behind them: the last tasks decide whether the run failed
    written >> tell_owners()


reconcile_inventory()
