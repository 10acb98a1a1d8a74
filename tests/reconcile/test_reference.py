"""What a report, its checks and the metrics can say is documented."""

from __future__ import annotations

import re
from pathlib import Path

from lastgood.coordinator import metrics
from lastgood.flows.inventories.merge import Cause
from lastgood.reports import words
from lastgood.reports.checks import USUAL, every_check
from lastgood.rules.byte_equation import Line

REFERENCE = (Path(__file__).parents[2] / "docs/reference/report.md").read_text(encoding="utf-8")


def test_every_line_and_cause_is_in_the_reference_and_in_words() -> None:
    names = [*(line.value for line in Line), *(cause.value for cause in Cause)]

    assert [name for name in names if f"| `{name}` |" not in REFERENCE] == []
    assert [line for line in Line if not words.line_note(line)] == []
    assert [cause for cause in Cause if not words.cause_note(cause)] == []


def test_every_check_is_in_the_reference_with_its_severity() -> None:
    documented = dict(
        re.findall(r"^\| (`[a-z-]+` \| `[a-z-]+`) \| (critical|warning) \|", REFERENCE, re.M)
    )

    assert documented == {
        f"`{check.suite}` | `{check.name}`": check.severity for check in every_check(USUAL)
    }


def test_every_metric_is_in_the_reference() -> None:
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'_gauge\(\s*"([a-z_]+)"', source))

    assert len(names) > 8
    assert {name for name in names if f"`lastgood_{name}`" not in REFERENCE} == set()
