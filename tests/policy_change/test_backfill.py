"""Backfills in a running Airflow, beside the live schedule: marks under a candidate policy, what
becomes of them where somebody hands one to the sweep, and reports of days that have passed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lastgood.stack import airflow as stack_airflow
from lastgood.stack.airflow_api import AirflowApi, DagRun
from lastgood.stack.demo.place import PROJECT, Place, reached
from tests.conftest import RunningStack

pytestmark = pytest.mark.slow
PATIENCE = timedelta(minutes=15)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURS = int(os.environ.get("LASTGOOD_BACKFILL_HOURS", "26"))  # over three days of the calendar


@pytest.fixture(scope="module")
def place(airflow_stack: RunningStack) -> Iterator[Place]:
    with reached(airflow_stack.layout, airflow_stack.addresses) as found:
        found.airflow.wait_until_parsed(["mark_retention", "sweep_quarantine"], PATIENCE)
        yield found


@dataclass(frozen=True)
class Backfilled:
    """What the command made: marks of `candidate@v1` for the runs of these logical dates, the live
    run that was asked for meanwhile, and how all of them ended."""

    first: datetime
    last: datetime
    live: DagRun
    live_ended: str
    states: list[str]
    made: list[tuple[str, datetime, int]]


@pytest.fixture(scope="module")
def backfilled(place: Place) -> Backfilled:
    """A backfill of three days by the command line of Airflow."""
    file = place.folder / "candidate.yaml"
    file.write_text("name: candidate\nroles: {hot: {keep: newest, count: 1}}\n")
    assert place.lastgood("policy", "record", str(file), "-p", PROJECT)["policy"] == "candidate@v1"
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - 3 * DAY + (2 * HOUR if HOURS > 30 else 23 * HOUR)
    last = first + (HOURS - 1) * HOUR
    command = [sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", "mark_retention"]
    window = ["--from-date", first.isoformat(), "--to-date", last.isoformat()]
    conf = ["--dag-run-conf", '{"policy": "candidate@v1"}', "--max-active-runs", "4"]
    done = subprocess.run(
        [*command, *window, *conf],
        env={**os.environ, **stack_airflow.environment(place.layout, place.addresses)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    live = place.airflow.trigger("mark_retention")
    ended = place.airflow.wait(live, PATIENCE)
    runs = _ended(place.airflow, "mark_retention", first, last)
    states = [run["state"] for run in runs]
    return Backfilled(first, last, live, ended, states, _marks(place))


def _again(airflow: AirflowApi, dag_id: str, first: datetime, last: datetime) -> None:
    """The same through the API, from the last date on, also of runs that have ended."""
    body = {
        "dag_id": dag_id,
        "from_date": first.isoformat(),
        "to_date": last.isoformat(),
        "run_backwards": True,
        "reprocess_behavior": "completed",
        "dag_run_conf": {"policy": "candidate@v1"} if dag_id == "mark_retention" else {},
    }
    airflow.http.post("/api/v2/backfills", json=body).raise_for_status()


def _ended(
    airflow: AirflowApi, dag_id: str, first: datetime, last: datetime
) -> list[dict[str, Any]]:
    """The backfilled runs of these logical dates, once all of them have ended."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while True:
        runs = airflow.get(
            f"/api/v2/dags/{dag_id}/dagRuns",
            run_type="backfill",
            logical_date_gte=first.isoformat(),
            logical_date_lte=last.isoformat(),
            order_by="logical_date",
            limit=100,
        )["dag_runs"]
        if runs and all(run["state"] in ("success", "failed") for run in runs):
            return list(runs)
        assert time.monotonic() < deadline, [run["state"] for run in runs]
        time.sleep(0.5)


def _wait_for_room(airflow: AirflowApi) -> None:
    """Airflow runs one backfill of a DAG at a time, and closes one a while after its last run."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    path = "/api/v2/backfills"
    while not all(
        one["completed_at"] for one in airflow.get(path, dag_id="mark_retention")["backfills"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _marks(place: Place) -> list[tuple[str, datetime, int]]:
    with place.services.catalog.transaction() as tx:
        rows = tx.execute(
            "SELECT kind, at, mark_id FROM marks WHERE project = %s AND policy = 'candidate'"
            " AND policy_version = 1 ORDER BY at",
            (PROJECT,),
        ).fetchall()
    return [(row["kind"], row["at"], row["mark_id"]) for row in rows]


def _refused(airflow: AirflowApi, run: DagRun, mark_id: int) -> None:
    assert airflow.wait(run, PATIENCE) == "failed"
    (task,) = [task for task in airflow.tasks(run) if task.task_id == "sweep"]
    said = airflow.log(run, task)
    assert f"Mark {mark_id} cannot be swept: it is a replay one" in said


def test_a_backfill_over_three_days_beside_the_live_schedule(
    place: Place, backfilled: Backfilled
) -> None:
    airflow, live = place.airflow, backfilled.live
    assert backfilled.live_ended == "success", airflow.failures(live)
    assert backfilled.states == ["success"] * HOURS
    assert {kind for kind, _, _ in backfilled.made} == {"replay"}
    ends = [backfilled.first + (number + 1) * HOUR for number in range(HOURS)]
    assert [at for _, at, _ in backfilled.made] == ends
    returned = [
        airflow.returned(live, task) for task in airflow.tasks(live) if "mark" in task.task_id
    ]
    assert "live" in {one["kind"] for one in returned}


def test_a_replay_handed_to_the_sweep_by_the_api_or_an_event_is_refused_by_name(
    place: Place, backfilled: Backfilled
) -> None:
    airflow, mark_id = place.airflow, backfilled.made[-1][2]
    body = {"logical_date": None, "conf": {"mark": mark_id}}
    asked = airflow.http.post("/api/v2/dags/sweep_quarantine/dagRuns", json=body)
    by_api = DagRun("sweep_quarantine", asked.raise_for_status().json()["dag_run_id"])
    _refused(airflow, by_api, mark_id)
    _refused(airflow, _woken(airflow, mark_id), mark_id)


def test_a_backfilled_day_is_reported_again_from_its_inventory_or_says_that_none_is_kept(
    place: Place,
) -> None:
    airflow = place.airflow
    taken = place.lastgood("inventory", "take", place.store)["inventory"]
    kept = {name: one for name, one in _inventories(place).items() if one["state"] == "completed"}
    clock = datetime.fromisoformat(kept[taken]["started_at"]) - 2 * HOUR
    day = clock.replace(hour=2, minute=0, second=0, microsecond=0) - DAY  # ended at 2 o'clock
    for run in airflow.get("/api/v2/dags/reconcile_inventory/dagRuns")["dag_runs"]:
        airflow.wait(DagRun("reconcile_inventory", run["dag_run_id"]), PATIENCE)

    _again(airflow, "reconcile_inventory", day - 2 * DAY, day)
    runs = _ended(airflow, "reconcile_inventory", day - 2 * DAY, day)
    # Of the day between there is one if this stack was up before 2 o'clock.
    absent, _, present = (DagRun("reconcile_inventory", run["dag_run_id"]) for run in runs)
    said = _returned(airflow, absent, "reconcile")["skipped"]
    assert f"no inventory of store {place.store}" in said.lower()
    told = _returned(airflow, present, "reconcile")
    assert (told["absent"], len(told["reports"])) == ([], 1)
    assert _returned(airflow, present, "begin") == []  # nothing was listed, and nothing dropped
    assert kept.items() <= _inventories(place).items()


def _inventories(place: Place) -> dict[str, dict[str, Any]]:
    return {one["inventory"]: one for one in place.operator("inventories")["inventories"]}


def _returned(airflow: AirflowApi, run: DagRun, task_id: str) -> Any:
    """What a task answered; of a mapped one, what it answered for the project."""
    told = [airflow.returned(run, one) for one in airflow.tasks(run) if one.task_id == task_id]
    return next(one for one in told if one == [] or one["project"] == PROJECT)


def test_marks_that_are_made_again_from_the_last_one_on_are_the_same(
    place: Place, backfilled: Backfilled
) -> None:
    airflow, last = place.airflow, backfilled.last
    _wait_for_room(airflow)
    _again(airflow, "mark_retention", last - HOUR, last)
    runs = _ended(airflow, "mark_retention", last - HOUR, last)
    assert [run["state"] for run in runs] == ["success"] * 2
    assert _marks(place) == backfilled.made


def _woken(airflow: AirflowApi, mark_id: int) -> DagRun:
    """The run that an event with the mark started; others come by the clock. One that comes while
    another waits for its run is left to the next, so it is sent until there is a run of it."""
    assets = airflow.get("/api/v2/assets", name_pattern="lastgood_room_wanted")["assets"]
    event = {"asset_id": assets[0]["id"], "extra": {"mark": mark_id}}
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        airflow.http.post("/api/v2/assets/events", json=event).raise_for_status()
        next_event = time.monotonic() + 60
        while time.monotonic() < next_event:
            for run in _run_by_events(airflow):
                events = airflow.get(f"{run.path}/upstreamAssetEvents")["asset_events"]
                if any(event["extra"].get("mark") == mark_id for event in events):
                    return run
            time.sleep(0.5)
    raise AssertionError("no run came of the event")


def _run_by_events(airflow: AirflowApi) -> list[DagRun]:
    path = "/api/v2/dags/sweep_quarantine/dagRuns"
    runs = airflow.get(path, run_type="asset_triggered", order_by="-run_after")["dag_runs"]
    return [DagRun("sweep_quarantine", run["dag_run_id"]) for run in runs]
