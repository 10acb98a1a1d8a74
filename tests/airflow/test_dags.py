"""The DAG files as Airflow reads them: whole, light, and of one manner."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.serialization.encoders import coerce_to_core_timetable
from pendulum import datetime

ROOT = Path(__file__).parents[2]
DAG_IDS = {
    "approve_purge",
    "clean_incomplete_uploads",
    "drill",
    "mark_retention",
    "reconcile_inventory",
    "sweep_quarantine",
    "validate_restores",
    "verify_commits",
}
PUBLIC_FUNCTION = re.compile(r"^def ([a-z]\w*)", re.MULTILINE)
HEAVY = [
    *("boto3", "duckdb", "fastapi", "great_expectations", "numpy", "obstore", "pandas"),
    *("psycopg", "psycopg_pool"),
]


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    bag = DagBag(ROOT / "dags")
    assert bag.import_errors == {}
    return bag.dags


def test_there_is_one_dag_per_verb(dags: dict[str, DAG]) -> None:
    assert set(dags) == DAG_IDS


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_dag_says_what_it_deletes_never_catches_up_and_runs_alone(
    dags: dict[str, DAG], dag_id: str
) -> None:
    dag = dags[dag_id]
    assert "delete" in dag.doc_md
    assert dag.catchup is False
    assert dag.max_active_runs == 1


def test_reports_cover_a_whole_day(dags: dict[str, DAG]) -> None:
    timetable = coerce_to_core_timetable(dags["reconcile_inventory"].timetable)
    interval = timetable.infer_manual_data_interval(run_after=datetime(2026, 3, 29, 12, tz="UTC"))
    assert interval.start == datetime(2026, 3, 28, 2, tz="UTC")
    assert interval.end == datetime(2026, 3, 29, 2, tz="UTC")


def test_only_destructive_tasks_share_the_pool_of_one_slot(dags: dict[str, DAG]) -> None:
    deleting = {
        dag_id
        for dag_id, dag in dags.items()
        for task in dag.tasks
        if task.pool == "lastgood_deleting"
    }
    assert deleting == {"approve_purge", "sweep_quarantine", "clean_incomplete_uploads"}


def test_whatever_a_scheduler_can_run_is_run_by_a_dag() -> None:
    flows = ROOT / "include/lastgood/flows"
    offered = [flows / "scheduled.py", flows / "scheduled_inventories.py"]
    code = "".join(file.read_text() for file in [*offered, *(ROOT / "dags").glob("*.py")])
    names = [name for file in offered for name in PUBLIC_FUNCTION.findall(file.read_text())]
    assert {name for name in names if len(re.findall(rf"\b{name}\b", code)) == 1} == set()


def test_parsing_the_dags_and_the_plugin_imports_nothing_heavy() -> None:
    program = f"""
import runpy, sys, time
import airflow.sdk, airflow.triggers.base, airflow.plugins_manager
before = set(sys.modules)
started = time.process_time()
for path in {[str(p) for p in sorted((ROOT / "dags").glob("*.py"))]!r}:
    runpy.run_path(path)
runpy.run_path({str(ROOT / "plugins" / "lastgood_plugin.py")!r})
print(time.process_time() - started)
print(*sorted(name for name in {HEAVY!r} if name in set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, heavy = done.stdout.splitlines()[-2:]
    assert heavy == ""
    assert float(seconds) < 1
