"""The whole stack, booted once: what it serves, to whom, and what becomes of a part that dies."""

from __future__ import annotations

import signal
from datetime import timedelta

import httpx
import psutil
import pytest

from lastgood.runner import Workload
from lastgood.stack import control
from lastgood.stack.airflow_api import AirflowApi
from lastgood.stack.demo.place import project_key, reached
from lastgood.stack.errors import StackError
from tests.airflow.test_dags import DAG_IDS
from tests.conftest import RunningStack
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
PATIENCE = timedelta(minutes=10)


@pytest.fixture(scope="module")
def airflow(airflow_stack: RunningStack) -> AirflowApi:
    api = airflow_stack.airflow()
    api.wait_until_parsed(sorted(DAG_IDS), PATIENCE)
    return api


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
    assert pools >= {"lastgood_reading", "lastgood_restoring", "lastgood_deleting"}
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
    airflow: AirflowApi, airflow_stack: RunningStack
) -> None:
    with airflow_stack.airflow("viewer") as viewer:
        assert viewer.get("/api/v2/dags")["total_entries"] == len(DAG_IDS)
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            viewer.trigger("mark_retention")
    with pytest.raises(StackError, match="refuses"):
        AirflowApi(airflow_stack.url, "admin", "wrong")


def test_objects_come_as_they_lie_in_the_store(airflow_stack: RunningStack) -> None:
    content = bytes(200_000)
    with (
        reached(airflow_stack.layout, airflow_stack.addresses) as place,
        project_key(place) as key,
        Workload(place.url, key, workload="zeros", stage="pretrain") as workload,
    ):
        (place.folder / "zeros.bin").write_bytes(content)
        with workload.acquire() as run:
            run.save({"zeros.bin": place.folder / "zeros.bin"}, step=1)
        asked = {"workload": "zeros", "stage": "pretrain", "reader": "test"}
        lease = place.airflow.http.post(
            "/lastgood/v1/runner/readers", json=asked, headers={"Authorization": f"Bearer {key}"}
        ).json()
        answer = place.airflow.http.get(
            lease["objects"][0]["url"],
            headers={"Authorization": f"Bearer {lease['token']}", "Accept-Encoding": "gzip"},
        )
    assert answer.headers["Content-Length"] == str(len(content))
    assert answer.headers["Content-Encoding"] == "identity"
    assert answer.content == content


def test_component_that_dies_is_started_again(
    airflow: AirflowApi, airflow_stack: RunningStack
) -> None:
    layout = airflow_stack.layout
    former = control.running(layout)
    assert former is not None
    before = former.restarts.get("dag-processor", 0)
    former.processes["dag-processor"].send(signal.SIGKILL)

    def replaced() -> bool:
        state = control.running(layout)
        return bool(state and state.restarts.get("dag-processor", 0) > before)

    wait_for(replaced, seconds=300)
    state = control.running(layout)
    assert state is not None
    assert state.phase == "ready"
    assert state.processes["dag-processor"].is_alive()
    assert "signal 9" in layout.log_of("supervisor").read_text()
