"""How long inventories stay: complete ones as long as their store's settings say, the newest one
always, and what was begun and not completed for a day. What is deleted is counted, and recorded
once the store was asked again.

What lies where inventories are kept and no event of the catalog tells of, as after a rebuild, is
taken in as unusable, and stays as long as a complete one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories
from lastgood.catalog.reconciliation.inventories import InventoryRow
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogBehind, ForeignCatalog, Unavailable
from lastgood.flows import control_keys
from lastgood.flows.inventories.kept import Place
from lastgood.flows.inventories.settings import InventorySettings
from lastgood.rules.layout import INVENTORIES_PREFIX, kept_inventory
from lastgood.stores.base import Outcome, Prefix, Store, StoredObject, StoreError, UploadGone
from lastgood.stores.begun import begun_uploads

UNFINISHED_FOR = timedelta(days=1)
LOST = "nothing in this catalog tells of it"


@dataclass(frozen=True, slots=True)
class Dropped:
    """Inventories that were deleted: how many, their objects and bytes. `failed` says of each that
    could not be proven gone why; it stays due."""

    inventories: int = 0
    objects: int = 0
    size_bytes: int = 0
    failed: tuple[str, ...] = ()


def due(rows: list[InventoryRow], keep: timedelta, now: datetime) -> list[InventoryRow]:
    """Which of a store's inventories, newest first, are to be deleted at `now` (UTC)."""
    complete = [one for one in rows if one.state == "completed"]
    old = [one for one in complete[1:] if now - one.started_at > keep]
    given_up = [
        one
        for one in rows
        if one.state in ("started", "unusable")
        and now - one.started_at > (keep if one.facts.get("reason") == LOST else UNFINISHED_FOR)
    ]
    return [*old, *given_up]


def take_in_lost(catalog: Catalog, place: Store, store: str, *, actor: str) -> list[str]:
    """Record as unusable what lies in `place` of inventories of `store` of which the catalog knows
    nothing, or that they are deleted; answers their names. Nothing is taken in where another
    catalog may know of them, or where the store fails: the inventory that begins will say so."""
    try:
        there = _kept_in(place, store)
        with catalog.transaction() as tx:
            lost = sorted(there - {one.inventory for one in inventories.of_store(tx, store)})
        if lost:
            control_keys.guard_place(catalog, place)
    except (StoreError, Unavailable, CatalogBehind, ForeignCatalog):
        return []
    with catalog.transaction() as tx:
        for name in lost:
            inventories.record(
                tx, store, name, "unusable", place=place.name, facts={"reason": LOST}, actor=actor
            )
    return lost


def _kept_in(place: Store, store: str) -> set[str]:
    """The names of the inventories of `store` of which something is in `place`."""
    prefix = Prefix(f"{INVENTORIES_PREFIX}{store}/")
    listed = place.list(prefix, versions=place.profile.versioned)
    keys = [*(one.key for one in listed), *(one.key for one in begun_uploads(place, prefix))]
    named = (kept_inventory(key) for key in keys)
    return {one[1] for one in named if one is not None and one[0] == store}


def drop_old(
    catalog: Catalog, store_of: Callable[[str], Store], store: str, *, actor: str
) -> Dropped:
    """Delete the inventories of a store whose time is over. A store that fails is told in the
    answer: today's inventory is none the worse for it."""
    with catalog.transaction() as tx:
        settings = InventorySettings.of(projects.store(tx, store))
        rows = due(inventories.of_store(tx, store), settings.keep, history.now(tx))
    return drop(catalog, store_of, store, rows, actor=actor)


def drop(
    catalog: Catalog,
    store_of: Callable[[str], Store],
    store: str,
    rows: Sequence[InventoryRow],
    *,
    actor: str,
) -> Dropped:
    """Delete these inventories of a store, each as far as the store that it lies in answers."""
    dropped = Dropped()
    for row in rows:
        try:
            place = store_of(row.place)
            control_keys.guard_place(catalog, place)
            gone = _drop(catalog, Place(place, store, row.inventory), actor)
        except (StoreError, Unavailable, CatalogBehind, ForeignCatalog) as error:
            reason = f"inventory {row.inventory} of {store}: {error}"
            dropped = replace(dropped, failed=(*dropped.failed, reason))
            continue
        if gone is not None:
            dropped = replace(
                dropped,
                inventories=dropped.inventories + 1,
                objects=dropped.objects + gone[0],
                size_bytes=dropped.size_bytes + gone[1],
            )
    return dropped


def _drop(catalog: Catalog, place: Place, actor: str) -> tuple[int, int] | None:
    """(objects, bytes) that were deleted; None if another process did it meanwhile."""
    with catalog.transaction() as lock:
        locks.carrying_out(lock, place.prefix)
        if inventories.get(lock, place.store, place.inventory).state == "deleted":
            return None
        objects, size_bytes = _delete(place)
        inventories.record(
            lock,
            place.store,
            place.inventory,
            "deleted",
            place=place.place.name,
            facts={"objects": objects, "bytes": size_bytes},
            actor=actor,
        )
    return objects, size_bytes


def _delete(place: Place) -> tuple[int, int]:
    """Delete the files of an inventory and what its tasks had begun to send; answers how many
    objects and bytes that was."""
    store = place.place
    objects, size_bytes = _abort_begun(place)
    found = _listed(place)
    for outcome in store.delete(found):
        if outcome.outcome is Outcome.REFUSED:
            reason = f"it is not deleted: {outcome.reason}"
            raise StoreError(store=store.name, key=outcome.key, reason=reason)
    left = len(_listed(place)) + len(begun_uploads(store, place.prefix))
    if left:
        raise StoreError(store=store.name, key=place.prefix, reason=f"{left} files are left")
    return objects + len(found), size_bytes + sum(one.size_bytes for one in found)


def _listed(place: Place) -> list[StoredObject]:
    store = place.place
    listing = store.list(place.prefix, versions=store.profile.versioned)
    found = list(listing)
    if not listing.complete:
        raise StoreError(store=store.name, key=place.prefix, reason="its listing did not finish")
    return found


def _abort_begun(place: Place) -> tuple[int, int]:
    """A task that was killed while it sent a file leaves an upload that only its listing shows."""
    store, size_bytes = place.place, 0
    begun = begun_uploads(store, place.prefix)
    for one in begun:
        with suppress(UploadGone):
            size_bytes += sum(part.size_bytes for part in store.parts(one.key, one.upload_id))
        store.abort_upload(one.key, one.upload_id)
    return len(begun), size_bytes
