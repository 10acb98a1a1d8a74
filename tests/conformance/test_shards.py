"""Shards listed apart are the whole listing, in whatever store."""

from __future__ import annotations

import pytest

from lastgood.rules.shards import partition
from lastgood.stores.base import EVERYTHING, Key, Prefix, Store
from lastgood.stores.sharded import listing_of

KEYS = ["a-", "a.b/c", "a/b", "a/b%20c", "a/b+c", "a0", "b/1/x", "b/1/y", "b/2", "\u00e9/x", "z"]


BOUNDS = (["a/"], ["a/b", "b/1/"], ["a-", "a/", "b/", "b/1/x", "z"], ["0", "zz"])


def test_shards_together_are_the_whole_listing(store: Store, kind: str) -> None:
    if kind == "s3-versioned":
        pytest.skip("moto leaves out the first key after a KeyMarker that is no key")
    # LocalStack 4.13 compares where a page begins with encoded keys.
    keys = [key for key in KEYS if key.isascii() or not kind.startswith("localstack")]
    for key in keys:
        store.put_new(Key(key), key.encode())
    store.quarantine(Prefix("b/1/"), [])
    whole = list(store.list(EVERYTHING, versions=store.profile.versioned))

    for bounds in BOUNDS:
        listings = [listing_of(store, shard) for shard in partition(bounds)]
        assert [one for listing in listings for one in listing] == whole
        assert all(listing.complete for listing in listings)
    assert {one.key for one in whole} == set(keys)
