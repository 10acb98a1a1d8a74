"""What a store must show before it is claimed a second time."""

from __future__ import annotations

from lastgood.catalog import control
from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import store_registrations
from lastgood.flows import control_keys
from lastgood.stores.base import Store


def publish_history(catalog: Catalog, store: Store, *, anew: bool) -> None:
    """Before a store is claimed that was unregistered once, and is registered `anew` or has no
    claim yet: write the newest control keys of every stage that ever wrote to it. Without them a
    dump from before would find nothing in it that it does not know. Raises CatalogBehind,
    StoreError."""
    with catalog.transaction() as tx:
        if not store_registrations.was_unregistered(tx, store.name):
            return
        writers = store_registrations.writers_of(tx, store.name)
        identity = control.identity(tx).catalog_id
    ours = (str(identity), None) if anew else (None,)
    if control_keys.owner_of(store) in ours:
        for project, stage_id, generation in writers:
            control_keys.publish(catalog, [store], project, stage_id, generation=generation or None)
