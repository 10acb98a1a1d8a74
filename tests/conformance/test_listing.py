"""Listings: ordered, exact, whole, and honest about it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lastgood.stores.base import Key, Prefix, Store
from lastgood.stores.s3 import S3Store
from tests.factories import upload_object


def test_an_empty_store_is_listed_completely(store: Store) -> None:
    listing = store.list(Prefix(""))
    assert not listing.complete
    assert list(listing) == []
    assert listing.complete


def test_a_listing_is_complete_only_at_its_end(store: Store) -> None:
    for name in ("a", "b"):
        store.put_new(Key(f"demo/{name}"), b"x")
    listing = store.list(Prefix("demo/"))
    seen = iter(listing)
    assert next(seen).key == "demo/a"
    assert not listing.complete
    assert next(seen).key == "demo/b"
    assert not listing.complete
    assert next(seen, None) is None
    assert listing.complete


def test_keys_come_in_the_order_of_their_bytes(store: Store) -> None:
    keys = [
        "a",
        "a!b",
        "a-b",
        "a.b",
        "a/b",
        "a/b.c",
        "a0",
        "aé",
        "a\uffee",
        "a🧊",
        "b/a/c",
        "b/a.c",
    ]
    for key in keys:
        if key != "a":  # a directory cannot hold `a` beside `a/b`
            store.put_new(Key(key), b"x")
    listed = [found.key for found in store.list(Prefix(""))]
    assert listed == sorted(set(keys) - {"a"}, key=str.encode)


def test_a_prefix_holds_what_is_below_its_folder(store: Store) -> None:
    for key in ("demo/a/1", "demo/a.1", "demo/ab/1", "demo2/a/1"):
        store.put_new(Key(key), b"x")
    assert [found.key for found in store.list(Prefix("demo/a/"))] == ["demo/a/1"]
    assert [found.key for found in store.list(Prefix("demo/"))] == [
        "demo/a.1",
        "demo/a/1",
        "demo/ab/1",
    ]
    assert list(store.list(Prefix("nothing/"))) == []


def test_sizes_are_listed(store: Store) -> None:
    upload_object(store, "demo/a", b"12345")
    (found,) = store.list(Prefix("demo/"))
    assert (found.size_bytes, found.is_latest, found.is_delete_marker) == (5, True, False)
    assert found.modified_at is not None
    assert found.modified_at.tzinfo is not None
    assert found.foreign is None


@pytest.mark.slow
def test_all_keys_of_several_pages_are_listed_and_deleted(store: Store, kind: str) -> None:
    count = 1050 if kind.startswith(("ceph", "localstack")) else 2500  # a page has 1,000
    keys = sorted((f"demo/{n % 7}/{n:05d}" for n in range(count)), key=str.encode)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: put_at_once(store, key), keys))
    listing = store.list(Prefix("demo/"))
    found = list(listing)
    assert [one.key for one in found] == keys
    assert listing.complete
    outcomes = list(store.delete(found))
    assert [outcome.key for outcome in outcomes] == keys
    assert {outcome.outcome for outcome in outcomes} == {"gone"}
    assert list(store.list(Prefix(""), versions=True)) == []


def put_at_once(store: Store, key: str) -> None:
    """Without looking first, where that costs requests."""
    if isinstance(store, S3Store):
        store.client.put_object(Bucket=store.bucket, Key=store.prefix + key, Body=b"x")
    else:
        store.put_new(Key(key), b"x")


def test_usage_is_what_is_listed_plus_what_is_named(store: Store) -> None:
    upload_object(store, "demo/a/1", b"x" * 1000)
    upload_object(store, "demo/b/1", b"y" * 500)
    store.put_new(Key("demo/b/2"), b"zz")
    store.quarantine(Prefix("demo/b/"), list(store.list(Prefix("demo/b/"))))
    upload_id = store.create_upload(Key("demo/c/1"), 70)
    store.write_part(Key("demo/c/1"), upload_id, 1, 70, [b"p" * 70])
    store.create_upload(Key("demo/c/2"), 70)
    for prefix in (Prefix(""), Prefix("demo/"), Prefix("demo/b/"), Prefix("none/")):
        usage = store.usage(prefix)
        listed = sum(found.size_bytes for found in store.list(prefix, versions=True))
        held = sum(upload.part_bytes_held for upload in store.uploads(prefix))
        assert usage.used_bytes == listed + held + sum(usage.causes.values())
    assert store.usage(Prefix("none/")).used_bytes == 0
    everything = store.usage()
    assert everything.used_bytes - sum(everything.causes.values()) == 1000 + 500 + 2 + 70
