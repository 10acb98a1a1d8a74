"""The sections of a report's document that say more than the byte equation. Sizes are bytes,
instants RFC 3339 in UTC, lengths of time seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lastgood.catalog.reconciliation.findings import Finding
from lastgood.catalog.validation.recovery import Spread
from lastgood.catalog.views.operator_views import StageView
from lastgood.flows.reconciliation.report_numbers import Numbers
from lastgood.reports.quality import CheckResult, critical_of, failed_of, first_failed
from lastgood.rules.capacity import Standing
from lastgood.rules.forecast import Forecast, forecast
from lastgood.rules.policy import Policy
from lastgood.rules.quantities import instant_text

LOCKED_NAMED = 100
"""Of the copies that locks keep."""


def verdict(checks: Sequence[CheckResult], numbers: Numbers) -> dict[str, Any]:
    """Whether the project's checks passed, and what failed first: with its owner, and since when;
    beside it, what failed of the whole store's."""
    first = first_failed(checks)
    return {
        "passed": not critical_of(checks),
        "first_failed": None
        if first is None
        else {**first.to_json(), "failed_before": _failed_before(first, numbers)},
        "failed": [one.name for one in failed_of(checks)],
        "failed_of_store": [one.name for one in failed_of(checks, store=True)],
    }


def _failed_before(check: CheckResult, numbers: Numbers) -> int:
    """In how many reports before this one, without one between that passed, the check failed."""
    number = 0
    for past in reversed(numbers.past_checks.get(check.name, ())):
        if past.passed:
            break
        number += 1
    return number


def checks(results: Sequence[CheckResult], numbers: Numbers, at: datetime) -> list[dict[str, Any]]:
    """Every check with what it said in the last reports, this one last."""
    return [
        {
            **one.to_json(),
            "past": [
                *(
                    {"at": instant_text(past.recorded_at), "passed": past.passed}
                    for past in numbers.past_checks.get(one.name, ())
                ),
                {"at": instant_text(at), "passed": one.passed},
            ],
        }
        for one in results
    ]


def roles(numbers: Numbers) -> list[dict[str, Any]]:
    """What keeps the copies, by state. A copy with several roles is in each."""
    return [
        {
            "role": one.role,
            "is_role": one.is_role,
            "present": one.present[0],
            "present_bytes": one.present[1],
            "quarantined": one.quarantined[0],
            "quarantined_bytes": one.quarantined[1],
        }
        for one in numbers.roles
    ]


def freed(numbers: Numbers) -> dict[str, Any]:
    """What was proven gone in the window, and why it went."""
    return {
        "bytes": sum(one.bytes for one in numbers.freed),
        "deletions": sum(one.number for one in numbers.freed),
        "by_reason": [
            {"left": one.left, "why": one.why, "deletions": one.number, "bytes": one.bytes}
            for one in numbers.freed
        ],
    }


def trend(
    numbers: Numbers, at: datetime, now: Mapping[str, int], backend_bytes: int, store_bytes: int
) -> list[dict[str, Any]]:
    """One point for each day, the oldest first, this report last."""
    points = [
        {
            "at": instant_text(one.at),
            "backend_bytes": one.backend_bytes,
            "store_bytes": one.store_bytes,
            "lines": dict(one.lines),
        }
        for one in numbers.trend
    ]
    this = {
        "at": instant_text(at),
        "backend_bytes": backend_bytes,
        "store_bytes": store_bytes,
        "lines": dict(now),
    }
    return [*points, this]


def growth(points: Sequence[Mapping[str, Any]], standing: Standing) -> dict[str, Any]:
    """How fast what counts against the hard mark grows, and when it reaches it. Against a share of
    the store everybody's bytes count, against bytes the project's own."""
    of_store = standing.binding is standing.whole
    name = "store_bytes" if of_store else "backend_bytes"
    totals = [(datetime.fromisoformat(one["at"]), int(one[name])) for one in points]
    hard = standing.binding.limits.hard_bytes
    found: Forecast = forecast(totals, hard)
    return {
        "measure": "store" if of_store else "project",
        "days": found.days,
        "per_day_bytes": found.per_day_bytes,
        "hard_bytes": hard,
        "outlook": found.outlook.value,
        "hard_reached_on": None if found.day is None else found.day.isoformat(),
    }


def oldest_incomplete(numbers: Numbers, at: datetime) -> dict[str, Any]:
    """The oldest attempt that nobody continues, and the oldest pending upload."""
    attempt, upload = numbers.oldest_attempt, numbers.oldest_upload
    return {
        "attempt": None
        if attempt is None
        else {
            "attempt": str(attempt.attempt_id),
            "stage": f"{attempt.workload}/{attempt.stage}",
            "state": attempt.state,
            "declared_bytes": attempt.declared_bytes,
            "lease_ended_at": instant_text(attempt.lease_expires_at),
            "age_seconds": max(0, round((at - attempt.lease_expires_at).total_seconds())),
        },
        "upload": None
        if upload is None
        else {
            "key": _storable(upload.key),
            "owner": upload.owner,
            "first_seen_at": instant_text(upload.first_seen_at),
            "age_seconds": max(0, round((at - upload.first_seen_at).total_seconds())),
            "part_bytes": upload.part_bytes,
        },
    }


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def locked(numbers: Numbers) -> dict[str, Any]:
    """What a retention or a legal hold of the store keeps, or may keep: the bytes of the locked
    versions, and the first copies, those first whose lock ends last or nobody knows when."""
    ends = [one.look.ends_at for one in numbers.locked if one.look.ends_at is not None]
    return {
        "copies": len(numbers.locked),
        "versions": sum(one.look.versions for one in numbers.locked),
        "bytes": sum(one.look.size_bytes for one in numbers.locked),
        "next_end": min(map(instant_text, ends), default=None),
        "first": [
            {
                "checkpoint": str(one.checkpoint),
                "state": one.state,
                "versions": one.look.versions,
                "bytes": one.look.size_bytes,
                "until": None if one.look.ends_at is None else instant_text(one.look.ends_at),
                "reason": one.look.reason,
                "seen_at": instant_text(one.look.recorded_at),
            }
            for one in numbers.locked[:LOCKED_NAMED]
        ],
    }


def objectives(numbers: Numbers) -> list[dict[str, Any]]:
    """What was measured of each class against the strictest objectives that one of its stages
    has, and every stage against its own."""
    by_class: dict[str, list[StageView]] = defaultdict(list)
    for stage in numbers.stages:
        by_class[stage.workload_class].append(stage)
    measured = {one.workload_class: one for one in numbers.recovery}
    found = []
    for name in sorted({*by_class, *measured}):
        aims = [
            numbers.policy.for_stage(one.workload, one.stage).objectives for one in by_class[name]
        ] or [numbers.policy.objectives]
        rpo = min(aim.rpo for aim in aims).total_seconds()
        rto = min(aim.rto for aim in aims).total_seconds()
        recovery = measured.get(name)
        found.append(
            {
                "class": name,
                "rpo": _against(None if recovery is None else recovery.gaps, rpo),
                "rto": _against(None if recovery is None else recovery.restores, rto),
                "stages": [_stage(one, numbers) for one in by_class[name]],
            }
        )
    return found


def _against(spread: Spread | None, objective_seconds: float) -> dict[str, Any]:
    return {
        "objective_seconds": objective_seconds,
        "measured": 0 if spread is None else spread.number,
        "p50_seconds": None if spread is None else round(spread.p50, 3),
        "p95_seconds": None if spread is None else round(spread.p95, 3),
        "met": None if spread is None else spread.p95 <= objective_seconds,
    }


def _stage(stage: StageView, numbers: Numbers) -> dict[str, Any]:
    """Since its newest commit, where somebody writes it now: what a crash would lose."""
    policy: Policy = numbers.policy
    aim = policy.for_stage(stage.workload, stage.stage).objectives
    age = next(
        (
            one.seconds
            for one in numbers.stage_ages
            if (one.workload, one.stage) == (stage.workload, stage.stage)
        ),
        None,
    )
    override = policy.override_for(stage.workload, stage.stage)
    return {
        "stage": f"{stage.workload}/{stage.stage}",
        "overridden": override is not None,
        "rpo_seconds": aim.rpo.total_seconds(),
        "rto_seconds": aim.rto.total_seconds(),
        "exposed_seconds": None if age is None else round(age, 3),
        "met": None if age is None else age <= aim.rpo.total_seconds(),
    }


def by_owner(findings: Sequence[Finding], at: datetime) -> list[dict[str, Any]]:
    """How much each owner has to explain, whoever is overdue with most first."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for one in findings:
        found[one.owner].append(one)
    rows = [
        {
            "owner": owner,
            "findings": len(ones),
            "overdue": sum(one.is_overdue(at) for one in ones),
            "explained": sum(one.state == "explained" for one in ones),
            "bytes": sum(one.size_bytes for one in ones),
            "next_deadline": min(
                (instant_text(one.deadline) for one in ones if one.state == "open"), default=None
            ),
        }
        for owner, ones in found.items()
    ]
    return sorted(rows, key=lambda one: (-int(str(one["overdue"])), -int(str(one["bytes"]))))
