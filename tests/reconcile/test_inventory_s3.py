"""Buckets have versions, delete markers and pending uploads: each is a line, and nothing is
left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.quarantine import follow
from lastgood.rules import layout
from lastgood.rules.byte_equation import Line
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import Key
from lastgood.stores.file import FileStore
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import MakeBucket
from tests.factories import send_parts
from tests.reconcile.taking import take
from tests.retention.world import PROJECT, World, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Make = Callable[[bool], World]


@pytest.fixture
def make(
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
    ceph_client: S3Client,
    make_ceph_bucket: MakeBucket,
) -> Iterator[Make]:
    """A function that makes a world over a new bucket, versioned or not."""
    worlds = []

    def world(versioned: bool) -> World:
        store = S3Store("bucket", ceph_client, make_ceph_bucket(versioned=versioned), "jobs")
        made = opened(catalog_dsn, owner_dsn, tmp_path, store)
        worlds.append(made)
        entered = made.__enter__()
        # Kept elsewhere, so that the bucket is the same before and after.
        kept = tmp_path / "kept"
        kept.mkdir(exist_ok=True)
        entered.owner.execute(
            "INSERT INTO lastgood.stores (store, kind, config, failure_domain, tier)"
            " VALUES ('kept', 'file', '{}', 'rack-2', 'cold')"
        )
        entered.stores["kept"] = FileStore("kept", kept)
        return entered

    yield world
    for made in worlds:
        made.__exit__(None, None, None)


def _take(world: World) -> Inventory:
    return take(
        world.catalog,
        world.store,
        accounts_for=[PROJECT],
        projects=[PROJECT],
        place=world.stores["kept"],
    )


def _accounted(world: World, ceph: Ceph) -> int:
    """What Ceph itself accounts to the bucket."""
    assert isinstance(world.store, S3Store)
    return ceph.bucket_bytes(world.store.bucket)


def _line(taken: Inventory, line: Line) -> int:
    assert taken.whole.equation.closes()
    return taken.whole.equation.totals[line].size_bytes


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bucket_that_agrees_is_explained_to_the_byte(
    make: Make, versioned: bool, ceph: Ceph
) -> None:
    world = make(versioned)
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    follow(world.catalog, world.stores, PROJECT)

    accounted = _accounted(world, ceph)
    taken = _take(world)

    assert world.state(copies[0]) == "quarantined"
    assert not taken.differences
    assert _line(taken, Line.COMMITTED) == sum(one.stored_bytes for one in copies[2:])
    assert _line(taken, Line.QUARANTINED) == sum(one.stored_bytes for one in copies[:2])
    assert taken.whole.equation.sum_bytes == accounted


def test_overwritten_versions_are_noncurrent_and_an_overwritten_copy_is_seen(
    make: Make, ceph: Ceph
) -> None:
    world = make(True)
    kept = world.commit(1, {"model.bin": b"m" * 100})
    key = layout.object_key(kept.prefix, "model.bin")
    store = world.store
    assert isinstance(store, S3Store)
    store._client.put_object(Bucket=store.bucket, Key=f"jobs/{key}", Body=b"other")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"1234567")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"123")
    store._client.put_object(Bucket=store.bucket, Key="jobs/away", Body=b"12345678901")
    store._client.delete_object(Bucket=store.bucket, Key="jobs/away")
    stray = Key("checkpoints/vision/gpt/nothing")
    send_parts(store, stray, store.create_upload(stray, 60), b"s" * 60)

    accounted = _accounted(world, ceph)
    taken = _take(world)

    causes = {(place.project, place.cause) for place in taken.differences}
    assert causes == {
        (PROJECT, Cause.MISPLACED),
        (PROJECT, Cause.UNTRACKED),
        (PROJECT, Cause.UNKNOWN_UPLOAD),
        (SHARED, Cause.UNTRACKED),
    }
    assert _line(taken, Line.NONCURRENT) == 100 + 7
    assert _line(taken, Line.UNEXPLAINED) == 5 + 3 + 11 + 60
    named = {name: (one.size_bytes, one.objects) for name, one in taken.causes.items()}
    assert named["noncurrent-versions"] == (100 + 7, 2)
    assert named["delete-markers"] == (0, 1)
    assert named["pending-parts"] == named["unknown-upload"] == (60, 1)
    assert named["untracked"] == (5 + 3 + 11, 3)
    assert taken.whole.equation.sum_bytes == accounted


def test_pending_uploads_of_a_bucket_count_with_their_attempt(make: Make, ceph: Ceph) -> None:
    world = make(False)
    attempt = world.prepare(1, {"a": b"p" * 70})
    key = Key(layout.object_key(attempt.prefix, "a"))
    send_parts(world.store, key, world.store.create_upload(key, 70), b"p" * 70)

    accounted = _accounted(world, ceph)
    taken = _take(world)

    assert _line(taken, Line.OPEN) == 70
    assert taken.uploads.size_bytes == 70
    assert not taken.differences
    assert taken.whole.equation.sum_bytes == accounted
