"""The quality checks pass on totals that agree, and each fails on the totals that it is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastgood.reports import quality
from lastgood.reports.quality import Frames
from lastgood.rules.byte_equation import Line

ACCOUNT = {
    "scope": "vision in local",
    "difference_bytes": 0,
    "unexplained_bytes": 5,
    "findings_bytes": 5,
    "duplicate_keys": 0,
    "absent_objects": 0,
    "change": 0.1,
}
LINES = [{"scope": "vision in local", "line": line.value, "bytes": 7} for line in Line]
FINDING = {"finding": "f1", "owner": "oncall", "deadline": "2026-01-02", "overdue": False}
GOOD = Frames([ACCOUNT], LINES, [{"store": "local", "age_seconds": 3}], [FINDING])


def _failed(frames: Frames) -> dict[str, str]:
    return {
        one.name: one.observed for one in quality.run(frames, owner="platform") if not one.passed
    }


def test_totals_that_agree_pass_every_check() -> None:
    results = quality.run(GOOD, owner="platform")

    assert {one.name for one in results if not one.passed} == set()
    assert [one.name for one in results] == [one.name for one in quality.checks(quality.Bounds())]
    assert {one.owner for one in results} == {"platform"}


def test_a_project_without_findings_passes() -> None:
    assert _failed(replace(GOOD, findings=[])) == {}


def test_the_first_report_has_no_change_to_judge() -> None:
    assert _failed(replace(GOOD, accounts=[{**ACCOUNT, "change": None}])) == {}


@pytest.mark.parametrize(
    ("frames", "name", "shown"),
    [
        ({"accounts": [{**ACCOUNT, "difference_bytes": -1}]}, "equation-closes", "-1"),
        ({"lines": [*LINES[:-1], {**LINES[-1], "bytes": -9}]}, "no-negative-line", "-9"),
        ({"lines": LINES[:-1]}, "no-line-missing", "unexplained"),
        ({"stores": [{"store": "s3", "age_seconds": 10**6}]}, "every-store-fresh", "s3"),
        ({"stores": [{"store": "s3", "age_seconds": None}]}, "every-store-listed", "s3"),
        ({"accounts": [{**ACCOUNT, "duplicate_keys": 2}]}, "no-duplicate-key", "2"),
        ({"accounts": [{**ACCOUNT, "absent_objects": 3}]}, "nothing-committed-absent", "3"),
        ({"accounts": [{**ACCOUNT, "findings_bytes": 4}]}, "unexplained-has-findings", "4"),
        ({"findings": [{**FINDING, "owner": None}]}, "findings-have-owner", "f1"),
        ({"findings": [{**FINDING, "deadline": None}]}, "findings-have-deadline", "f1"),
        ({"findings": [{**FINDING, "overdue": True}]}, "no-finding-overdue", "f1"),
        ({"accounts": [{**ACCOUNT, "change": 3.0}]}, "change-in-bounds", "3.0"),
    ],
)
def test_each_check_fails_on_its_own_fault_and_shows_it(
    frames: dict[str, Any], name: str, shown: str
) -> None:
    failed = _failed(replace(GOOD, **frames))

    assert list(failed) == [name]
    assert shown in failed[name]
