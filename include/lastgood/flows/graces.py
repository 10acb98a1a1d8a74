"""How long copies wait in quarantine: no policy that takes force later shortens a grace that runs.

Whoever looks at the quarantine is told from when on a copy may be deleted, and must be able to
trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.settings import policies, policy_versions
from lastgood.flows.policies import policy_of
from lastgood.rules.policy import Policy


@dataclass(frozen=True, slots=True)
class Graces:
    """The graces of one project's copies: of the policy in force and the one that a copy went into
    quarantine under, the longer counts."""

    in_force: Policy
    hidden_under: Mapping[int, Policy]  # by id of the copy

    def ends(self, copy: Copy, since: datetime) -> datetime:
        """The instant from which on a copy that is in quarantine since then may be deleted."""
        former = self.hidden_under.get(copy.copy_id, self.in_force)
        return since + max(_grace(policy, copy) for policy in (self.in_force, former))


def of_project(tx: Transaction, project: str) -> Graces:
    """The graces as they are now. Raises CatalogSetup if the project has no policy."""
    under = copies.hidden_under(tx, project)
    versions = {(one.policy, one.version): one for one in policy_versions.of_project(tx, project)}
    read = {name: policies.parsed(versions[name]) for name in set(under.values())}
    hidden_under = {copy_id: read[name] for copy_id, name in under.items()}
    return Graces(policy_of(tx, project), hidden_under)


def _grace(policy: Policy, copy: Copy) -> timedelta:
    name = copy.checkpoint
    return policy.for_stage(name.workload, name.stage).quarantine.grace
