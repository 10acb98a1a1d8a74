"""Starting, killing, stopping and starting again, beside another stack that runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping

import httpx
import pytest

from lastgood.catalog.db import Catalog
from lastgood.stack import children, control
from lastgood.stack.airflow import environment
from lastgood.stack.errors import DataDirInUse, StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.ports import held
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stack.processes import ProcessIdentity
from lastgood.stack.state import StackState
from tests.conftest import RunningStack, stack_in_temporary_folder
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def layout() -> Iterator[StackLayout]:
    with stack_in_temporary_folder() as layout:
        yield layout


def everything(state: StackState) -> set[ProcessIdentity]:
    families = [process.family() for process in state.processes.values()]
    return {state.supervisor, *(member for family in families for member in family)}


def projects(state: StackState) -> list[str]:
    assert state.addresses is not None
    with Catalog(state.addresses.catalog) as catalog, catalog.transaction() as tx:
        return [row["project"] for row in tx.execute("SELECT project FROM projects")]


def restarts(layout: StackLayout) -> Mapping[str, int]:
    state = control.running(layout)
    return state.restarts if state else {}


def test_killed_and_stopped_and_started_again_beside_another(
    airflow_stack: RunningStack, layout: StackLayout
) -> None:
    told: list[str] = []
    killed: list[StackState] = []

    def kill_once_airflow_starts(line: str) -> None:
        told.append(line)
        state = control.running(layout)
        if state and "scheduler" in state.processes:
            killed.append(state)
            killed_families.update(everything(state))
            state.supervisor.send(signal.SIGKILL)

    # The worst end: the supervisor is killed, and nobody tells its children.
    killed_families: set[ProcessIdentity] = set()
    with pytest.raises(StackError, match="the supervisor ended"):
        control.up(layout, tell=kill_once_airflow_starts)
    assert any("PostgreSQL" in line for line in told)
    assert any(process.is_alive() for process in killed_families)
    assert control.down(layout) is True
    assert {process for process in killed_families if process.is_alive()} == set()
    assert children.strays(layout.var) == frozenset()

    former = killed[0].addresses
    assert former is not None
    with held(former.airflow_port, former.execution_port, former.postgres_port):
        ready = control.up(layout, tell=told.append)
    assert (ready.phase, ready.addresses) == ("ready", former)
    assert ready.addresses is not None
    assert projects(ready) == ["demo"]
    assert "LASTGOOD_CATALOG" not in environment(layout, ready.addresses)
    assert control.up(layout, tell=told.append).supervisor == ready.supervisor
    with pytest.raises(DataDirInUse):
        EmbeddedPostgres.start(layout.postgres)
    ready.processes["postgres"].send(signal.SIGKILL)
    wait_for(lambda: restarts(layout).get("postgres") == 1, seconds=300)
    again = control.running(layout)
    assert again is not None
    assert (again.phase, again.addresses) == ("ready", ready.addresses)
    assert projects(again) == ["demo"]

    running = everything(again)
    assert control.down(layout) is True
    assert {process for process in running if process.is_alive()} == set()
    assert control.running(layout) is None
    assert control.down(layout) is False
    assert httpx.get(f"{airflow_stack.url}/lastgood/health", trust_env=False, timeout=60).is_success
