"""Inventories by name: taken, found again, compared."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories
from lastgood.catalog.reconciliation.inventories import InventoryRow
from lastgood.catalog.settings import projects
from lastgood.errors import NotFound
from lastgood.flows.inventories import explanation
from lastgood.flows.inventories.completion import complete
from lastgood.flows.inventories.diff import Compared, compare
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.kept import KeptManifest, Place
from lastgood.flows.inventories.report_source import begin_from_report
from lastgood.flows.inventories.retention import drop_old, take_in_lost
from lastgood.flows.inventories.settings import InventorySettings
from lastgood.flows.inventories.taking import Begun, Progress, begin, list_shard
from lastgood.stores.open import Stores


class NotKept(NotFound):
    """No inventory of store {store} is kept that began from {start} to {end}; a report of that time
    cannot be made again."""

    type = "inventory-not-kept"


def start(catalog: Catalog, stores: Stores, store: str, *, actor: str) -> Begun:
    """Begin an inventory as the store's settings say. Raises NotFound, StoreError."""
    settings = settings_of(catalog, store)
    take_in_lost(catalog, stores[settings.place], store, actor=actor)
    return begin(
        catalog,
        store,
        place=settings.place,
        objects_per_shard=settings.objects_per_shard,
        actor=actor,
    )


def take(
    catalog: Catalog,
    stores: Stores,
    store: str,
    *,
    accounts_for: Collection[str],
    actor: str,
    report: str | None = None,
    progress: Progress = lambda phase, done: None,
) -> KeptManifest:
    """Take an inventory of a store in this process: by listing, or from the S3 Inventory `report`
    (the address of its manifest.json, or of the folder of reports whose newest is read). Raises
    StoreError, InventoryReportRefused."""
    with catalog.transaction() as tx:
        everybody = projects.names(tx)
    settings = settings_of(catalog, store)
    place = stores[settings.place]
    source = "listing"
    if report or settings.report:
        take_in_lost(catalog, place, store, actor=actor)
        begun, listed, source = begin_from_report(
            catalog,
            stores[store],
            place,
            report or str(settings.report),
            max_age=settings.report_max_age,
            actor=actor,
        )
    else:
        begun = start(catalog, stores, store, actor=actor)
        at = Place(place, store, begun.inventory)
        listed = [list_shard(stores[store], at, one, progress=progress) for one in begun.shards]
    return complete(
        catalog,
        stores[store],
        Place(place, store, begun.inventory),
        begun,
        listed,
        projects=everybody,
        accounts_for=accounts_for,
        actor=actor,
        source=source,
        progress=progress,
    )


def settings_of(catalog: Catalog, store: str) -> InventorySettings:
    """How a store is inventoried. Raises NotFound."""
    with catalog.transaction() as tx:
        return InventorySettings.of(projects.store(tx, store))


def read(catalog: Catalog, stores: Stores, store: str, name: str) -> Inventory:
    """What a complete inventory of a store says. Raises NotFound, InventoryUnusable."""
    place, manifest = opened(catalog, stores, store, name)
    return explanation.explain(place, manifest)


def opened(catalog: Catalog, stores: Stores, store: str, name: str) -> tuple[Place, KeptManifest]:
    """The place and the manifest of a complete inventory."""
    with catalog.transaction() as tx:
        row = inventories.get(tx, store, name)
    place = Place(stores[row.place], store, name)
    if row.state != "completed":
        raise place.unusable(f"it is {row.state}: {row.facts.get('reason', 'not completed')}")
    return place, place.manifest(str(row.facts["manifest_sha256"]))


def kept_for(catalog: Catalog, store: str, start: datetime, end: datetime) -> InventoryRow:
    """The inventory that the report of a window [start, end) was made from: the first that began
    within one window's length after its end. Raises NotKept."""
    until = end + (end - start)
    with catalog.transaction() as tx:
        row = inventories.of_window(tx, store, end, until)
    if row is None:
        raise NotKept(
            store=store,
            start=end.isoformat(),
            end=until.isoformat(),
            what="inventory",
            name=store,
        )
    return row


def difference(catalog: Catalog, stores: Stores, before: str, after: str) -> Compared:
    """What became new, gone and changed from one complete inventory to another of the same store.
    Raises NotFound, InventoryUnusable."""
    with catalog.transaction() as tx:
        first, second = inventories.find(tx, before), inventories.find(tx, after)
    if first.store != second.store:
        raise NotFound(what=f"inventory of store {first.store}", name=after)
    return compare(
        opened(catalog, stores, first.store, before), opened(catalog, stores, first.store, after)
    )


__all__ = ["difference", "drop_old", "kept_for", "opened", "read", "settings_of", "start", "take"]
