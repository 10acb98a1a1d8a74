"""An inventory of any store, which need be none of the catalog's configuration."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.catalog.db import Catalog
from lastgood.flows.inventories.completion import complete
from lastgood.flows.inventories.explanation import Inventory, explain
from lastgood.flows.inventories.kept import Place
from lastgood.flows.inventories.settings import OBJECTS_PER_SHARD
from lastgood.flows.inventories.taking import begin, list_shard
from lastgood.stores.base import Store


def take(
    catalog: Catalog,
    store: Store,
    *,
    accounts_for: Collection[str] = (),
    projects: Collection[str],
    place: Store | None = None,
    objects_per_shard: int = OBJECTS_PER_SHARD,
) -> Inventory:
    """Take an inventory of `store`, keep it in `place` (None: in the store), and answer what it
    says."""
    kept_in = place or store
    begun = begin(
        catalog,
        store.name,
        place=kept_in.name,
        objects_per_shard=objects_per_shard,
        actor="inventory",
    )
    at = Place(kept_in, store.name, begun.inventory)
    listed = [list_shard(store, at, shard) for shard in begun.shards]
    manifest = complete(
        catalog,
        store,
        at,
        begun,
        listed,
        projects=projects,
        accounts_for=accounts_for,
        actor="inventory",
    )
    return explain(at, manifest)
