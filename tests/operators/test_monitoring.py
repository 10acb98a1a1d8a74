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

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = DOCS / "monitoring"
RULES = MONITORING / "alerts.yaml"


def _expressions() -> dict[str, str]:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    dashboard: Any = json.loads((MONITORING / "grafana.json").read_text())
    found = {rule["alert"]: rule["expr"] for rule in rules}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


def _documented() -> dict[str, set[str]]:
    """The labels of each metric by the reference."""
    found = {}
    for line in (DOCS / "reference" / "report.md").read_text().splitlines():
        names = re.findall(r"`(lastgood_\w+)`", line) if line.startswith("| `lastgood_") else []
        found.update({name: set(line.split("|")[2].strip().split(", ")) for name in names})
    return found


def test_what_is_measured_is_documented_and_shown_and_nothing_else_is_named(
    api: httpx.Client,
) -> None:
    exported = set(re.findall(r"^# TYPE (\S+) ", api.get("/metrics").text, re.MULTILINE))
    expressions = _expressions()
    named = {name for one in expressions.values() for name in re.findall(r"\blastgood_\w+", one)}

    assert len(exported) > 20
    assert set(_documented()) == exported
    assert named == exported


def test_every_expression_asks_for_labels_that_its_metric_has() -> None:
    labels = _documented()
    unknown = {
        place: (name, label)
        for place, expression in _expressions().items()
        for name, selector in re.findall(r"\b(lastgood_\w+)\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)=", selector)
        if label not in labels[name]
    }
    assert unknown == {}
    for panel in json.loads((MONITORING / "grafana.json").read_text())["panels"]:
        for target in panel["targets"]:
            (metric, *_) = re.findall(r"\blastgood_\w+", target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels[metric]


def test_every_alert_says_how_bad_it_is_and_where_to_look() -> None:
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_promtool_takes_the_rules_and_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    recorded = [
        {"record": f"panel:{number}", "expr": expression.replace("$project", ".*")}
        for number, expression in enumerate(_expressions().values())
    ]
    shown = tmp_path / "dashboard.yaml"
    shown.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    told = subprocess.run(
        [promtool, "check", "rules", str(RULES), str(shown)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_alerts_tell_a_shared_store_that_fills_and_bytes_of_no_project(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    where = 'project="p",store="s"'
    series = {
        f"lastgood_backend_bytes{{{where}}}": "10+0x100",  # a small part, that does not grow
        f'lastgood_capacity_bytes{{{where},number="usage"}}': "500+1x100",
        f'lastgood_capacity_bytes{{{where},number="hard"}}': "700+0x100",
        f"lastgood_unexplained_bytes{{{where}}}": "0+0x100",
        'lastgood_store_bytes{store="s"}': "500+1x100",
        'lastgood_store_unexplained_bytes{store="s"}': "50+0x100",
    }
    fired = "ALERTS{alertname=~'LastgoodHardMark.*|Lastgood.*BytesUnexplained'}"
    expected = [
        {"labels": f'ALERTS{{alertname="{alert}",alertstate="firing",{labels}}}', "value": 1}
        for alert, labels in (
            ("LastgoodHardMarkWithinAWeek", f'severity="warning",{where}'),
            ("LastgoodStoreBytesUnexplained", 'severity="warning",store="s"'),
        )
    ]
    case = {
        "interval": "1h",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": fired, "eval_time": "80h", "exp_samples": expected}],
    }
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1h", "tests": [case]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    told = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "case.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
