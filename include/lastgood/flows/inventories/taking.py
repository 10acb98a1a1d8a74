"""Taking an inventory: begun, listed shard by shard by any number of tasks, completed by one.

begin      name it, and cut the key space into shards
list       each shard into a file of its own, published whole or not at all
complete   see `inventory_completion`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories, inventory
from lastgood.flows.inventories.kept import (
    KeptFile,
    Place,
    new_name,
)
from lastgood.flows.inventories.rows import (
    write_listed,
)
from lastgood.rules.shards import Shard, partition
from lastgood.stores.base import (
    Listing,
    Store,
    StoredObject,
    StoreError,
)
from lastgood.stores.sharded import listing_of

Progress = Callable[[str, int], None]
"""Called with a phase and the number of keys done in it."""

SHARDS_LIMIT = 500  # of one store: a mapping of tasks has room for 1,024
_PROGRESS_EVERY = 1_000


class ListingUnusable(StoreError):
    """The listing of store {store} cannot be used: {reason}. Nothing is reported and nothing is
    swept."""

    type = "listing-unusable"


@dataclass(frozen=True, slots=True)
class Begun:
    """An inventory that was begun: what each of its tasks has to know. `started_at` is the
    catalog's (UTC); `source` is None for a listing, or names the report that is read instead."""

    store: str
    inventory: str
    place: str
    started_at: datetime
    shards: Sequence[Shard]

    def to_json(self) -> dict[str, Any]:
        """As one task hands it to another."""
        return {
            "store": self.store,
            "inventory": self.inventory,
            "place": self.place,
            "started_at": self.started_at.isoformat(),
            "shards": [[one.index, one.after, one.through] for one in self.shards],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Begun:
        """The inverse of `to_json`."""
        return cls(
            document["store"],
            document["inventory"],
            document["place"],
            datetime.fromisoformat(document["started_at"]),
            [Shard(*one) for one in document["shards"]],
        )


def begin(catalog: Catalog, store: str, *, place: str, objects_per_shard: int, actor: str) -> Begun:
    """Name an inventory, record that it began, and cut the key space into shards by what the
    catalog expects in it."""
    with catalog.transaction() as tx:
        started_at = history.now(tx)
        bounds = inventory.shard_bounds(tx, store, objects_per_shard)
        bounds = bounds[:: 1 + len(bounds) // SHARDS_LIMIT]
        begun = Begun(store, new_name(started_at), place, started_at, partition(bounds))
        facts = {"shards": len(begun.shards)}
        inventories.record(
            tx, store, begun.inventory, "started", place=place, facts=facts, actor=actor
        )
    return begun


def list_shard(
    store: Store,
    place: Place,
    shard: Shard,
    *,
    progress: Progress = lambda phase, done: None,
) -> KeptFile:
    """List one shard and publish its file. Raises StoreError, ListingUnusable."""
    with TemporaryDirectory(prefix="lastgood-inventory-") as scratch:
        listing = listing_of(store, shard)
        path = Path(scratch) / f"listed-{shard.index:04d}.parquet"
        written = write_listed(path, _in_order(store, listing, shard, progress))
        if not listing.complete:
            raise ListingUnusable(store=store.name, key=shard.after, reason="it did not finish")
        return place.publish(written, "listed", after=shard.after, through=shard.through)


def _in_order(
    store: Store, listing: Listing[StoredObject], shard: Shard, progress: Progress
) -> Iterator[StoredObject]:
    """The same objects, held to their order and to their shard: a join over an unordered listing
    would call present objects missing."""
    last = ""
    done = 0
    for item in listing:
        if item.key < last:
            reason = f"{item.key!r} comes after {last!r}, out of order"
            raise ListingUnusable(store=store.name, key=item.key, reason=reason)
        if not shard.holds(item.key):
            reason = f"{item.key!r} is not of shard {shard.index}"
            raise ListingUnusable(store=store.name, key=item.key, reason=reason)
        last = item.key
        done += 1
        if done % _PROGRESS_EVERY == 0:
            progress("objects", done)
        yield item
    progress("objects", done)
