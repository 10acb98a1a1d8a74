"""How long inventories stay: complete ones as long as their store's settings say, the newest one
always, and what was begun and not completed for a day. What is deleted is counted, and recorded
once the store was asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lastgood.catalog import history, inventories, projects
from lastgood.catalog.db import Catalog
from lastgood.catalog.inventories import InventoryRow
from lastgood.flows.inventories.kept import Place
from lastgood.flows.inventories.settings import InventorySettings
from lastgood.stores.base import Outcome, Store, StoreError

UNFINISHED_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Inventories that were deleted: how many, their objects and bytes."""

    inventories: int = 0
    objects: int = 0
    size_bytes: int = 0


def due(rows: list[InventoryRow], keep: timedelta, now: datetime) -> list[InventoryRow]:
    """Which of a store's inventories, newest first, are to be deleted at `now` (UTC)."""
    complete = [one for one in rows if one.state == "completed"]
    old = [one for one in complete[1:] if now - one.started_at > keep]
    given_up = [
        one
        for one in rows
        if one.state in ("started", "unusable") and now - one.started_at > UNFINISHED_FOR
    ]
    return [*old, *given_up]


def drop_old(
    catalog: Catalog, store_of: Callable[[str], Store], store: str, *, actor: str
) -> Dropped:
    """Delete the inventories of a store whose time is over. Raises StoreError; what was not proven
    gone stays due."""
    with catalog.transaction() as tx:
        settings = InventorySettings.of(projects.store(tx, store))
        rows = due(inventories.of_store(tx, store), settings.keep, history.now(tx))
    dropped = Dropped()
    for row in rows:
        objects, size_bytes = _delete(Place(store_of(row.place), store, row.inventory))
        with catalog.transaction() as tx:
            inventories.record(
                tx,
                store,
                row.inventory,
                "deleted",
                place=row.place,
                facts={"objects": objects, "bytes": size_bytes},
                actor=actor,
            )
        dropped = Dropped(
            dropped.inventories + 1, dropped.objects + objects, dropped.size_bytes + size_bytes
        )
    return dropped


def _delete(place: Place) -> tuple[int, int]:
    store = place.place
    listing = store.list(place.prefix, versions=store.profile.versioned)
    found = list(listing)
    if not listing.complete:
        raise StoreError(store=store.name, key=place.prefix, reason="its listing did not finish")
    for outcome in store.delete(found):
        if outcome.outcome is Outcome.REFUSED:
            reason = f"it is not deleted: {outcome.reason}"
            raise StoreError(store=store.name, key=outcome.key, reason=reason)
    again = store.list(place.prefix, versions=store.profile.versioned)
    left = list(again)
    if left or not again.complete:
        raise StoreError(store=store.name, key=place.prefix, reason=f"{len(left)} files are left")
    return len(found), sum(one.size_bytes for one in found)
