"""Airflow's REST API, as far as a demo and tests need it: start a DAG, wait, read what it said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self
from urllib.parse import quote

import httpx

from lastgood.stack.errors import StackError

_LOOK_SECONDS = 0.3
_FINAL = ("success", "failed")


@dataclass(frozen=True)
class DagRun:
    """One run of one DAG."""

    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{self.dag_id}/dagRuns/{quote(self.run_id, safe='')}"


@dataclass(frozen=True)
class TaskRun:
    """One task of a run; `map_index` is -1 for a task that is not mapped."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int


class AirflowApi:
    """Airflow's REST API as one user. Close it at the end, or use it as a context manager."""

    def __init__(self, url: str, user: str, password: str) -> None:
        """Log in. Raises StackError when Airflow refuses the password."""
        self.http = httpx.Client(base_url=url, timeout=120, trust_env=False)
        answer = self.http.post("/auth/token", json={"username": user, "password": password})
        if answer.status_code != httpx.codes.CREATED:
            raise StackError(f"Airflow refuses to log {user} in: {answer.text}")
        self.http.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """GET a path and return its JSON. Raises httpx.HTTPStatusError."""
        return self.http.get(path, params=parameters).raise_for_status().json()

    def wait_until_parsed(self, dag_ids: Sequence[str], within: timedelta) -> None:
        """Wait until the dag-processor has read these DAGs. Raises StackError with its errors."""
        deadline = time.monotonic() + within.total_seconds()
        while missing := set(dag_ids) - {d["dag_id"] for d in self.get("/api/v2/dags")["dags"]}:
            if time.monotonic() > deadline:
                errors = self.get("/api/v2/importErrors")["import_errors"]
                said = "\n".join(error["stack_trace"] for error in errors)
                raise StackError(f"Airflow does not know the DAGs {sorted(missing)}\n{said}")
            time.sleep(_LOOK_SECONDS)

    def trigger(self, dag_id: str) -> DagRun:
        """Start a run now, as the button in Airflow's pages does."""
        answer = self.http.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None})
        return DagRun(dag_id, answer.raise_for_status().json()["dag_run_id"])

    def state(self, run: DagRun) -> str:
        """Return the state of a run: queued, running, success or failed."""
        state: str = self.get(run.path)["state"]
        return state

    def wait(self, run: DagRun, within: timedelta) -> str:
        """Wait until a run has ended and return its state. Raises StackError when it does not."""
        deadline = time.monotonic() + within.total_seconds()
        while (state := self.state(run)) not in _FINAL:
            if time.monotonic() > deadline:
                tasks = ", ".join(f"{t.task_id}[{t.map_index}] {t.state}" for t in self.tasks(run))
                raise StackError(f"{run.dag_id} is {state} after {within}: {tasks}")
            time.sleep(_LOOK_SECONDS)
        return state

    def tasks(self, run: DagRun) -> list[TaskRun]:
        """Return the tasks of a run."""
        found = self.get(f"{run.path}/taskInstances")["task_instances"]
        return [TaskRun(t["task_id"], t["map_index"], t["state"], t["try_number"]) for t in found]

    def returned(self, run: DagRun, task: TaskRun) -> Any:
        """Return what a task returned."""
        path = f"{run.path}/taskInstances/{task.task_id}/xcomEntries/return_value"
        return self.get(path, map_index=task.map_index, deserialize=True)["value"]

    def log(self, run: DagRun, task: TaskRun) -> str:
        """Return the log of a task's last try, one event a line."""
        path = f"{run.path}/taskInstances/{task.task_id}/logs/{task.try_number}"
        content = self.get(path, map_index=task.map_index, full_content=True)["content"]
        return "\n".join(_line_of(event) for event in content)

    def failures(self, run: DagRun) -> str:
        """Return the ends of the logs of the tasks that failed."""
        failed = [task for task in self.tasks(run) if task.state in ("failed", "up_for_retry")]
        return "\n".join(
            f"{run.dag_id}.{task.task_id}[{task.map_index}]:\n{self.log(run, task)[-4000:]}"
            for task in failed
        )


def _line_of(event: Any) -> str:
    if isinstance(event, str):
        return event
    details = "".join(
        f"\n  {error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail", [])
    )
    return f"{event.get('event', '')}{details}"
