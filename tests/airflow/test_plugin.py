"""The plugin: light for every process of Airflow, a real FastAPI app for the api-server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "plugins" / "lastgood_plugin.py"


def test_plugin_costs_a_process_milliseconds_and_imports_nothing_heavy() -> None:
    program = f"""
import sys, time
import airflow.plugins_manager
before = set(sys.modules)
started = time.process_time()
import runpy
plugin = runpy.run_path({str(PLUGIN)!r})["LastgoodPlugin"]()
plugin.validate(); plugin.external_views
print(1000 * (time.process_time() - started))
heavy = {{"boto3", "fastapi", "great_expectations", "pandas", "psycopg"}}
print(*sorted(heavy & (set(sys.modules) - before)), *sorted(
    name for name in set(sys.modules) - before if name.startswith("lastgood")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    milliseconds, imported = done.stdout.splitlines()[-2:]
    assert imported == ""
    assert float(milliseconds) < 100


def test_links_are_relative_so_that_they_hold_below_a_path() -> None:
    import runpy

    plugin = runpy.run_path(str(PLUGIN))["LastgoodPlugin"]()
    assert [view for view in plugin.external_views if view["href"].startswith(("/", "http"))] == []
