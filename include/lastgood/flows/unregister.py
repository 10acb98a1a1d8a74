"""The end of a store: unregistered once nothing needs it, or given up with what was lost in it.

Its row, and all history that names it, stays. Nobody lists, probes, checks or reconciles it, and no
guard asks it. What lies in it that is not lastgood's stays there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastgood.catalog import control as identities
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity, capacity_states
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, copies
from lastgood.catalog.reconciliation import findings, inventories
from lastgood.catalog.reconciliation.inventories import InventoryRow
from lastgood.catalog.settings import policy_versions, projects, store_registrations
from lastgood.errors import CatalogBehind, Conflict, LastgoodError, Unavailable
from lastgood.flows import control_keys, lost_store
from lastgood.flows.capacity import pressure
from lastgood.flows.inventories.retention import UNFINISHED_FOR, drop
from lastgood.flows.lost_store import Loss
from lastgood.flows.policies import policy_of
from lastgood.rules.capacity import CapacityState
from lastgood.stores.base import Store, StoreError
from lastgood.stores.open import Stores


class StoreInUse(Conflict):
    """Store {store} stays registered, for it is needed: {reasons}."""

    type = "store-in-use"


@dataclass(frozen=True, slots=True)
class Gone:
    """A store that was unregistered at `at` (UTC), and how many of its inventories were deleted.
    `left` says of what lastgood wrote there, and could not take back, why."""

    store: str
    at: datetime
    inventories: int
    left: tuple[str, ...]


class StoreHeld(Conflict):
    """Store {store} is not given up as lost: {reason}."""

    type = "store-held"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A store that was given up as lost at `at` (UTC; None: a dry run, nothing was changed). `seen`
    is what it showed just before; `lost_before` are the copies that were recorded as lost with it
    already, such as by a try that did not come to its end."""

    store: str
    at: datetime | None
    seen: str
    loss: Loss
    lost_before: int
    left: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What the API and the command line tell of it."""
        return {
            "store": self.store,
            "at": self.at,
            "seen": self.seen,
            "copies": self.loss.copies,
            "bytes": self.loss.size_bytes,
            "lost_before": self.lost_before,
            "attempts": self.loss.attempts,
            "uploads": self.loss.uploads,
            "stages": self.loss.stages,
            "left": self.left,
        }


def unregister(catalog: Catalog, stores: Stores, name: str, *, because: str, actor: str) -> Gone:
    """Unregister a store; its inventories, its claim and its other control keys go, if it answers.

    Raises NotFound, StoreInUse while something needs it, CatalogBehind for a catalog that may not
    know of it, and StoreError where an inventory of it that lies elsewhere cannot be deleted.
    """
    with catalog.transaction() as tx:
        kept = _inventories_of(tx, name)
        _require_unneeded(tx, name)
    _require_current(catalog, stores)
    store, left = _opened(stores, name)
    dropped = drop(
        catalog, stores.__getitem__, name, [one for one in kept if one.place != name], actor=actor
    )
    for reason in dropped.failed:
        raise StoreError(store=name, key="", reason=f"it stays registered: {reason}")
    here = drop(
        catalog, stores.__getitem__, name, [one for one in kept if one.place == name], actor=actor
    )
    left += here.failed
    with catalog.transaction() as tx:
        _lock(tx, name)
        _require_unneeded(tx, name)
        at = store_registrations.unregister(tx, name, because=because, actor=actor)
        _end_pressure(tx, name, actor)
        findings.close_all(tx, name, reason="its store was unregistered", actor=actor, at=at)
    if store is not None:
        left += _taken_back(catalog, store)
    return Gone(name, at, dropped.inventories + here.inventories, left)


def give_up(
    catalog: Catalog,
    stores: Stores,
    name: str,
    *,
    because: str,
    actor: str,
    dry_run: bool = False,
) -> GivenUp:
    """Unregister a store that died with what lay in it: its copies are recorded as lost, attempts
    and uploads in it are ended, and each pointer goes to the newest checkpoint that is left.

    Raises NotFound, StoreInUse while something is configured to write to it, StoreHeld if it shows
    that it is there and holds one of its copies, CatalogBehind, and StoreError where another store
    of a project cannot be told of it; that is repeated by giving it up again.
    """
    with catalog.transaction() as tx:
        _require_unused(tx, name)
    _require_current(catalog, stores)
    found = lost_store.look(catalog, stores, name)
    if found.kept is not None:
        raise StoreHeld(store=name, reason=found.kept)
    reason = f"store {name} was given up as lost: {because}"
    loss = lost_store.lose(catalog, name, actor=actor, reason=reason, dry_run=dry_run)
    with catalog.transaction() as tx:
        lost = copies.lost_in_store(tx, name)
    if dry_run:
        return GivenUp(name, None, found.words, loss, lost)
    before = lost - loss.copies
    lost_store.publish(catalog, stores, name)
    elsewhere = [one for one in _known_inventories(catalog, name) if one.place != name]
    for failed in drop(catalog, stores.__getitem__, name, elsewhere, actor=actor).failed:
        raise StoreError(store=name, key="", reason=f"it stays registered: {failed}")
    with catalog.transaction() as tx:
        _lock(tx, name)
        _require_unused(tx, name, *store_registrations.contents(tx, name))
        attempts.nothing_to_finish(tx, name)
        for one in inventories.lying_in(tx, name):
            facts = {"objects": 0, "bytes": 0, "reason": reason}
            inventories.record(
                tx, one.store, one.inventory, "deleted", place=name, facts=facts, actor=actor
            )
        at = store_registrations.unregister(tx, name, because=because, actor=actor, lost=True)
        _end_pressure(tx, name, actor)
        findings.close_all(tx, name, reason="its store was given up as lost", actor=actor, at=at)
    if found.store is None:
        return GivenUp(name, at, found.words, loss, before)
    return GivenUp(name, at, found.words, loss, before, _taken_back(catalog, found.store))


def _lock(tx: Transaction, name: str) -> None:
    for project in capacity.sharing(tx, name):
        locks.project_shared(tx, project)
    locks.store_capacity(tx, name)
    locks.store(tx, name)


def _end_pressure(tx: Transaction, name: str, actor: str) -> None:
    """Nobody looks at a project's room there any more, so that it stands open for good."""
    for project in capacity.sharing(tx, name):
        last = capacity_states.newest(tx, project, name)
        if last is not None and last.state != CapacityState.OPEN:
            policy = policy_of(tx, project).capacity
            used = capacity.use(tx, project, name)
            cause = f"store {name} was unregistered"
            pressure.note(tx, project, name, policy, used, cause=cause, actor=actor)


def _known_inventories(catalog: Catalog, name: str) -> list[InventoryRow]:
    with catalog.transaction() as tx:
        return _inventories_of(tx, name)


def _require_current(catalog: Catalog, stores: Stores) -> None:
    """A catalog that is behind may not know of what lies in a store."""
    for refusal in control_keys.refusals(catalog, stores):
        if isinstance(refusal, CatalogBehind):
            raise refusal


def _require_unused(tx: Transaction, name: str, *also: str) -> None:
    """Nothing is configured to write to it, whatever lies in it."""
    projects.store(tx, name)
    reasons = [*store_registrations.users(tx, name), *_spilling(tx, name), *also]
    if reasons:
        raise StoreInUse(store=name, reasons="; ".join(reasons))


def _require_unneeded(tx: Transaction, name: str) -> None:
    projects.store(tx, name)
    reasons = [
        *store_registrations.dependents(tx, name),
        *_spilling(tx, name),
        *(
            f"its inventory {one.inventory} is being taken"
            for one in inventories.of_store(tx, name)
            if one.state == "started" and history.now(tx) - one.started_at < UNFINISHED_FOR
        ),
    ]
    if reasons:
        lies = "; what lay in one that died for good `--lost` gives up"
        hint = lies if store_registrations.contents(tx, name) else ""
        raise StoreInUse(store=name, reasons="; ".join(reasons) + hint)


def _spilling(tx: Transaction, name: str) -> Iterator[str]:
    """The policies in force or to come that send to the store what finds no room elsewhere."""
    for project in projects.names(tx):
        now = history.project_now(tx, project)
        taken = policy_versions.times_in_force(tx, project)
        past = [one for one in taken if one.effective_from and one.effective_from <= now]
        for one in (*past[-1:], *taken[len(past) :]):
            if one.document.get("capacity", {}).get("spill_store") == name:
                yield f"policy {one.name} of {project} spills to it (capacity.spill_store)"


def _inventories_of(tx: Transaction, name: str) -> list[InventoryRow]:
    projects.store(tx, name)
    return inventories.of_store(tx, name)


def _opened(stores: Stores, name: str) -> tuple[Store | None, tuple[str, ...]]:
    try:
        return stores[name], ()
    except (StoreError, Unavailable) as error:
        return None, (f"its control keys, for it does not answer: {error}",)


def _taken_back(catalog: Catalog, store: Store) -> tuple[str, ...]:
    """Why control keys are left in a store. The claim goes first: without it every catalog that
    still believes in the store, such as an older dump, refuses to work."""
    with catalog.transaction() as tx:
        ours = str(identities.identity(tx).catalog_id)
    try:
        owner = control_keys.owner_of(store)
        if owner == ours:
            control_keys.disown(store)
            return ()
    except LastgoodError as error:
        return (f"its control keys: {error}",)
    return () if owner is None else (f"its control keys, which are those of catalog {owner}",)
