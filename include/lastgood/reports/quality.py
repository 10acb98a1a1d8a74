"""The quality checks of a report, as named suites of Great Expectations over frames of totals.

The frames hold sums, never keys. Great Expectations takes seconds to import, so it and pandas are
imported only when checks run; its context is ephemeral and nothing is sent anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lastgood.reports.checks import CRITICAL, STORE, SUITES, USUAL, Bounds, Check, every_check
from lastgood.rules.byte_equation import Line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Frames:
    """The totals that are checked, as rows.

    equation: scope, each line's bytes, accounted_bytes (None: the backend tells no total)
    lines:    scope, line, bytes
    parts:    line, part_bytes (the project's), whole_bytes (the store's)
    store:    scope, each line's bytes, accounted_bytes, least_bytes (of a line), findings_bytes,
              duplicate_keys (of no project): the whole store
    accounts: scope, unexplained_bytes, findings_bytes, duplicate_keys, absent_objects, change,
              encryption
    stores:   store, age_seconds (None: never listed)
    findings: finding, owner, deadline, overdue
    """

    equation: Sequence[Mapping[str, Any]]
    lines: Sequence[Mapping[str, Any]]
    parts: Sequence[Mapping[str, Any]]
    accounts: Sequence[Mapping[str, Any]]
    stores: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    store: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check with what it saw."""

    suite: str
    name: str
    says: str
    severity: str
    owner: str
    passed: bool
    expectation: str
    observed: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def failed_of(results: Iterable[CheckResult], *, store: bool = False) -> list[CheckResult]:
    """What failed of the project's own checks, or of those of its whole store."""
    return [one for one in results if not one.passed and (one.suite == STORE) is store]


def critical_of(results: Iterable[CheckResult]) -> list[CheckResult]:
    """What failed and is critical of the project's own checks: by these it fails."""
    return [one for one in failed_of(results) if one.severity == CRITICAL]


def first_failed(results: Iterable[CheckResult]) -> CheckResult | None:
    """What failed first of the project's own checks: the first critical one in their order, else
    the first warning; None if all passed."""
    failed = failed_of(results)
    return min(failed, key=lambda one: one.severity != CRITICAL, default=None)


_COLUMNS = {
    "equation": ["scope", *(line.value for line in Line), "accounted_bytes"],
    "parts": ["line", "part_bytes", "whole_bytes"],
    "accounts": [
        "scope",
        "unexplained_bytes",
        "findings_bytes",
        "duplicate_keys",
        "absent_objects",
        "change",
        "encryption",
    ],
    "lines": ["scope", "line", "bytes"],
    "stores": ["store", "age_seconds"],
    "findings": ["finding", "owner", "deadline", "overdue"],
    "store": [
        "scope",
        *(line.value for line in Line),
        "accounted_bytes",
        "least_bytes",
        "findings_bytes",
        "duplicate_keys",
    ],
}


_DTYPES = {
    "equation": "object",
    "parts": "object",
    "store": "object",
}  # whole numbers of any size, exactly


def run(
    frames: Frames,
    *,
    owner: str,
    owners: Mapping[str, str] | None = None,
    bounds: Bounds = USUAL,
) -> list[CheckResult]:
    """Run every check. `owners` says by suite who answers for a failed check, `owner` for all other
    suites. A check that cannot be evaluated counts as failed."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("totals")
    everything = every_check(bounds)
    answering = {suite: (owners or {}).get(suite, owner) for suite in SUITES}
    made = {
        name: pd.DataFrame(list(getattr(frames, name)), columns=columns, dtype=_DTYPES.get(name))
        for name, columns in _COLUMNS.items()
    }
    results: dict[str, CheckResult] = {}
    # a suite is validated frame by frame: that is how Great Expectations takes its data
    for suite, frame in dict.fromkeys((one.suite, one.frame) for one in everything):
        name = f"{suite}.{frame}"
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        expected = context.suites.add(gx.ExpectationSuite(name=name))
        for check in everything:
            if (check.suite, check.frame) == (suite, frame):
                expected.add_expectation(_expectation(check, answering[suite]))
        definition = gx.ValidationDefinition(name=name, data=batch, suite=expected)
        validation = context.validation_definitions.add(definition)
        for result in validation.run(batch_parameters={"dataframe": made[frame]}).results:
            assert result.expectation_config is not None
            check_name = str(result.expectation_config.meta["name"])
            check = next(one for one in everything if one.name == check_name)
            results[check_name] = _result(
                check, answering[suite], result.to_json_dict(), made[frame]
            )
    return [results[check.name] for check in everything]


def _expectation(check: Check, owner: str) -> Any:
    import great_expectations.expectations as gxe

    from lastgood.reports import expectations

    kind = getattr(expectations, check.expectation, None) or getattr(gxe, check.expectation)
    meta = {"name": check.name, "suite": check.suite, "owner": owner}
    return kind(**check.arguments, severity=check.severity, meta=meta)


def _result(
    check: Check, owner: str, result: Mapping[str, Any], frame: pd.DataFrame
) -> CheckResult:
    return CheckResult(
        suite=check.suite,
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
    if "column_list" in check.arguments:
        shown = [
            f"{place}: {_row_difference(value)}"
            for place, value in zip(places or ["a row"] * len(unexpected), unexpected, strict=False)
        ]
        return "; ".join(shown[:5])
    column = check.arguments.get("column", "")
    shown = [
        f"{place}: {column or 'pair'} {value}" if place else f"{column} {value}"
        for place, value in zip(places or [""] * len(unexpected), unexpected, strict=False)
    ]
    return "; ".join(shown[:5]) or f"{details.get('unexpected_count', 0)} rows"


def _row_difference(row: Mapping[str, Any]) -> str:
    """By how many bytes all but the last column of a row are more or less than the last."""
    *parts, whole = row.values()
    if whole is None:
        return "the backend tells no total"
    return f"{sum(parts) - whole:+,} bytes against {whole:,}"


def _row(frame: pd.DataFrame, index: Any) -> str:
    """A row by its first column, and by its line where it has one."""
    position = index if isinstance(index, int) else next(iter(dict(index).values()))
    row = frame.loc[position]
    line = f" {row['line']}" if "line" in frame.columns else ""
    return f"{row.iloc[0]}{line}"
