"""What changed between two reports of one project in one store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.errors import InvalidInput
from lastgood.rules.byte_equation import Line


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line of the project's equation, in bytes."""

    line: str
    before_bytes: int
    after_bytes: int

    @property
    def change_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that is only in one of the reports, or has other bytes or another owner."""

    finding: str
    cause: str
    key_range: str
    how: str  # opened | closed | changed
    owner: str
    before_bytes: int
    after_bytes: int
    before_owner: str


@dataclass(frozen=True, slots=True)
class CheckChange:
    """A check with another result; `before` None: the earlier report does not have it."""

    name: str
    owner: str
    before: bool | None
    after: bool | None
    observed: str


@dataclass(frozen=True, slots=True)
class ReportDiff:
    """From the report `before` to `after`. `lines` are all lines, the other two only changes."""

    before: int
    after: int
    project: str
    store: str
    lines: Sequence[LineChange]
    findings: Sequence[FindingChange]
    checks: Sequence[CheckChange]

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "after": self.after,
            "project": self.project,
            "store": self.store,
            "lines": [
                {
                    "line": one.line,
                    "before_bytes": one.before_bytes,
                    "after_bytes": one.after_bytes,
                    "change_bytes": one.change_bytes,
                }
                for one in self.lines
            ],
            "findings": [
                {name: getattr(one, name) for name in FindingChange.__slots__}
                for one in self.findings
            ],
            "checks": [
                {name: getattr(one, name) for name in CheckChange.__slots__} for one in self.checks
            ],
        }


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> ReportDiff:
    """Compare two documents. Raises InvalidInput for reports of different projects or stores."""
    places = [(one["project"], one["store"]["name"]) for one in (before, after)]
    if places[0] != places[1]:
        reason = (
            f"report {before['report']} is of {' in '.join(places[0])}, report {after['report']}"
            f" of {' in '.join(places[1])}: give two of one project in one store"
        )
        raise InvalidInput(where="reports", reason=reason)
    return ReportDiff(
        before["report"],
        after["report"],
        *places[0],
        lines=_lines(before["equation"]["lines"], after["equation"]["lines"]),
        findings=_findings(before["findings"], after["findings"]),
        checks=_checks(before["checks"], after["checks"]),
    )


def _lines(before: Mapping[str, int], after: Mapping[str, int]) -> list[LineChange]:
    return [
        LineChange(line.value, before.get(line.value, 0), after.get(line.value, 0)) for line in Line
    ]


def _findings(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[FindingChange]:
    then = {one["finding"]: one for one in before}
    now = {one["finding"]: one for one in after}
    found = []
    for name in [*now, *(name for name in then if name not in now)]:
        old, new = then.get(name), now.get(name)
        one = new or old
        assert one is not None
        if old and new and (old["bytes"], old["owner"]) == (new["bytes"], new["owner"]):
            continue
        found.append(
            FindingChange(
                finding=name,
                cause=one["cause"],
                key_range=one["key_range"],
                how="opened" if old is None else "closed" if new is None else "changed",
                owner=one["owner"],
                before_bytes=old["bytes"] if old else 0,
                after_bytes=new["bytes"] if new else 0,
                before_owner=old["owner"] if old else "",
            )
        )
    return found


def _checks(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[CheckChange]:
    then = {one["name"]: one for one in before}
    now = {one["name"]: one for one in after}
    found = []
    for name in [*now, *(name for name in then if name not in now)]:
        old, new = then.get(name), now.get(name)
        was, is_now = (None if one is None else bool(one["passed"]) for one in (old, new))
        if was != is_now:
            shown = new or old
            assert shown is not None
            found.append(CheckChange(name, shown["owner"], was, is_now, shown["observed"]))
    return found
