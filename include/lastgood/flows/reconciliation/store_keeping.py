"""Who answers for what is a store's and no project's: its totals, and keys that nobody owns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from lastgood.catalog.db import Transaction
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project
from lastgood.rules.finding_owners import Owners


@dataclass(frozen=True, slots=True)
class StoreKeeping:
    """Who answers for a store, and for findings of no project, and how long they have for one."""

    owner: str
    finding_owners: Owners
    finding_deadline: timedelta


def of_store(tx: Transaction, store: str, carrier: Project) -> StoreKeeping:
    """As the store's configuration says (`owner`), else as the project does that stands for it, the
    same one whoever is reconciled; `carrier` where no project uses the store any more. The rules
    and the deadline are always that project's. Raises NotFound for an unknown store."""
    named = projects.store(tx, store).config.get("owner")
    keeper = projects.keeper(tx, store) or carrier
    owners = keeper.finding_owners
    return StoreKeeping(
        owner=str(named or keeper.owner),
        finding_owners=replace(owners, otherwise=str(named)) if named else owners,
        finding_deadline=keeper.finding_deadline,
    )
