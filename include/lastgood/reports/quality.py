"""The quality checks of a report, as Great Expectations suites over frames of totals.

The frames hold sums, never keys. Great Expectations takes seconds to import, so it and pandas are
imported only when checks run; its context is ephemeral and nothing is sent anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lastgood.rules.byte_equation import Line

if TYPE_CHECKING:
    import pandas as pd

CRITICAL = "critical"  # fails the run, after the report is written
WARNING = "warning"  # is shown


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the checks allow."""

    store_age_seconds: int = 26 * 3600
    least_change: float = -0.5  # of the backend's bytes since the last report
    most_change: float = 1.0


@dataclass(frozen=True, slots=True)
class Frames:
    """The totals that are checked, as rows.

    accounts: scope, difference_bytes, unexplained_bytes, findings_bytes, duplicate_keys,
              absent_objects, change
    lines:    scope, line, bytes
    stores:   store, age_seconds (None: never listed)
    findings: finding, owner, deadline, overdue
    """

    accounts: Sequence[Mapping[str, Any]]
    lines: Sequence[Mapping[str, Any]]
    stores: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check with what it saw."""

    name: str
    says: str
    severity: str
    owner: str
    passed: bool
    expectation: str
    observed: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """What is expected of one frame, in words and as an expectation with its arguments."""

    name: str
    says: str
    severity: str
    frame: str
    expectation: str
    arguments: Mapping[str, Any]


def checks(bounds: Bounds) -> tuple[Check, ...]:
    """Every check, in the order in which a report shows them."""
    nothing = {"min_value": 0, "max_value": 0}
    change = {"min_value": bounds.least_change, "max_value": bounds.most_change}
    return (
        Check(
            "equation-closes",
            "The lines add up to the backend's own total, to the byte",
            CRITICAL,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "difference_bytes", **nothing},
        ),
        Check(
            "no-negative-line",
            "No line of the equation is negative",
            CRITICAL,
            "lines",
            "ExpectColumnValuesToBeBetween",
            {"column": "bytes", "min_value": 0},
        ),
        Check(
            "no-line-missing",
            "Every line of the equation is there",
            CRITICAL,
            "lines",
            "ExpectColumnDistinctValuesToEqualSet",
            {"column": "line", "value_set": [line.value for line in Line]},
        ),
        Check(
            "every-store-fresh",
            "Every store of the project was listed whole within a day",
            CRITICAL,
            "stores",
            "ExpectColumnValuesToBeBetween",
            {"column": "age_seconds", "min_value": 0, "max_value": bounds.store_age_seconds},
        ),
        Check(
            "every-store-listed",
            "No store of the project was never listed",
            CRITICAL,
            "stores",
            "ExpectColumnValuesToNotBeNull",
            {"column": "age_seconds"},
        ),
        Check(
            "no-duplicate-key",
            "No key is in the store twice",
            CRITICAL,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "duplicate_keys", **nothing},
        ),
        Check(
            "nothing-committed-absent",
            "No committed object is missing, or of another size",
            CRITICAL,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "absent_objects", **nothing},
        ),
        Check(
            "unexplained-has-findings",
            "Every unexplained byte is in a finding",
            CRITICAL,
            "accounts",
            "ExpectColumnPairValuesToBeEqual",
            {"column_A": "unexplained_bytes", "column_B": "findings_bytes"},
        ),
        Check(
            "findings-have-owner",
            "Every finding has an owner",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToNotBeNull",
            {"column": "owner"},
        ),
        Check(
            "findings-have-deadline",
            "Every finding has a deadline",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToNotBeNull",
            {"column": "deadline"},
        ),
        Check(
            "no-finding-overdue",
            "No finding is past its deadline",
            CRITICAL,
            "findings",
            "ExpectColumnValuesToBeInSet",
            {"column": "overdue", "value_set": [False]},
        ),
        Check(
            "change-in-bounds",
            "The store changed no more than usual since the last report",
            WARNING,
            "accounts",
            "ExpectColumnValuesToBeBetween",
            {"column": "change", **change},
        ),
    )


_COLUMNS = {
    "accounts": [
        "scope",
        "difference_bytes",
        "unexplained_bytes",
        "findings_bytes",
        "duplicate_keys",
        "absent_objects",
        "change",
    ],
    "lines": ["scope", "line", "bytes"],
    "stores": ["store", "age_seconds"],
    "findings": ["finding", "owner", "deadline", "overdue"],
}


def run(frames: Frames, *, owner: str, bounds: Bounds = Bounds()) -> list[CheckResult]:
    """Run every check; `owner` is who answers for a failed one. A check that cannot be evaluated
    counts as failed."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("totals")
    results: dict[str, CheckResult] = {}
    everything = checks(bounds)
    for name, columns in _COLUMNS.items():
        frame = pd.DataFrame(list(getattr(frames, name)), columns=columns)
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        suite = context.suites.add(gx.ExpectationSuite(name=name))
        for check in everything:
            if check.frame == name:
                suite.add_expectation(_expectation(check, owner))
        definition = gx.ValidationDefinition(name=name, data=batch, suite=suite)
        validation = context.validation_definitions.add(definition)
        for result in validation.run(batch_parameters={"dataframe": frame}).results:
            assert result.expectation_config is not None
            check_name = str(result.expectation_config.meta["name"])
            check = next(one for one in everything if one.name == check_name)
            results[check_name] = _result(check, owner, result.to_json_dict(), frame)
    return [results[check.name] for check in everything]


def _expectation(check: Check, owner: str) -> Any:
    import great_expectations.expectations as gxe

    kind = getattr(gxe, check.expectation)
    meta = {"name": check.name, "owner": owner}
    return kind(**check.arguments, severity=check.severity, meta=meta)


def _result(
    check: Check, owner: str, result: Mapping[str, Any], frame: pd.DataFrame
) -> CheckResult:
    return CheckResult(
        name=check.name,
        says=check.says,
        severity=check.severity,
        owner=owner,
        passed=bool(result["success"]),
        expectation=check.expectation,
        observed=_observed(check, result, frame),
    )


def _observed(check: Check, result: Mapping[str, Any], frame: pd.DataFrame) -> str:
    """What a person needs to see of the outcome: the numbers that broke it."""
    raised = result["exception_info"]
    if "raised_exception" not in raised:  # keyed by metric where several were computed
        raised = next(iter(raised.values()), {"raised_exception": False})
    if raised["raised_exception"]:
        return f"could not be evaluated: {raised['exception_message']}"
    details = result["result"]
    if result["success"]:
        return f"{len(frame)} checked"
    missing = details.get("partial_missing_list") or details.get("missing_value_list")
    if missing:
        return "missing: " + ", ".join(map(str, missing))
    unexpected = details.get("partial_unexpected_list") or []
    places = [_row(frame, index) for index in details.get("partial_unexpected_index_list") or []]
    column = check.arguments.get("column", "")
    shown = [
        f"{place}: {column or 'pair'} {value}" if place else f"{column} {value}"
        for place, value in zip(places or [""] * len(unexpected), unexpected, strict=False)
    ]
    return "; ".join(shown[:5]) or f"{details.get('unexpected_count', 0)} rows"


def _row(frame: pd.DataFrame, index: Any) -> str:
    """A row by its first column, and by its line where it has one."""
    position = index if isinstance(index, int) else next(iter(dict(index).values()))
    row = frame.loc[position]
    line = f" {row['line']}" if "line" in frame.columns else ""
    return f"{row.iloc[0]}{line}"
