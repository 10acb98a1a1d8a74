"""The alert rules and the dashboard name only what is measured."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = MONITORING / "alerts.yaml"


def _expressions() -> dict[str, str]:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    dashboard: Any = json.loads((MONITORING / "grafana.json").read_text())
    found = {rule["alert"]: rule["expr"] for rule in rules}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


def test_every_expression_names_metrics_that_are_exported_with_those_labels(
    api: httpx.Client,
) -> None:
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", api.get("/metrics").text, re.MULTILINE))
    expressions = _expressions()

    assert len(expressions) > 20
    unknown = {
        place: name
        for place, expression in expressions.items()
        for name in re.findall(r"\blastgood_\w+", expression)
        if name not in families
    }
    assert unknown == {}


def test_every_alert_says_how_bad_it_is_and_where_to_look() -> None:
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    told = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
