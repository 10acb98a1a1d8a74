"""What the end of a hold would leave to the policy: asked before it is released.

Receipts may be missing still, and then nothing leaves. So it is answered as if every copy had
passed its validation: what a later mark will name once they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.keeping import holds
from lastgood.catalog.retention import stage_history
from lastgood.catalog.retention.stage_history import StageHistory
from lastgood.flows.policies import policy_of
from lastgood.rules import retention
from lastgood.rules.decision import StageDecision
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Candidate, Level, ReceiptVerdict


@dataclass(frozen=True, slots=True)
class Leaving:
    """A checkpoint that only the hold keeps. `now`: with the receipts that there are, too."""

    checkpoint: str
    role: str
    bytes: int
    now: bool


def preview(catalog: Catalog, project: str, hold_id: UUID) -> list[Leaving]:
    """The checkpoints of a project that a mark would name as candidates once the hold is released
    and every copy has passed, by stage and the oldest first. Raises NotFound."""
    with catalog.transaction() as tx:
        holds.get(tx, project, hold_id)
        return list(_leaving(tx, project, hold_id))


def _leaving(tx: Transaction, project: str, hold_id: UUID) -> Iterator[Leaving]:
    policy = policy_of(tx, project)
    now = history.project_now(tx, project)
    for stage in stage_history.of_project(tx, project, now):
        rules = policy.for_stage(stage.stage.workload, stage.stage.stage)
        held = {
            position: [one for one in names if one != str(hold_id)]
            for position, names in stage.facts.holds.items()
        }
        free = replace(
            stage, facts=replace(stage.facts, holds={at: by for at, by in held.items() if by})
        )
        before = retention.decide(stage.history, rules, now, stage.facts).candidates
        at_once = retention.decide(free.history, rules, now, free.facts).candidates
        for position, leaving in _validated(free, rules, now).candidates.items():
            if position in before:
                continue
            yield Leaving(
                f"{stage.stage}/{position[0]}.{position[1]}",
                leaving.role_name,
                sum(size for _, size in stage.copies[position]),
                position in at_once,
            )


def _validated(stage: StageHistory, rules: Policy, now: datetime) -> StageDecision:
    passed = [_passed(one) for one in stage.history]
    return retention.decide(passed, rules, now, stage.facts)


def _passed(one: Candidate) -> Candidate:
    if one.failed:
        return one
    return replace(one, receipts=dict.fromkeys(Level, ReceiptVerdict.PASS))
