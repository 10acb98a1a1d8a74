"""The quality checks pass on totals that agree, and each fails on the totals that it is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastgood.reports import checks, quality
from lastgood.reports.quality import Frames
from lastgood.rules.byte_equation import Line

ACCOUNT = {
    "scope": "vision in local",
    "unexplained_bytes": 5,
    "findings_bytes": 5,
    "duplicate_keys": 0,
    "absent_objects": 0,
    "change": 0.1,
    "encryption": "as-asked",
}
LINES = [{"scope": "vision in local", "line": line.value, "bytes": 7} for line in Line]
EQUATION = {
    "scope": "vision in local",
    **{line.value: 7 for line in Line},
    "accounted_bytes": 7 * len(Line),
}
HUGE = {"committed": 2**62 + 1, "accounted_bytes": 2**62 + 7 * (len(Line) - 1)}
"""As floats both sides would be the same."""
PARTS = [{"line": line.value, "part_bytes": 7, "whole_bytes": 7} for line in Line]
FINDING = {"finding": "f1", "owner": "oncall", "deadline": "2026-01-02", "overdue": False}
WHOLE = {**EQUATION, "scope": "all of local", "least_bytes": 7, "findings_bytes": 7}
WHOLE["duplicate_keys"] = 0
STORES = [{"store": "local", "age_seconds": 3}]
GOOD = Frames([EQUATION], LINES, PARTS, [ACCOUNT], STORES, [FINDING], [WHOLE])


def _failed(frames: Frames) -> dict[str, str]:
    return {
        one.name: one.observed for one in quality.run(frames, owner="platform") if not one.passed
    }


def test_totals_that_agree_pass_every_check() -> None:
    results = quality.run(GOOD, owner="platform")

    assert {one.name for one in results if not one.passed} == set()
    assert [one.name for one in results] == [one.name for one in checks.every_check(checks.USUAL)]
    assert {one.owner for one in results} == {"platform"}


def test_each_check_is_in_a_named_suite_with_its_owner_and_the_first_that_fails_is_told() -> None:
    frames = replace(
        GOOD,
        accounts=[{**ACCOUNT, "change": 9.0, "absent_objects": 2}],
        findings=[{**FINDING, "overdue": True}],
    )

    owners = {"findings": "data-governance", checks.STORE: "storage"}
    results = quality.run(frames, owner="platform", owners=owners)

    assert [one.suite for one in results] == sorted(
        (one.suite for one in results), key=checks.SUITES.index
    )
    assert {one.suite: one.owner for one in results} == {
        "freshness": "platform",
        "byte-equation": "platform",
        "keys": "platform",
        "findings": "data-governance",
        "growth": "platform",
        "at-rest": "platform",
        "store": "storage",
    }
    first = quality.first_failed(results)
    assert first is not None
    assert (first.suite, first.name, first.owner) == (
        "keys",
        "nothing-committed-absent",
        "platform",
    )
    assert quality.first_failed(one for one in results if one.passed) is None
    warning = quality.first_failed(one for one in results if one.suite == "growth")
    assert warning is not None
    assert warning.severity == checks.WARNING


def test_a_project_without_findings_passes() -> None:
    assert _failed(replace(GOOD, findings=[])) == {}


def test_the_first_report_has_no_change_to_judge() -> None:
    assert _failed(replace(GOOD, accounts=[{**ACCOUNT, "change": None}])) == {}


@pytest.mark.parametrize(
    ("frames", "name", "shown"),
    [
        ({"equation": [{**EQUATION, "accounted_bytes": 64}]}, "equation-closes", "-1 bytes"),
        ({"equation": [{**EQUATION, "accounted_bytes": None}]}, "equation-closes", "no total"),
        ({"equation": [EQUATION, {**EQUATION, **HUGE}]}, "equation-closes", "+1 bytes"),
        ({"parts": [{**PARTS[0], "part_bytes": 8}]}, "project-within-store", "+1 bytes"),
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
        ({"store": [{**WHOLE, "accounted_bytes": 64}]}, "store-equation-closes", "-1 bytes"),
        ({"store": [{**WHOLE, "least_bytes": -9}]}, "store-no-negative-line", "-9"),
        ({"store": [{**WHOLE, "duplicate_keys": 1}]}, "store-no-duplicate-key", "1"),
        ({"store": [{**WHOLE, "findings_bytes": 4}]}, "store-unexplained-has-findings", "4"),
    ],
)
def test_each_check_fails_on_its_own_fault_and_shows_it(
    frames: dict[str, Any], name: str, shown: str
) -> None:
    results = quality.run(replace(GOOD, **frames), owner="platform")
    failed = {one.name: one.observed for one in results if not one.passed}
    first = quality.first_failed(results)

    assert list(failed) == [name]
    assert (first is None) is ("store" in frames)  # of a whole store no project's check fails
    assert shown in failed[name]
