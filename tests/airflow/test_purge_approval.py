"""A purge that waits for a human, in a running Airflow: shown, answered through the API, swept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.catalog import locks
from lastgood.catalog.jobs import copies
from lastgood.catalog.settings import policy_versions
from lastgood.rules.policy import Policy
from lastgood.runner import Workload
from lastgood.stack.airflow_api import AirflowApi, DagRun
from lastgood.stack.demo.place import PROJECT, Place, project_key, reached, wait_until
from tests.conftest import RunningStack

pytestmark = pytest.mark.slow
CONFIG = Path(__file__).parents[2] / "include" / "config"
PATIENCE = timedelta(minutes=10)
SAVED = 4  # of which the demo's policy keeps 2


@pytest.fixture
def place(airflow_stack: RunningStack) -> Iterator[Place]:
    with reached(airflow_stack.layout, airflow_stack.addresses) as found:
        found.airflow.wait_until_parsed(["approve_purge", "sweep_quarantine"], PATIENCE)
        _ask_before_a_single_byte(found)
        try:
            yield found
        finally:
            found.lastgood("apply", str(CONFIG))


def _ask_before_a_single_byte(place: Place) -> None:
    with place.services.catalog.transaction() as tx:
        locks.project_exclusive(tx, PROJECT)
        document = dict(policy_versions.current(tx, PROJECT).document)
        document["quarantine"] = {**document["quarantine"], "approve_above": "1B"}
        policy = Policy.parse(document, where="test")
        policy_versions.promote(
            tx, PROJECT, policy.name, policy.digest, policy.to_json(), recorded_by="test"
        )


def _save(place: Place) -> None:
    file = place.folder / "weights.bin"
    file.write_bytes(bytes(1000))
    with (
        project_key(place) as key,
        Workload(place.url, key, workload="purge", stage="pretrain") as workload,
        workload.acquire() as run,
    ):
        for step in range(1, SAVED + 1):
            last = run.save({"weights.bin": file}, step=step)
    place.lastgood("verify", str(last.id))
    place.lastgood("mark", PROJECT)


def _states(place: Place, run: DagRun) -> dict[str, str | None]:
    return {task.task_id: task.state for task in place.airflow.tasks(run)}


def _asking(place: Place) -> DagRun | None:
    """The run that waits for an answer: one is asked at a time, by the hour or by hand, and what is
    started meanwhile comes after the answer."""
    path = "/api/v2/dags/approve_purge/dagRuns"
    for one in place.airflow.get(path, state="running")["dag_runs"]:
        run = DagRun("approve_purge", one["dag_run_id"])
        if _states(place, run).get("purge.decide") == "awaiting_input":
            return run
    return None


def _details(run: DagRun) -> str:
    return f"{run.path}/taskInstances/purge.decide/0/hitlDetails"


def _heartbeat(airflow: AirflowApi) -> str:
    beat: str = airflow.get("/api/v2/monitor/health")["scheduler"]["latest_scheduler_heartbeat"]
    return beat


def _wait_for_the_scheduler(airflow: AirflowApi) -> None:
    """Two heartbeats: between them the scheduler has looked at every process that ended before. An
    answer that comes earlier makes it take the resumed task for a killed one."""
    for _ in range(2):
        before = _heartbeat(airflow)
        wait_until(
            "a heartbeat of the scheduler",
            lambda before=before: _heartbeat(airflow) != before,  # type: ignore[misc]
            PATIENCE,
        )


def _answer(airflow: AirflowApi, run: DagRun, option: str, because: str) -> None:
    _wait_for_the_scheduler(airflow)
    body = {"chosen_options": [option], "params_input": {"because": because}}
    airflow.http.patch(_details(run), json=body).raise_for_status()


def _present(place: Place) -> int:
    with place.services.catalog.transaction() as tx:
        found = copies.in_state(tx, PROJECT, copies.State.PRESENT)
    return sum(copy.checkpoint.workload == "purge" for copy in found)


def test_a_purge_waits_for_an_operator_and_the_sweep_does_not(place: Place) -> None:
    airflow = place.airflow
    _save(place)

    def asked() -> DagRun:
        airflow.trigger("approve_purge")
        wait_until("the question", lambda: _asking(place) is not None, PATIENCE)
        run = _asking(place)
        assert run is not None
        swept = airflow.trigger("sweep_quarantine")
        assert airflow.wait(swept, PATIENCE) == "success", airflow.failures(swept)
        assert _present(place) == SAVED
        return run

    refused = asked()
    shown = airflow.get(_details(refused))
    assert "quarantine.approve_above" in shown["subject"]
    assert "demo/purge/pretrain/1.1" in shown["body"]

    _answer(airflow, refused, "Reject", "")
    airflow.wait(refused, PATIENCE)
    assert _states(place, refused)["purge.sweep"] == "skipped", airflow.failures(refused)
    assert _present(place) == SAVED

    approved = asked()
    _answer(airflow, approved, "Approve", "looked at it")
    assert airflow.wait(approved, PATIENCE) == "success", airflow.failures(approved)
    assert _present(place) == 2
