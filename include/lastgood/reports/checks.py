"""What is checked of the totals of a report, in named suites, each with what it says, what it fails
and what it looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.rules.byte_equation import Line

CRITICAL = "critical"  # fails the run, after the report is written
WARNING = "warning"  # is shown
STORE = "store"
"""The suite over a whole store. Its owner answers for it, and it fails no project's run."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the checks allow; `USUAL` unless said otherwise."""

    store_age_seconds: int = 26 * 3600
    least_change: float = -0.5  # of the backend's bytes since the last report
    most_change: float = 1.0


USUAL = Bounds()


@dataclass(frozen=True, slots=True)
class Check:
    """What is expected of one frame, in words and as an expectation with its arguments."""

    suite: str
    name: str
    says: str
    severity: str
    frame: str
    expectation: str
    arguments: Mapping[str, Any]


def every_check(bounds: Bounds) -> tuple[Check, ...]:
    """Every check, in the order in which they are run and a report shows them: what later ones rest
    on comes first, so that the first that fails is the one to look at first."""
    nothing = {"min_value": 0, "max_value": 0}
    change = {"min_value": bounds.least_change, "max_value": bounds.most_change}
    lines = [line.value for line in Line]
    return (
        Check(
            "freshness",
            "every-store-listed",
            "No store of the project was never listed",
            CRITICAL,
            "stores",
            "ExpectColumnValuesToNotBeNull",
            {"column": "age_seconds"},
        ),
        Check(
            "freshness",
            "every-store-fresh",
            "Every store of the project was listed whole within a day",
            CRITICAL,
            "stores",
            "ExpectColumnValuesToBeBetween",
            {"column": "age_seconds", "min_value": 0, "max_value": bounds.store_age_seconds},
        ),
        Check(
            "byte-equation",
            "no-line-missing",
            "Every line of the equation is there",
            CRITICAL,
            "lines",
            "ExpectColumnDistinctValuesToEqualSet",
            {"column": "line", "value_set": lines},
        ),
        Check(
            "byte-equation",
            "no-negative-line",
            "No line of the equation is negative",
            CRITICAL,
            "lines",
            "ExpectColumnValuesToBeBetween",
            {"column": "bytes", "min_value": 0},
        ),
        Check(
            "byte-equation",
            "equation-closes",
            "The lines add up to the backend's own total, to the byte",
            CRITICAL,
            "equation",
            "ExpectByteEquationToClose",
            {"column_list": [*lines, "accounted_bytes"], "ignore_row_if": "never"},
        ),
        Check(
            "byte-equation",
            "project-within-store",
            "No line of the project has more bytes than that line of the whole store",
            CRITICAL,
            "parts",
            "ExpectPartWithinWhole",
            {"column_list": ["part_bytes", "whole_bytes"], "ignore_row_if": "never"},
        ),
        Check(
            "keys",
            "no-duplicate-key",
            "No key is in the store twice",
            CRITICAL,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "duplicate_keys", **nothing},
        ),
        Check(
            "keys",
            "nothing-committed-absent",
            "No committed object is missing, or of another size",
            CRITICAL,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "absent_objects", **nothing},
        ),
        Check(
            "findings",
            "unexplained-has-findings",
            "Every unexplained byte is in a finding",
            CRITICAL,
            "accounts",
            "ExpectColumnPairValuesToBeEqual",
            {"column_A": "unexplained_bytes", "column_B": "findings_bytes"},
        ),
        Check(
            "findings",
            "findings-have-owner",
            "Every finding has an owner",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToNotBeNull",
            {"column": "owner"},
        ),
        Check(
            "findings",
            "findings-have-deadline",
            "Every finding has a deadline",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToNotBeNull",
            {"column": "deadline"},
        ),
        Check(
            "findings",
            "no-finding-overdue",
            "No finding is past its deadline",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToBeInSet",
            {"column": "overdue", "value_set": [False]},
        ),
        Check(
            "growth",
            "change-in-bounds",
            "The store changed no more than usual since the last report",
            WARNING,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "change", **change},
        ),
        Check(
            "at-rest",
            "encrypted-as-asked",
            "The store says of what lies in it that it is encrypted as its configuration asks",
            WARNING,
            "accounts",
            "ExpectColumnValuesToBeInSet",
            {"column": "encryption", "value_set": ["as-asked", "declared", "not-asked"]},
        ),
        Check(
            STORE,
            "store-no-negative-line",
            "No line of the whole store's equation is negative",
            CRITICAL,
            "store",
            "ExpectColumnValuesToBeBetween",
            {"column": "least_bytes", "min_value": 0},
        ),
        Check(
            STORE,
            "store-equation-closes",
            "The lines of the whole store add up to the backend's own total, to the byte",
            CRITICAL,
            "store",
            "ExpectByteEquationToClose",
            {"column_list": [*lines, "accounted_bytes"], "ignore_row_if": "never"},
        ),
        Check(
            STORE,
            "store-no-duplicate-key",
            "No key outside of every project is in the store twice",
            CRITICAL,
            "store",
            "ExpectColumnValuesToBeBetween",
            {"column": "duplicate_keys", **nothing},
        ),
        Check(
            STORE,
            "store-unexplained-has-findings",
            "Every unexplained byte of the whole store is in a finding",
            CRITICAL,
            "store",
            "ExpectColumnPairValuesToBeEqual",
            {"column_A": Line.UNEXPLAINED.value, "column_B": "findings_bytes"},
        ),
    )


SUITES = tuple(dict.fromkeys(check.suite for check in every_check(USUAL)))
"""The names of the suites, in the order in which they are run."""
