"""Versions that a lock keeps: nothing of their copy is deleted, each is named, and a later sweep
goes on where the lock has gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lastgood.catalog import tombstones
from lastgood.catalog.copies import Copy
from lastgood.rules import layout
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import Prefix, StoredObject
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import client_of
from tests.retention.world import PROJECT, World, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

GRACE = timedelta(hours=1)
OBJECTS = {"a.bin": b"a", "b.bin": b"bb"}


@pytest.fixture
def store(ceph_client: S3Client, ceph_locked_bucket: str) -> S3Store:
    return S3Store("cloud", ceph_client, ceph_locked_bucket, "team/a")


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


def test_a_held_copy_stays_whole_while_others_go_and_goes_when_it_is_released(
    world: World, store: S3Store
) -> None:
    held, free = deletable(world)
    where = version_of(store, held, "b.bin")
    store.client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
    before = everything(store, held)

    told = world.sweep()

    assert list(told["failed"]) == [f"{held.checkpoint} in cloud"]
    assert "under legal hold" in told["failed"][f"{held.checkpoint} in cloud"]
    assert refused(world, held) == {"objects/b.bin": "under legal hold"}
    assert everything(store, held) == before
    assert (world.state(held), world.state(free)) == ("deleting", "deleted")
    assert everything(store, free) == []

    store.client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
    assert world.sweep()["failed"] == {}
    assert world.state(held) == "deleted"
    assert everything(store, held) == []
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_copy(tx, PROJECT, held.copy_id)
    assert tombstone is not None
    assert tombstone.proof is not None


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_a_retained_version_keeps_its_copy(world: World, store: S3Store, mode: Any) -> None:
    retained, free = deletable(world)
    where = version_of(store, retained, "a.bin")
    until = datetime.now(UTC) + timedelta(days=1)
    store.client.put_object_retention(**where, Retention={"Mode": mode, "RetainUntilDate": until})
    world.sweep()
    assert (world.state(retained), world.state(free)) == ("deleting", "deleted")
    (reason,) = refused(world, retained).values()
    assert reason is not None
    assert reason.startswith(f"retained until {until.date()}")


def test_a_retention_that_is_over_keeps_nothing(world: World, store: S3Store) -> None:
    old, _ = deletable(world)
    where = version_of(store, old, "a.bin")
    until = datetime.now(UTC) + timedelta(seconds=1)
    store.client.put_object_retention(
        **where, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until}
    )
    while store.locked(everything(store, old)):
        assert datetime.now(UTC) < until + timedelta(seconds=10)
    assert world.sweep()["failed"] == {}
    assert world.state(old) == "deleted"


def test_a_lock_that_cannot_be_seen_counts(
    ceph: Ceph, store: S3Store, world: World, catalog_dsn: str
) -> None:
    """Another user may do everything in the bucket but look at its locks."""
    old, _ = deletable(world)
    before = everything(store, old)
    blind = blind_user(ceph, store)
    world.stores["cloud"] = blind
    assert blind.profile.locks
    world.sweep()
    assert {reason.partition(" (")[0] for reason in refused(world, old).values() if reason} == {
        "its legal hold cannot be seen"
    }
    assert everything(store, old) == before
    world.stores["cloud"] = store
    assert world.sweep()["failed"] == {}
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
