"""Versions that a lock keeps: their copy stays as it is, recorded with bytes and until when, and a
later sweep goes on where the lock has gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.retention import copy_locks
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.sweeping.tombstones import Tombstone
from lastgood.flows.sweeping import deletion
from lastgood.rules import layout
from lastgood.rules.copy_locks import ASK_AGAIN_AFTER
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import Prefix, StoredObject
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import client_of
from tests.retention.world import PROJECT, World, opened
from tests.s3_servers import new_store
from tests.waiting import wait_for

if TYPE_CHECKING:
    pass

GRACE = timedelta(hours=1)
OBJECTS = {"a.bin": b"a", "b.bin": b"bb"}


@pytest.fixture(params=["ceph-lock", pytest.param("localstack-lock", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> S3Store:
    return new_store(request, "cloud", request.param, "team/a")


@pytest.fixture
def world(store: S3Store, catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as found:
        yield found


def deletable(world: World) -> tuple[Copy, Copy]:
    """Two copies in quarantine whose grace is over."""
    old = [world.commit(sequence, OBJECTS) for sequence in (1, 2)]
    world.commit(3)
    world.commit(4)
    world.mark()
    world.sweep()
    world.advance(GRACE)
    world.mark()
    return old[0], old[1]


def version_of(store: S3Store, copy: Copy, path: str) -> dict[str, Any]:
    key = layout.object_key(copy.prefix, path)
    (found,) = [one for one in everything(store, copy) if one.key == key and one.size_bytes]
    return {"Bucket": store.bucket, "Key": store.prefix + key, "VersionId": found.version_id}


def everything(store: S3Store, copy: Copy) -> list[StoredObject]:
    return list(store.list(Prefix(copy.prefix), versions=True))


def refused(world: World, copy: Copy) -> dict[str, str | None]:
    with world.catalog.transaction() as tx:
        rows = tx.execute(
            "SELECT o.key, o.reason FROM tombstone_keys AS o JOIN tombstones AS t"
            " USING (tombstone_id) WHERE t.copy_id = %s AND o.outcome = 'refused'",
            (copy.copy_id,),
        ).fetchall()
    return {row["key"].removeprefix(copy.prefix): row["reason"] for row in rows}


def looks(world: World, copy: Copy) -> list[tuple[int, int]]:
    """Every recorded look at a copy: the versions that were locked, and their bytes."""
    with world.catalog.transaction() as tx:
        rows = tx.execute(
            "SELECT versions, bytes FROM copy_locks WHERE copy_id = %s ORDER BY look_id",
            (copy.copy_id,),
        ).fetchall()
    return [(row["versions"], row["bytes"]) for row in rows]


def sweep_after(world: World, delta: timedelta) -> Any:
    world.advance(delta)
    world.mark()
    return world.sweep()


@contextmanager
def asking(store: S3Store) -> Iterator[list[int]]:
    """How many versions the store is asked about, each time."""
    asked: list[int] = []
    ask = store._locks.locked

    def counted(objects: Any) -> Any:
        asked.append(len(objects))
        return ask(objects)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._locks, "locked", counted)
        yield asked


def test_a_held_copy_stays_as_it_is_while_others_go_and_goes_when_it_is_released(
    world: World, store: S3Store
) -> None:
    held, free = deletable(world)
    where = version_of(store, held, "b.bin")
    store.client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
    before = everything(store, held)

    told = world.sweep()

    assert (told["locked"], told["failed"], told["alerts"]) == (1, {}, {})
    assert "1 version of 2 bytes is locked: under legal hold" in told["reasons"].popitem()[1]
    assert looks(world, held) == [(1, 2)]
    assert everything(store, held) == before
    assert (world.state(held), world.state(free)) == ("quarantined", "deleted")
    assert everything(store, free) == []
    with world.catalog.transaction() as tx:
        (standing,) = copy_locks.standing(tx, PROJECT, "cloud")
        assert copy_locks.totals(tx) == {(PROJECT, "cloud"): (1, 2)}
        assert tombstones.of_copy(tx, PROJECT, held.copy_id) is None
    assert (standing.checkpoint, standing.state) == (held.checkpoint, "quarantined")
    assert (standing.look.ends_at, standing.look.reason) == (None, "under legal hold")

    with asking(store) as asked:
        assert world.sweep()["locked"] == 1  # it is not asked for again so soon
    assert asked == []
    store.client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
    assert sweep_after(world, ASK_AGAIN_AFTER)["failed"] == {}
    assert world.state(held) == "deleted"
    assert everything(store, held) == []
    assert looks(world, held) == [(1, 2), (0, 0)]
    with world.catalog.transaction() as tx:
        assert copy_locks.standing(tx, PROJECT, "cloud") == []
        assert copy_locks.totals(tx) == {}
        tombstone = tombstones.of_copy(tx, PROJECT, held.copy_id)
    assert tombstone is not None
    assert tombstone.proof is not None


def test_what_is_locked_after_the_intent_is_named_once_and_goes_later(
    world: World, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, _ = deletable(world)
    where = version_of(store, held, "b.bin")
    real = deletion.remove

    def remove(catalog: Any, of: Any, tombstone: Tombstone, points: Any) -> deletion.Removal:
        if tombstone.copy_id == held.copy_id:
            store.client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
        return real(catalog, of, tombstone, points)

    monkeypatch.setattr(deletion, "remove", remove)
    told = world.sweep()
    assert "under legal hold" in told["failed"][f"{held.checkpoint} in cloud"]
    monkeypatch.setattr(deletion, "remove", real)
    assert "under legal hold" in world.sweep()["failed"][f"{held.checkpoint} in cloud"]
    assert refused(world, held) == {"objects/b.bin": "under legal hold"}
    assert world.state(held) == "deleting"
    with world.catalog.transaction() as tx:
        (standing,) = copy_locks.standing(tx, PROJECT, "cloud")
        tombstone = tombstones.of_copy(tx, PROJECT, held.copy_id)
        assert tombstone is not None
        assert tombstones.outcomes(tx, tombstone).refused == 1
    assert (standing.copy_id, standing.state) == (held.copy_id, "deleting")
    store.client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
    assert world.sweep()["failed"] == {}
    assert world.state(held) == "deleted"
    with world.catalog.transaction() as tx:
        assert copy_locks.standing(tx, PROJECT, "cloud") == []


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_a_retained_version_keeps_its_copy(world: World, store: S3Store, mode: Any) -> None:
    retained, free = deletable(world)
    where = version_of(store, retained, "a.bin")
    until = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    store.client.put_object_retention(**where, Retention={"Mode": mode, "RetainUntilDate": until})
    world.sweep()
    assert (world.state(retained), world.state(free)) == ("quarantined", "deleted")
    with world.catalog.transaction() as tx:
        (standing,) = copy_locks.standing(tx, PROJECT, "cloud")
    assert (standing.look.versions, standing.look.size_bytes) == (1, 1)
    assert standing.look.ends_at == until
    assert standing.look.reason == f"retained until {until.isoformat()}"


def test_a_retention_that_is_over_keeps_nothing(world: World, store: S3Store) -> None:
    old, _ = deletable(world)
    where = version_of(store, old, "a.bin")
    retain_shortly(store, where)
    wait_for(lambda: not store.locked(everything(store, old)))
    assert world.sweep()["failed"] == {}
    assert world.state(old) == "deleted"
    assert looks(world, old) == []


def retain_shortly(store: S3Store, where: Any) -> None:
    """For as short a while as the server can be told of: it refuses an instant that has passed."""
    for seconds in (0.5, 5, 50):
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        with suppress(ClientError):
            retention: Any = {"Mode": "COMPLIANCE", "RetainUntilDate": until}
            store.client.put_object_retention(**where, Retention=retention)
            return
    raise AssertionError("no retention was taken")


@pytest.mark.parametrize("store", ["ceph-lock"], indirect=True)
def test_a_lock_that_cannot_be_seen_counts_and_alerts(
    ceph: Ceph, store: S3Store, world: World
) -> None:
    """Another user may do everything in the bucket but look at its locks."""
    old, _ = deletable(world)
    before = everything(store, old)
    blind = blind_user(ceph, store)
    world.stores["cloud"] = blind
    assert blind.profile.locks
    told = world.sweep()
    assert "its legal hold cannot be seen" in told["alerts"][str(old.checkpoint)]
    assert world.state(old) == "quarantined"
    assert everything(store, old) == before
    world.stores["cloud"] = store
    assert sweep_after(world, ASK_AGAIN_AFTER)["failed"] == {}
    assert world.state(old) == "deleted"


def blind_user(ceph: Ceph, store: S3Store) -> S3Store:
    import json

    ceph.add_user(store.bucket, f"key-of-{store.bucket}", "secret")
    allowed = [
        "s3:GetObject",
        "s3:GetObjectVersion",
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:DeleteObjectVersion",
        "s3:ListBucket",
        "s3:ListBucketVersions",
        "s3:ListBucketMultipartUploads",
        "s3:GetBucketVersioning",
    ]
    bucket = f"arn:aws:s3:::{store.bucket}"
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": [f"arn:aws:iam:::user/{store.bucket}"]},
        "Action": allowed,
        "Resource": [bucket, f"{bucket}/*"],
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    store.client.put_bucket_policy(Bucket=store.bucket, Policy=json.dumps(policy))
    client = client_of(ceph, f"key-of-{store.bucket}", "secret")
    return S3Store("cloud", client, store.bucket, "team/a")
