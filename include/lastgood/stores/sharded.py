"""Listing one shard of a store, whatever the store can do itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from lastgood.rules.shards import WHOLE, Shard
from lastgood.stores.base import EVERYTHING, Listing, Store, StoredObject, StoreError
from lastgood.stores.listing import StreamedListing


@runtime_checkable
class ListsShards(Protocol):
    """A store that lists a part of its keys for about the price of that part."""

    def list_shard(self, shard: Shard) -> Listing[StoredObject]:
        """As `Store.list` of everything, versions included, but only the keys of the shard."""


def listing_of(store: Store, shard: Shard) -> Listing[StoredObject]:
    """Every object of the shard, with versions and delete markers where the store keeps them. A
    store that cannot list a part lists all, and what is not of the shard is left out."""
    if shard != WHOLE and isinstance(store, ListsShards):
        return store.list_shard(shard)
    whole = store.list(EVERYTHING, versions=store.profile.versioned)
    if shard == WHOLE:
        return whole
    return StreamedListing(lambda: _within(store, whole, shard))


def _within(store: Store, whole: Listing[StoredObject], shard: Shard) -> Iterator[StoredObject]:
    yield from (one for one in whole if shard.holds(one.key))
    if not whole.complete:
        raise StoreError(store=store.name, key=shard.after, reason="its listing did not finish")
