"""The whole stack, booted once: what it serves, to whom, and that every DAG runs in it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import timedelta

import httpx
import psutil
import pytest

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.stack import control
from lastgood.stack.airflow_api import AirflowApi
from lastgood.stack.errors import StackError
from tests.airflow.test_dags import DAG_IDS
from tests.conftest import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE = timedelta(minutes=4)


@pytest.fixture(scope="module")
def airflow(airflow_stack: RunningStack) -> AirflowApi:
    api = airflow_stack.airflow()
    api.wait_until_parsed(sorted(DAG_IDS), PATIENCE)
    return api


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def test_plugin_is_loaded_and_its_apps_lifespan_runs(airflow: AirflowApi) -> None:
    (plugin,) = airflow.get("/api/v2/plugins")["plugins"]
    assert plugin["name"] == "lastgood"
    assert plugin["fastapi_apps"][0]["url_prefix"] == "/lastgood"
    assert airflow.get("/api/v2/plugins/importErrors")["import_errors"] == []
    assert airflow.get("/api/v2/importErrors")["import_errors"] == []
    assert airflow.http.get("/lastgood/health").status_code == httpx.codes.OK


def test_settings_file_is_in_airflow_with_the_embedded_address(
    airflow: AirflowApi, airflow_stack: RunningStack
) -> None:
    pools = {pool["name"] for pool in airflow.get("/api/v2/pools")["pools"]}
    assert pools >= {"lastgood_reading", "lastgood_deleting"}
    catalog = airflow.get("/api/v2/connections/lastgood_catalog")
    assert catalog["port"] == airflow_stack.addresses.postgres_port
    assert catalog["login"] == "lastgood_app"


def test_every_socket_listens_on_the_loopback_alone(airflow_stack: RunningStack) -> None:
    state = control.running(airflow_stack.layout)
    assert state is not None
    processes = {m.pid for process in state.processes.values() for m in process.family()}
    listening = [
        connection
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.pid in processes
    ]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    assert {connection.laddr.port for connection in listening} == {
        airflow_stack.addresses.airflow_port,
        airflow_stack.addresses.execution_port,
        airflow_stack.addresses.postgres_port,
    }


def test_viewer_reads_but_starts_nothing_and_a_wrong_password_gets_nowhere(
    airflow_stack: RunningStack,
) -> None:
    with airflow_stack.airflow("viewer") as viewer:
        assert viewer.get("/api/v2/dags")["total_entries"] == len(DAG_IDS)
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            viewer.trigger("mark_retention")
    with pytest.raises(StackError, match="refuses"):
        AirflowApi(airflow_stack.url, "admin", "wrong")


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_dag_started_by_hand_succeeds(airflow: AirflowApi, dag_id: str) -> None:
    run = airflow.trigger(dag_id)
    assert airflow.wait(run, PATIENCE) == "success", airflow.failures(run)


def test_committed_event_wakes_the_validation(
    airflow: AirflowApi, airflow_stack: RunningStack
) -> None:
    def woken() -> int:
        runs = airflow.get("/api/v2/dags/validate_restores/dagRuns")["dag_runs"]
        return sum(run["run_type"] == "asset_triggered" for run in runs)

    before = woken()
    with Catalog(airflow_stack.catalog_dsn) as catalog, catalog.transaction() as tx:
        row = tx.execute(
            "INSERT INTO stages (project, workload, stage, kind, class)"
            " VALUES ('demo', 'alarm', 'pretrain', 'checkpointed', 'default') RETURNING stage_id"
        ).fetchone()
        assert row is not None
        history.record(tx, row["stage_id"], "committed", actor="system", facts={})
    wait_for(lambda: woken() > before)


def test_component_that_dies_is_started_again(
    airflow: AirflowApi, airflow_stack: RunningStack
) -> None:
    layout = airflow_stack.layout
    former = control.running(layout)
    assert former is not None
    former.processes["dag-processor"].send(signal.SIGKILL)

    def replaced() -> bool:
        state = control.running(layout)
        return bool(state and state.restarts.get("dag-processor") == 1)

    wait_for(replaced)
    state = control.running(layout)
    assert state is not None
    assert state.phase == "ready"
    assert state.processes["dag-processor"].is_alive()
    assert "signal 9" in layout.log_of("supervisor").read_text()
