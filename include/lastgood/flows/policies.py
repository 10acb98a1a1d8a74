"""The policy in force: whole for what is decided for a project, and as it holds for one stage."""

from __future__ import annotations

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import stages
from lastgood.catalog.settings import policies, policy_versions
from lastgood.rules.policy import Policy


def policy_of(tx: Transaction, project: str) -> Policy:
    """The policy in force for a project now: for capacity, leases, retirement, a whole sweep. What
    may differ by stage is read from its `for_stage`. Raises CatalogSetup if there is none."""
    return policies.parsed(policy_versions.current(tx, project))


def rules_of(tx: Transaction, project: str, stage_id: int) -> Policy:
    """The rules in force for one stage now. Raises CatalogSetup, and NotFound for no such stage."""
    stage = stages.get(tx, project, stage_id)
    return policy_of(tx, project).for_stage(stage.workload, stage.stage)
