"""DAGs through Airflow's REST API: started, waited for, and green."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lastgood.stack.airflow_api import DagRun
from lastgood.stack.demo.place import PROJECT, Place
from lastgood.stack.demo.screen import Screen
from lastgood.stack.errors import StackError

DAG_IDS = (
    "verify_commits",
    "validate_restores",
    "mark_retention",
    "sweep_quarantine",
    "clean_incomplete_uploads",
    "reconcile_inventory",
)
PATIENCE = timedelta(minutes=15)  # a busy machine starts a task in half a minute


def run(place: Place, screen: Screen, dag_id: str, why: str) -> DagRun:
    """Run a DAG; a scheduled run of it that is under way ends first. Raises StackError unless it
    is green."""
    with screen.step(f"DAG {dag_id}: {why}"):
        started = place.airflow.trigger(dag_id)
        state = place.airflow.wait(started, PATIENCE)
    if state != "success":
        raise StackError(f"DAG {dag_id} ended as {state}\n{place.airflow.failures(started)}")
    return started


def returned_for_project(place: Place, run: DagRun, task_id: str) -> Mapping[str, Any]:
    """What the demo project's part of a mapped task returned. Raises StackError if it has none."""
    for task in place.airflow.tasks(run):
        if task.task_id == task_id and task.state == "success":
            returned: Mapping[str, Any] = place.airflow.returned(run, task)
            if returned["project"] == PROJECT:
                return returned
    raise StackError(f"{run.dag_id}.{task_id} returned nothing for project {PROJECT}")
