"""`make run` on a real stack: its claims hold, its report shows them, interrupting it is safe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from lastgood.catalog.db import Catalog
from lastgood.stack import control
from lastgood.stack.airflow import STACK_TAG
from lastgood.stack.demo import report_page
from lastgood.stack.demo.dag_runs import DAG_IDS
from tests.conftest import RunningStack
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

# No home, no UTF-8, and a clock of three quarters of an hour.
FAR_FROM_HOME = {
    "HOME": "/proc/nobody",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "TZ": "Asia/Kathmandu",
}


def start_demo(stack: RunningStack, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lastgood.stack.demo", *options],
        env={**os.environ, **FAR_FROM_HOME, "LASTGOOD_VAR": str(stack.layout.var)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def result(
    airflow_stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """What a whole run of the demo says for programs."""
    file = tmp_path_factory.mktemp("demo") / "result.json"
    demo = start_demo(airflow_stack, "--json", str(file))
    printed, _ = demo.communicate()
    assert demo.returncode == 0, printed
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found


def test_every_expectation_holds_and_every_dag_ran(result: Mapping[str, Any]) -> None:
    assert result["passed"] is True
    assert [one for one in result["expectations"] if not one["held"]] == []
    assert len(result["expectations"]) >= 20
    named = [re.match(r"DAG (\w+)", step["title"]) for step in result["steps"]]
    ran = [found[1] for found in named if found]
    assert list(dict.fromkeys(ran)) == list(DAG_IDS)
    assert ran.count("sweep_quarantine") >= 2


def test_report_opens_in_a_browser_and_shows_the_same_numbers(
    chromium: WebDriver, result: Mapping[str, Any]
) -> None:
    document = json.loads(Path(result["report"]["json"]).read_text())

    chromium.get(Path(result["report"]["html"]).as_uri())

    cells = chromium.find_elements(By.CSS_SELECTOR, "[data-field]")
    shown = {str(cell.get_attribute("data-field")): cell.text for cell in cells}
    assert report_page.differing(shown, document) == []
    assert shown["counts.committed"] == str(result["counts"]["committed"])
    assert shown["equation.difference_bytes"] == "0"
    assert chromium.get_log("browser") == []


def test_commits_of_the_job_woke_the_validation(
    airflow_stack: RunningStack, result: Mapping[str, Any]
) -> None:
    with airflow_stack.airflow() as airflow:
        path = "/api/v2/dags/validate_restores/dagRuns"
        assert airflow.get(path, run_type="asset_triggered")["dag_runs"]


def test_interrupted_demo_leaves_a_stack_that_serves_and_no_job(
    airflow_stack: RunningStack, result: Mapping[str, Any]
) -> None:
    before = demo_jobs(airflow_stack)
    demo = start_demo(airflow_stack)
    jobs: set[int] = set()

    def trains() -> bool:
        assert demo.poll() is None
        jobs.update(demo_jobs(airflow_stack) - before)
        return bool(jobs)

    wait_for(trains, seconds=600)

    demo.send_signal(signal.SIGINT)
    printed, _ = demo.communicate(timeout=300)

    assert demo.returncode == 130, printed
    assert "interrupted" in printed
    assert not demo_jobs(airflow_stack) & jobs
    state = control.running(airflow_stack.layout)
    assert state is not None
    assert state.phase == "ready"
    with Catalog(airflow_stack.catalog_dsn) as catalog, catalog.transaction() as tx:
        left = tx.execute(
            "SELECT name FROM project_keys WHERE name LIKE 'make-run-%' AND revoked_at IS NULL"
        ).fetchall()
    assert left == []


def demo_jobs(stack: RunningStack) -> set[int]:
    """The processes of training jobs that this stack's demo started."""
    found = set()
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            trains = any(word.endswith("train.py") for word in words) and "--url" in words
            if trains and process.environ().get(STACK_TAG) == str(stack.layout.var):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
