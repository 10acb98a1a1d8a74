"""The whole life of a copy and of an abandoned attempt in S3 buckets, with and without versions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from lastgood.catalog.jobs import attempt_objects, copies
from lastgood.catalog.sweeping import tombstones
from lastgood.errors import CopyState
from lastgood.flows import control_keys, quarantine
from lastgood.flows.auditing import audit
from lastgood.flows.cleaning import cleanup
from lastgood.flows.inventories import by_name
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.factories import upload_object
from tests.retention.world import PROJECT, World, opened
from tests.s3_servers import CEPH, LOCALSTACK, new_store

GRACE = timedelta(hours=1)


@pytest.fixture(params=[*CEPH, *LOCALSTACK])
def world(
    request: pytest.FixtureRequest, catalog_dsn: str, owner_dsn: str, tmp_path: Path
) -> Iterator[World]:
    store = new_store(request, "cloud", request.param, "team/a")
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as found:
        yield found


def everything(world: World, prefix: str) -> list[str]:
    """Every key, version and delete marker below a prefix."""
    found = world.store.list(Prefix(prefix), versions=world.store.profile.versioned)
    return [one.key for one in found]


def test_a_copy_goes_from_quarantine_to_a_proven_deletion(world: World) -> None:
    old = world.commit(1, {"a.bin": b"aaaa", "b/c d%.bin": b""})
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"
    assert set(world.keys(old).values()) == {world.store.profile.hides}
    world.advance(GRACE)
    world.mark()
    told = world.sweep()
    assert told["failed"] == {}
    assert world.state(old) == "deleted"
    assert everything(world, old.prefix) == []
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_copy(tx, PROJECT, old.copy_id)
        assert tombstone is not None
        outcomes = tombstones.outcomes(tx, tombstone)
    assert tombstone.proof is not None
    assert outcomes.refused == 0
    assert told["freed_bytes"] == old.stored_bytes


def test_an_undone_quarantine_validates_again(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    quarantine.undo(
        world.catalog, world.stores, old.checkpoint, because="needed", actor="operator:ann"
    )
    assert set(world.keys(old).values()) == {False}
    assert validate.run(world.catalog, world.stores, old.copy_id)["verdict"] == "pass"


def test_an_abandoned_attempt_leaves_no_object_and_no_upload(world: World) -> None:
    objects = {"a.bin": b"a" * 64, "b.bin": b"b" * 32}
    attempt = world.prepare(1, objects)
    upload_object(world.store, layout.object_key(attempt.prefix, "a.bin"), objects["a.bin"])
    key = Key(layout.object_key(attempt.prefix, "b.bin"))
    upload = world.store.create_upload(key, 32)
    world.store.write_part(key, upload, 1, 32, [objects["b.bin"]])
    with world.catalog.transaction() as tx:
        attempt_objects.record_uploads(tx, attempt, {"b.bin": upload})
    world.store.create_upload(key, 32)
    world.advance(GRACE)
    told = cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    assert (told["closed"], told["failed"]) == (1, {})
    assert everything(world, attempt.prefix) == []
    assert list(world.store.uploads(Prefix(attempt.prefix))) == []
    control_keys.disown(world.store)  # as when the store is unregistered
    assert everything(world, "control/") == []


def test_a_replaced_object_fails_its_validation(world: World) -> None:
    good, bad = world.commit(1, receipt=None), world.commit(2, receipt=None)
    key = Key(layout.object_key(bad.prefix, "model.bin"))
    entry = world.store.stat(key)
    assert entry is not None
    list(world.store.delete([entry]))
    upload_object(world.store, key, b"x" * entry.size_bytes)
    told = validate.run(world.catalog, world.stores, bad.copy_id)
    assert (told["verdict"], told["established"]) == ("fail", str(good.checkpoint))


def undo(world: World, copy: copies.Copy) -> None:
    quarantine.undo(world.catalog, world.stores, copy.checkpoint, because="ours", actor="ann")


@pytest.mark.parametrize("world", [CEPH[1], LOCALSTACK[1]], indirect=True)
def test_what_somebody_hid_of_a_present_copy_is_told_restored_and_shown_again(
    world: World,
) -> None:
    copy = world.commit(1, receipt=None)
    for hidden in ("COMMITTED", "manifest.json", "objects/model.bin"):
        key = copy.prefix + hidden
        where = {"Bucket": world.store.bucket, "Key": world.store.prefix + key}
        world.store.client.delete_object(**where)
        told = validate.run(world.catalog, world.stores, copy.copy_id)
        assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    (reason,) = world.row("SELECT reason FROM lastgood.receipts ORDER BY number DESC LIMIT 1")
    assert "3 keys of it, such as 'checkpoints/vision/" in reason
    assert f"`lastgood quarantine undo {copy.checkpoint}` removes" in reason
    with world.catalog.transaction() as tx:
        (item,) = copies.objects(tx, PROJECT, copy.copy_id)
    url = world.store.presign_read(
        Key(layout.object_key(copy.prefix, item.path)), 60, version_id=item.version_id
    )
    assert len(httpx.get(url).raise_for_status().content) == item.size_bytes
    taken = by_name.take(world.catalog, world.stores, "cloud", accounts_for=[], actor="test")
    read = by_name.read(world.catalog, world.stores, "cloud", taken.inventory)
    (place,) = [one for one in read.differences if one.project == PROJECT]
    assert (place.cause, place.key_range) == (Cause.MISPLACED, copy.prefix)
    with pytest.raises(CopyState):
        undo(world, world.commit(2))

    undo(world, copy)

    assert set(world.keys(copy).values()) == {False}
    assert validate.run(world.catalog, world.stores, copy.copy_id)["verdict"] == "pass"
    assert world.row("SELECT actor FROM lastgood.events WHERE kind = 'shown-again'") == ("ann",)
    world.commit(3)
    world.mark()
    assert world.sweep()["quarantined"] == 1
    assert (world.state(copy), set(world.keys(copy).values())) == ("quarantined", {True})
    assert audit.run(world.catalog).breaks == []
    undo(world, copy)
    with pytest.raises(CopyState):
        undo(world, copy)


@pytest.mark.parametrize("world", [CEPH[1], LOCALSTACK[1]], indirect=True)
def test_bytes_that_somebody_wrote_over_a_copy_are_not_its_bytes(world: World) -> None:
    copy = world.commit(1, receipt=None)
    key = Key(layout.object_key(copy.prefix, "model.bin"))
    world.store.client.put_object(
        Bucket=world.store.bucket, Key=world.store.prefix + key, Body=b"of somebody else"
    )
    assert validate.run(world.catalog, world.stores, copy.copy_id)["verdict"] == "pass"
    below = world.store.list(Prefix(copy.prefix), versions=True)
    entry = next(one for one in below if not one.is_latest)
    list(world.store.delete([entry]))
    assert validate.run(world.catalog, world.stores, copy.copy_id)["verdict"] == "fail"
