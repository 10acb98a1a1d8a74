"""Pruning control keys: the newest of each counter proves what all older ones did."""

from __future__ import annotations

from collections import defaultdict

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects
from lastgood.errors import Unavailable
from lastgood.rules import layout
from lastgood.rules.layout import ControlKey, ControlKind
from lastgood.rules.names import StageId
from lastgood.stores.base import Outcome, Prefix, Store, StoredObject
from lastgood.stores.open import Stores

KEPT = 3
"""So many of the newest keys of each counter stay: who saw one in a listing still finds it."""


def prune(catalog: Catalog, stores: Stores, project: str) -> int:
    """Delete all but the newest control keys of each of the project's stages in each of its stores;
    answers how many went. Raises StoreError, or Unavailable where a listing is not whole."""
    with catalog.transaction() as tx:
        names = projects.stores_of(tx, project)
    return sum(_prune(stores[name], project) for name in names)


def _prune(store: Store, project: str) -> int:
    counters: dict[tuple[StageId, ControlKind], list[StoredObject]] = defaultdict(list)
    listing = store.list(Prefix(f"{layout.CONTROL_PREFIX}stages/{project}/"))
    for entry in listing:
        key = layout.parse_key(entry.key)
        if isinstance(key, ControlKey) and key.stage is not None:
            counters[key.stage, key.kind].append(entry)
    if not listing.complete:
        raise Unavailable(what=f"store {store.name}", reason="it did not list its control keys")
    old = [entry for entries in counters.values() for entry in entries[:-KEPT]]
    return sum(outcome.outcome is Outcome.GONE for outcome in store.delete(old))
