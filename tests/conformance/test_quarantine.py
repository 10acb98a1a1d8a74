"""Quarantine and deletion: undone while hidden, gone when gone, told key by key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from lastgood.stores.base import Key, KeyMissing, Outcome, Prefix, Store, StoredObject, StoreError
from tests.conformance.conftest import KINDS
from tests.factories import upload_object

# A bucket with Object Lock is one with versions, until something is deleted.
pytestmark = pytest.mark.parametrize("store", [*KINDS, "ceph-lock"], indirect=True)

COPY = Prefix("demo/resnet/pretrain/1/7/")
OTHER = Prefix("demo/resnet/pretrain/1/70/")
NAMES = ["manifest.json", "shards/0.safetensors", "shards/1.safetensors"]


@pytest.fixture
def copy(store: Store) -> list[StoredObject]:
    for prefix in (COPY, OTHER):
        for name in NAMES:
            upload_object(store, prefix + name, name.encode())
    return list(store.list(COPY))


def unchanged(found: Iterable[StoredObject]) -> list[StoredObject]:
    """Objects without what a tag changes on Ceph: their time, and the ETag of a listing."""
    return [replace(one, modified_at=None, etag=None) for one in found]


def hidden(store: Store, prefix: Prefix) -> list[tuple[str, bool]]:
    return [(found.key, found.hidden) for found in store.list(prefix)]


def test_a_quarantined_copy_is_hidden_and_listed_as_such(
    store: Store, copy: list[StoredObject]
) -> None:
    store.quarantine(COPY, copy)
    expected = store.profile.hides
    assert hidden(store, COPY) == [(COPY + name, expected) for name in NAMES]
    assert hidden(store, OTHER) == [(OTHER + name, False) for name in NAMES]
    if expected:
        assert store.stat(Key(COPY + NAMES[0])) is None
        with pytest.raises(KeyMissing):
            store.read(Key(COPY + NAMES[0]))
    assert store.read(Key(OTHER + NAMES[0])) == NAMES[0].encode()


def test_quarantine_is_undone(store: Store, copy: list[StoredObject]) -> None:
    before = store.usage().used_bytes
    store.quarantine(COPY, copy)
    assert store.usage().used_bytes == before
    store.unquarantine(COPY, copy)
    assert unchanged(store.list(COPY, versions=True)) == unchanged(copy)
    for name in NAMES:
        assert store.read(Key(COPY + name)) == name.encode()


def test_both_directions_are_idempotent(store: Store, copy: list[StoredObject]) -> None:
    store.unquarantine(COPY, copy)
    assert hidden(store, COPY) == [(COPY + name, False) for name in NAMES]
    for _ in range(3):
        store.quarantine(COPY, copy)
    assert hidden(store, COPY) == [(COPY + name, store.profile.hides) for name in NAMES]
    for _ in range(3):
        store.unquarantine(COPY, copy)
    assert unchanged(store.list(COPY, versions=True)) == unchanged(copy)


def test_the_attested_digest_survives_quarantine(store: Store, copy: list[StoredObject]) -> None:
    before = store.stat(copy[0].key)
    store.quarantine(COPY, copy)
    store.unquarantine(COPY, copy)
    after = store.stat(copy[0].key)
    assert before is not None
    assert after is not None
    assert unchanged([after]) == unchanged([before])


def test_quarantining_nothing_is_no_error(store: Store) -> None:
    store.quarantine(COPY, [])
    store.unquarantine(COPY, [])
    assert list(store.list(Prefix(""))) == []


@pytest.mark.parametrize("method", ["quarantine", "unquarantine"])
def test_the_whole_store_is_never_moved(store: Store, method: str) -> None:
    with pytest.raises(StoreError):
        getattr(store, method)(Prefix(""), [])


def test_a_late_object_joins_the_quarantine(store: Store, copy: list[StoredObject]) -> None:
    store.quarantine(COPY, copy)
    late = upload_object(store, COPY + "shards/2.safetensors", b"late")
    store.quarantine(COPY, [*copy, late])
    names = [*NAMES, "shards/2.safetensors"]
    assert hidden(store, COPY) == [(COPY + name, store.profile.hides) for name in names]
    store.unquarantine(COPY, [*copy, late])
    assert hidden(store, COPY) == [(COPY + name, False) for name in names]


def test_pruning_removes_no_object(store: Store, copy: list[StoredObject]) -> None:
    store.prune(COPY)
    store.quarantine(COPY, copy)
    store.prune(COPY)
    store.unquarantine(COPY, copy)
    assert unchanged(store.list(COPY, versions=True)) == unchanged(copy)
    store.prune(Prefix("demo/nothing/"))


def test_visible_objects_are_deleted(store: Store, copy: list[StoredObject]) -> None:
    outcomes = list(store.delete(copy))
    assert [(one.key, one.version_id, one.outcome) for one in outcomes] == [
        (one.key, one.version_id, Outcome.GONE) for one in copy
    ]
    assert list(store.list(COPY, versions=True)) == []
    assert hidden(store, OTHER) == [(OTHER + name, False) for name in NAMES]


def test_hidden_objects_are_deleted_with_nothing_left(
    store: Store, copy: list[StoredObject]
) -> None:
    store.quarantine(COPY, copy)
    outcomes = list(store.delete(list(store.list(COPY))))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.GONE] * len(NAMES)
    assert list(store.list(COPY, versions=True)) == []
    assert list(store.list(OTHER, versions=True)) != []


def test_deleting_again_is_no_error(store: Store, copy: list[StoredObject]) -> None:
    store.quarantine(COPY, copy)
    found = list(store.list(COPY))
    list(store.delete(found))
    for outcome in store.delete(found):
        assert outcome.outcome in (Outcome.GONE, Outcome.ABSENT)


def test_deletion_that_stops_in_the_middle_is_finished_later(
    store: Store, copy: list[StoredObject]
) -> None:
    store.quarantine(COPY, copy)
    next(store.delete(list(store.list(COPY))[:1]))
    assert [one.key for one in store.list(COPY)] == [COPY + name for name in NAMES[1:]]
    list(store.delete(list(store.list(COPY))))
    assert list(store.list(COPY, versions=True)) == []


def test_a_protected_copy_is_read_hidden_shown_and_deleted(
    store: Store, copy: list[StoredObject]
) -> None:
    store.protect(COPY)
    store.protect(COPY)
    store.put_new(Key(COPY + "COMMITTED"), b"marker")
    assert store.read(Key(COPY + NAMES[0])) == NAMES[0].encode()
    store.quarantine(COPY, copy)
    store.unquarantine(COPY, copy)
    store.quarantine(COPY, copy)
    outcomes = list(store.delete(list(store.list(COPY))))
    assert {outcome.outcome for outcome in outcomes} == {Outcome.GONE}
    assert list(store.list(COPY, versions=True)) == []


def test_a_key_can_be_used_again_after_deletion(store: Store, copy: list[StoredObject]) -> None:
    store.quarantine(COPY, copy)
    list(store.delete(list(store.list(COPY))))
    upload_object(store, COPY + NAMES[0], b"new bytes")
    assert store.read(Key(COPY + NAMES[0])) == b"new bytes"
    assert hidden(store, COPY) == [(COPY + NAMES[0], False)]
