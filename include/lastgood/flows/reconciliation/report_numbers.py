"""What a report shows beside the byte equation: roles, what was freed, growth, ages, objectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.reconciliation import quality_results, report_facts
from lastgood.catalog.reconciliation.quality_results import PastResult
from lastgood.catalog.reconciliation.report_facts import (
    Freed,
    OldestAttempt,
    OldestUpload,
    TrendPoint,
)
from lastgood.catalog.retention import copy_locks, stage_history
from lastgood.catalog.retention.copy_locks import LockedCopy
from lastgood.catalog.validation import recovery
from lastgood.catalog.validation.recovery import Recovery
from lastgood.catalog.views import measurements, operator_views
from lastgood.catalog.views.measurements import StageAge
from lastgood.catalog.views.operator_views import StageView
from lastgood.flows.policies import policy_of
from lastgood.rules import retention
from lastgood.rules.decision import Reason, ReasonKind
from lastgood.rules.policy import Policy

DAYS = 30
"""Of the trend, and of the history of checks."""
NOTHING = "nothing"
"""The role of what no reason keeps."""


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """Copies of a store that a role, or another reason, keeps; (number, bytes) by state. A copy
    with several roles is in each."""

    role: str
    is_role: bool
    present: tuple[int, int] = (0, 0)
    quarantined: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Read in one transaction; `policy` is the one in force."""

    policy: Policy
    roles: Sequence[RoleTotal] = ()
    freed: Sequence[Freed] = ()
    trend: Sequence[TrendPoint] = ()
    oldest_attempt: OldestAttempt | None = None
    oldest_upload: OldestUpload | None = None
    locked: Sequence[LockedCopy] = ()
    recovery: Sequence[Recovery] = ()
    stages: Sequence[StageView] = ()
    stage_ages: Sequence[StageAge] = ()
    past_checks: Mapping[str, Sequence[PastResult]] = field(default_factory=dict)


def gather(tx: Transaction, project: str, store: str, window: tuple[datetime, datetime]) -> Numbers:
    """All of it for one project in one store. Raises CatalogSetup without a policy."""
    policy = policy_of(tx, project)
    return Numbers(
        policy=policy,
        roles=role_totals(tx, project, store, policy),
        freed=report_facts.freed(tx, project, store, window),
        trend=report_facts.trend(tx, project, store, before=window[1], days=DAYS - 1),
        oldest_attempt=report_facts.oldest_attempt(tx, project, store),
        oldest_upload=report_facts.oldest_upload(tx, project, store),
        locked=copy_locks.standing(tx, project, store),
        recovery=recovery.measured(tx, project),
        stages=operator_views.stages(tx, project),
        stage_ages=[one for one in measurements.stage_ages(tx) if one.project == project],
        past_checks=quality_results.past(tx, project, store, reports=DAYS - 1),
    )


def role_totals(tx: Transaction, project: str, store: str, policy: Policy) -> list[RoleTotal]:
    """What keeps each copy of a project that a store still has: the decision of now, over its whole
    history. The policy's roles come first, in its order."""
    here = report_facts.existing_copies(tx, project, store)
    sums: dict[tuple[str, bool], Counter[str]] = {}
    at = history.project_now(tx, project)
    for stage in stage_history.of_project(tx, project, at):
        rules = policy.for_stage(stage.stage.workload, stage.stage.stage)
        decision = retention.decide(stage.history, rules, at, stage.facts)
        for position, copies in stage.copies.items():
            names = {_named(reason) for reason in decision.kept.get(position, ())}
            names = names or {(NOTHING, False)}
            for copy_id, size_bytes in copies:
                state = here.get(copy_id)
                if state is None:
                    continue
                state = "present" if state == "present" else "quarantined"
                for name in names:
                    counted = sums.setdefault(name, Counter())
                    counted[state] += 1
                    counted[f"{state} bytes"] += size_bytes
    return _in_order(sums, policy)


def _named(reason: Reason) -> tuple[str, bool]:
    is_role = reason.kind is ReasonKind.ROLE
    return (reason.name if is_role else reason.kind.value), is_role


def _in_order(sums: Mapping[tuple[str, bool], Counter[str]], policy: Policy) -> list[RoleTotal]:
    order = {role.name: number for number, role in enumerate(policy.roles)}
    return [
        RoleTotal(
            name,
            is_role,
            (found["present"], found["present bytes"]),
            (found["quarantined"], found["quarantined bytes"]),
        )
        for (name, is_role), found in sorted(
            sums.items(), key=lambda one: (not one[0][1], order.get(one[0][0], 99), one[0][0])
        )
    ]
