"""Close a finding before the next daily run: only an inventory that does not show it can.

The whole store is listed, and all of its findings are carried on with what that shows. Whoever asks
is never believed: a finding whose bytes are still unexplained stays, and the refusal names them.
"""

from __future__ import annotations

from uuid import UUID

from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.reconciliation import findings
from lastgood.catalog.reconciliation.findings import Finding
from lastgood.catalog.settings import projects
from lastgood.errors import Conflict
from lastgood.flows.inventories import by_name
from lastgood.flows.inventories.retention import drop_old
from lastgood.flows.inventories.taking import Progress
from lastgood.flows.reconciliation import reconcile
from lastgood.stores.open import Stores

_SHOWN = 5


class FindingStands(Conflict):
    """Finding {finding} stays: {objects} objects with {bytes} bytes in {place} are still
    unexplained ({cause}): {keys}. Remove them, or say what accounts for them with `lastgood
    findings explain`; it closes by itself once they are gone."""

    type = "finding-stands"


def close(
    catalog: Catalog,
    stores: Stores,
    finding_id: UUID,
    *,
    actor: str,
    progress: Progress = lambda phase, done: None,
) -> Finding:
    """Look at the store now, and close the finding if it shows nothing of it any more. Raises
    NotFound, Conflict for a closed one, FindingStands while its bytes are there, and StoreError if
    the store could not be listed whole."""
    with catalog.transaction() as tx:
        found = findings.get(tx, finding_id)
        if found.state == "closed":
            raise Conflict(reason=f"finding {finding_id} is closed already")
        project = _carrier(tx, found)
    kept = by_name.take(catalog, stores, found.store, accounts_for=[project], actor=actor)
    progress("listed", kept.objects)
    taken = by_name.read(catalog, stores, found.store, kept.inventory)
    with catalog.transaction() as tx:
        reconcile.carry_on(tx, project, taken, actor)
    drop_old(catalog, stores.__getitem__, found.store, actor=actor)
    with catalog.transaction() as tx:
        after = findings.get(tx, finding_id)
    if after.state != "closed":
        raise _stands(after)
    return after


def _carrier(tx: Transaction, found: Finding) -> str:
    """The project whose inventory carries a finding on: its own, also one that has left the store
    meanwhile; for what belongs to no project one that uses the store, else any."""
    names = projects.names(tx)
    if found.project in names:
        return found.project
    sharing = [name for name in names if found.store in projects.stores_of(tx, name)]
    if not (sharing or names):
        raise Conflict(reason=f"no project is configured that could list store {found.store}")
    return (sharing or names)[0]


def _stands(finding: Finding) -> FindingStands:
    keys = [str(one["key"]) for one in finding.samples[:_SHOWN]]
    more = finding.objects - len(keys)
    return FindingStands(
        finding=str(finding.finding_id),
        objects=finding.objects,
        bytes=finding.size_bytes,
        place=f"{finding.store}:{finding.key_range}",
        cause=finding.cause,
        keys=", ".join(keys) + (f" and {more} more" if keys and more > 0 else ""),
    )
