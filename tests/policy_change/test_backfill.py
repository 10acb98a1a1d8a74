"""A backfill under a candidate policy in a running Airflow, beside the live schedule, and what
becomes of its marks where somebody hands one to the sweep."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lastgood.stack import airflow as stack_airflow
from lastgood.stack.airflow_api import AirflowApi, DagRun
from lastgood.stack.demo.place import PROJECT, Place, reached
from tests.conftest import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE = timedelta(minutes=6)
HOUR = timedelta(hours=1)
HOURS = int(os.environ.get("LASTGOOD_BACKFILL_HOURS", "28"))  # over three days of the calendar


@pytest.fixture(scope="module")
def place(airflow_stack: RunningStack) -> Iterator[Place]:
    with reached(airflow_stack.layout, airflow_stack.addresses) as found:
        found.airflow.wait_until_parsed(["mark_retention", "sweep_quarantine"], PATIENCE)
        yield found


def _backfill(place: Place, first: datetime, last: datetime, *options: str) -> None:
    command = [sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", "mark_retention"]
    window = ["--from-date", first.isoformat(), "--to-date", last.isoformat()]
    done = subprocess.run(
        [*command, *window, "--dag-run-conf", '{"policy": "candidate@v1"}', *options],
        env={**os.environ, **stack_airflow.environment(place.layout, place.addresses)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _ended(airflow: AirflowApi, first: datetime, last: datetime) -> list[dict[str, Any]]:
    """The backfilled runs of these logical dates, once all of them have ended."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while True:
        runs = airflow.get(
            "/api/v2/dags/mark_retention/dagRuns",
            run_type="backfill",
            logical_date_gte=first.isoformat(),
            logical_date_lte=last.isoformat(),
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


def test_a_backfill_over_three_days_beside_the_live_schedule(place: Place) -> None:
    airflow = place.airflow
    file = place.folder / "candidate.yaml"
    file.write_text("name: candidate\nroles: {hot: {keep: newest, count: 1}}\n")
    assert place.lastgood("policy", "record", str(file), "-p", PROJECT)["policy"] == "candidate@v1"
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=3) + (2 * HOUR if HOURS > 30 else 22 * HOUR)
    last = first + (HOURS - 1) * HOUR

    _backfill(place, first, last, "--max-active-runs", "4")
    live = airflow.trigger("mark_retention")
    assert airflow.wait(live, PATIENCE) == "success", airflow.failures(live)
    runs = _ended(airflow, first, last)
    assert [run["state"] for run in runs] == ["success"] * HOURS
    made = _marks(place)
    assert {kind for kind, _, _ in made} == {"replay"}
    assert [at for _, at, _ in made] == [first + (number + 1) * HOUR for number in range(HOURS)]
    newest = place.operator("marks", project=PROJECT, limit=1)["marks"][0]
    returned = [
        airflow.returned(live, task) for task in airflow.tasks(live) if "mark" in task.task_id
    ]
    assert "live" in {one["kind"] for one in returned}
    assert newest["kind"] in ("live", "replay")

    _wait_for_room(airflow)
    again = last - HOUR
    _backfill(place, again, last, "--run-backwards", "--reprocess-behavior", "completed")
    runs = _ended(airflow, again, last)
    assert [run["state"] for run in runs] == ["success"] * 2
    assert _marks(place) == made

    # A replay handed to the sweep, through the API and by the event of an asset.
    mark_id = made[-1][2]
    body = {"logical_date": None, "conf": {"mark": mark_id}}
    asked = airflow.http.post("/api/v2/dags/sweep_quarantine/dagRuns", json=body)
    by_api = DagRun("sweep_quarantine", asked.raise_for_status().json()["dag_run_id"])
    _refused(airflow, by_api, mark_id)
    assets = airflow.get("/api/v2/assets", name_pattern="lastgood_room_wanted")["assets"]
    event = {"asset_id": assets[0]["id"], "extra": {"mark": mark_id}}
    airflow.http.post("/api/v2/assets/events", json=event).raise_for_status()
    _refused(airflow, _woken(airflow, mark_id), mark_id)


def _woken(airflow: AirflowApi, mark_id: int) -> DagRun:
    """The run that the event started; others come by the clock."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    path = "/api/v2/dags/sweep_quarantine/dagRuns"
    while time.monotonic() < deadline:
        for run in airflow.get(path, run_type="asset_triggered", order_by="-run_after")["dag_runs"]:
            found = DagRun("sweep_quarantine", run["dag_run_id"])
            events = airflow.get(f"{found.path}/upstreamAssetEvents")["asset_events"]
            if any(event["extra"].get("mark") == mark_id for event in events):
                return found
        time.sleep(0.5)
    raise AssertionError("no run came of the event")
