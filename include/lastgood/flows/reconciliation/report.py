"""A reconciliation report as a document: what its JSON file holds and its HTML shows.

Sizes are bytes, instants RFC 3339 in UTC. Numbers stand here once: whoever shows one names its
path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lastgood.catalog.reconciliation.findings import Finding, Sighting
from lastgood.catalog.reconciliation.reports import STATES
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.flows.inventories.accounts import Account
from lastgood.flows.inventories.causes import causes_json
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.inventories.tally import Difference, Place
from lastgood.flows.reconciliation import report_sections as sections
from lastgood.flows.reconciliation.at_rest import AtRest
from lastgood.flows.reconciliation.damage import Asked
from lastgood.flows.reconciliation.report_numbers import Numbers
from lastgood.reports.quality import CheckResult, Frames, critical_of
from lastgood.rules.byte_equation import Line
from lastgood.rules.capacity import Standing

FORMAT_VERSION = 2
HEAD = ("format_version", "report", "verdict")
"""What a report's JSON begins with; all else follows by name."""
_STATE_LINES = {
    "committed": Line.COMMITTED,
    "validating": Line.SEALED,
    "failed": Line.FAILED_EVIDENCE,
    "quarantined": Line.QUARANTINED,
    "incomplete": Line.INCOMPLETE,
}
_ABSENT = (Cause.MISSING, Cause.SIZE_DIFFERS)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that one report is made of."""

    project: Project
    store: StoreRow
    window: tuple[datetime, datetime]
    at: datetime
    taken: Inventory
    counts: Mapping[str, tuple[int, int]]
    activity: Mapping[str, int]
    lost: Mapping[str, tuple[int, int]]  # copies and bytes, by the store that was given up
    standing: Standing
    findings: Sequence[Finding]
    numbers: Numbers
    store_ages: Mapping[str, timedelta | None]  # since each was listed whole; None: it never was
    at_rest: AtRest
    asked: Asked

    @property
    def account(self) -> Account:
        return self.taken.by_project[self.project.name]


def sightings(taken: Inventory, project: str) -> list[Sighting]:
    """What an inventory saw unexplained of a project, for its findings."""
    return [
        Sighting(
            cause=place.cause.value,
            key_range=_storable(place.key_range),
            size_bytes=difference.amount.size_bytes,
            objects=difference.amount.objects,
            samples=_samples(difference),
        )
        for place, difference in _places(taken, project).items()
    ]


def _samples(difference: Difference) -> list[dict[str, Any]]:
    return [
        {"key": _storable(key), "bytes": size_bytes, "detail": _storable(detail)}
        for key, size_bytes, detail in difference.samples
    ]


def _storable(text: str) -> str:
    """Postgres holds no NUL and no lone surrogate; a store's keys might."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def build(facts: Facts, checks: Sequence[CheckResult]) -> dict[str, Any]:
    """The document."""
    trend = _trend(facts)
    return {
        "format_version": FORMAT_VERSION,
        "project": facts.project.name,
        "owner": facts.project.owner,
        "store": {
            "name": facts.store.name,
            "kind": facts.store.kind,
            "tier": facts.store.tier,
            "failure_domain": facts.store.failure_domain,
        },
        "window": {"start": _instant(facts.window[0]), "end": _instant(facts.window[1])},
        "recorded_at": _instant(facts.at),
        "passed": not critical_of(checks),
        "verdict": sections.verdict(checks, facts.numbers),
        "listing": _listing(facts.taken),
        "counts": {state: facts.counts[state][0] for state in STATES},
        "bytes": {state: _line_bytes(facts.account, _STATE_LINES[state]) for state in STATES},
        "catalog_bytes": {state: facts.counts[state][1] for state in STATES},
        "equation": _equation(facts.account),
        "store_equation": _equation(facts.taken.whole),
        "accounting": [one.to_json() for one in facts.taken.compared],
        "accounting_unreadable": [asdict(one) for one in facts.taken.unreadable],
        "causes": causes_json(facts.taken.causes),
        "differences": _differences(facts.taken, facts.project.name),
        "shared_differences": _differences(facts.taken, SHARED),
        "damaged": {"asked": len(facts.asked.copy_ids), "left": facts.asked.left},
        "capacity": _capacity(facts),
        "roles": sections.roles(facts.numbers),
        "freed": sections.freed(facts.numbers),
        "lost": [
            {"store": store, "copies": copies, "bytes": size_bytes}
            for store, (copies, size_bytes) in facts.lost.items()
        ],
        "growth": sections.growth(trend, facts.standing),
        "locked": sections.locked(facts.numbers),
        "encryption": facts.at_rest.to_json(),
        "oldest_incomplete": sections.oldest_incomplete(facts.numbers, facts.at),
        "objectives": sections.objectives(facts.numbers),
        "activity": dict(facts.activity),
        "findings": [finding_json(one, facts.at) for one in facts.findings],
        "findings_by_owner": sections.by_owner(facts.findings, facts.at),
        "trend": trend,
        "checks": sections.checks(checks, facts.numbers, facts.at),
    }


def in_order(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it is read: what failed first stands first, all else by name."""
    head = {name: document[name] for name in HEAD if name in document}
    return head | {name: document[name] for name in sorted(document) if name not in head}


def frames(facts: Facts) -> Frames:
    """The totals that the quality checks look at."""
    scope = f"{facts.project.name} in {facts.store.name}"
    mine = [one for one in facts.findings if one.project == facts.project.name]
    return Frames(
        equation=[_equation_row(scope, facts.account)],
        parts=[
            {
                "line": line.value,
                "part_bytes": _line_bytes(facts.account, line),
                "whole_bytes": _line_bytes(facts.taken.whole, line),
            }
            for line in Line
        ],
        accounts=[_check_row(facts, scope)],
        lines=[
            {"scope": scope, "line": line.value, "bytes": total.size_bytes}
            for line, total in facts.account.equation.totals.items()
        ],
        stores=[
            {"store": store, "age_seconds": None if age is None else age.total_seconds()}
            for store, age in facts.store_ages.items()
        ],
        findings=[
            {
                "finding": f"{one.cause} {one.key_range}",
                "owner": one.owner or None,
                "deadline": None if one.deadline is None else one.deadline.isoformat(),
                "overdue": one.is_overdue(facts.at),
            }
            for one in mine
        ],
        store=[_store_row(facts)],
    )


def _equation_row(scope: str, account: Account) -> dict[str, Any]:
    return {
        "scope": scope,
        **{line.value: _line_bytes(account, line) for line in Line},
        "accounted_bytes": account.equation.backend_bytes,
    }


def _check_row(facts: Facts, scope: str) -> dict[str, Any]:
    places = _places(facts.taken, facts.project.name)
    return {
        "scope": scope,
        "unexplained_bytes": _line_bytes(facts.account, Line.UNEXPLAINED),
        "findings_bytes": _in_findings(places, facts.account),
        "duplicate_keys": _objects(places, Cause.DUPLICATE),
        "absent_objects": sum(_objects(places, cause) for cause in _ABSENT),
        "change": _change(facts),
        "encryption": facts.at_rest.told,
    }


def _store_row(facts: Facts) -> dict[str, Any]:
    """The totals of everybody; what is damaged of a project fails that project's checks."""
    whole = facts.taken.whole
    return {
        **_equation_row(f"all of {facts.store.name}", whole),
        "least_bytes": min(_line_bytes(whole, line) for line in Line),
        "findings_bytes": _in_findings(facts.taken.differences, whole),
        "duplicate_keys": _objects(_places(facts.taken, SHARED), Cause.DUPLICATE),
    }


def _places(taken: Inventory, project: str) -> dict[Place, Difference]:
    return {place: one for place, one in taken.differences.items() if place.project == project}


def _in_findings(places: Mapping[Place, Difference], account: Account) -> int:
    """The unexplained bytes that a place or the accounting's own gap names."""
    return sum(one.in_store.size_bytes for one in places.values()) + account.unlisted_bytes


def _objects(places: Mapping[Place, Difference], cause: Cause) -> int:
    return sum(one.amount.objects for place, one in places.items() if place.cause is cause)


def _change(facts: Facts) -> float | None:
    """The backend's bytes against those of the last day before, as a share of the latter."""
    if not facts.numbers.trend:
        return None
    before = facts.numbers.trend[-1].backend_bytes
    return None if before == 0 else (facts.account.backend_bytes - before) / before


def _listing(taken: Inventory) -> dict[str, Any]:
    return {
        "complete": True,
        "inventory": taken.inventory,
        "source": taken.source,
        "started_at": _instant(taken.started_at),
        "finished_at": _instant(taken.finished_at),
        "objects": taken.listed.objects,
        "bytes": taken.listed.size_bytes,
        "uploads": taken.uploads.objects,
        "upload_bytes": taken.uploads.size_bytes,
        "passes": taken.passes,
        "in_flight_objects": taken.in_flight.objects,
        "in_flight_bytes": taken.in_flight.size_bytes,
    }


def _line_bytes(account: Account, line: Line) -> int:
    return account.equation.totals[line].size_bytes


def _equation(account: Account) -> dict[str, Any]:
    equation = account.equation
    return {
        "backend_bytes": account.backend_bytes,
        "how": account.how,
        "allocated_bytes": account.allocated_bytes,
        "adjustments": dict(account.adjustments),
        "lines": {line.value: total.size_bytes for line, total in equation.totals.items()},
        "keys": {line.value: total.keys for line, total in equation.totals.items()},
        "sum_bytes": equation.sum_bytes,
        "unlisted_bytes": account.unlisted_bytes,
        "difference_bytes": equation.difference_bytes,
        "closes": equation.closes(),
    }


def _differences(taken: Inventory, project: str) -> list[dict[str, Any]]:
    found = [
        {
            "cause": place.cause.value,
            "key_range": place.key_range,
            "objects": one.amount.objects,
            "bytes": one.amount.size_bytes,
            "in_store_bytes": one.in_store.size_bytes,
            "samples": _samples(one),
        }
        for place, one in _places(taken, project).items()
    ]
    return sorted(found, key=lambda one: -int(str(one["bytes"])))


def _capacity(facts: Facts) -> dict[str, Any]:
    """The measure that is nearer to its watermarks, and the project's part of the store."""
    return facts.standing.to_json()


def _trend(facts: Facts) -> list[dict[str, Any]]:
    return sections.trend(
        facts.numbers,
        facts.window[1],
        {line.value: _line_bytes(facts.account, line) for line in Line},
        facts.account.backend_bytes,
        facts.taken.whole.backend_bytes,
    )


def finding_json(finding: Finding, at: datetime) -> dict[str, Any]:
    """A finding as reports and the API show it; `at` decides whether it is overdue."""
    return {
        "finding": str(finding.finding_id),
        "project": finding.project,
        "store": finding.store,
        "cause": finding.cause,
        "key_range": finding.key_range,
        "state": finding.state,
        "owner": finding.owner,
        "deadline": _instant(finding.deadline),
        "overdue": finding.is_overdue(at),
        "bytes": finding.size_bytes,
        "objects": finding.objects,
        "opened_at": _instant(finding.opened_at),
        "seen_at": _instant(finding.seen_at),
        "note": finding.note,
        "samples": list(finding.samples),
    }


def _instant(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
