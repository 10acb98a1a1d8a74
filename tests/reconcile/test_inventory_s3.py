"""Buckets have versions, delete markers and pending uploads: each is a line, and nothing is
left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from tests.factories import send_parts
from tests.localstack.fixtures import plain_client
from tests.reconcile.taking import take
from tests.retention.world import PROJECT, World, opened
from tests.s3_servers import new_store

Make = Callable[[bool], World]
Accounted = Callable[[World], int]


@pytest.fixture(params=["ceph", pytest.param("localstack", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(
    server: str,
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Make]:
    """A function that makes a world over a new bucket, versioned or not."""
    worlds = []

    def world(versioned: bool) -> World:
        kind = f"{server}-versioned" if versioned else server
        store = new_store(request, "bucket", kind, "jobs")
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


@pytest.fixture
def accounted(server: str, request: pytest.FixtureRequest) -> Accounted:
    """What the server itself accounts to a world's bucket, or, as LocalStack accounts nothing, what
    boto3 lists of it."""
    if server == "localstack":
        return _summed
    ceph: Ceph = request.getfixturevalue("ceph")
    return lambda world: ceph.bucket_bytes(_store(world).bucket)


def _summed(world: World) -> int:
    client = plain_client(_store(world).client.meta.endpoint_url)
    bucket: Any = {"Bucket": _store(world).bucket}
    versions = client.list_object_versions(**bucket).get("Versions", ())
    begun = client.list_multipart_uploads(**bucket).get("Uploads", ())
    parts = [
        part["Size"]
        for one in begun
        for part in client.list_parts(**bucket, Key=one["Key"], UploadId=one["UploadId"])["Parts"]
    ]
    return sum(one["Size"] for one in versions) + sum(parts)


def _store(world: World) -> S3Store:
    assert isinstance(world.store, S3Store)
    return world.store


def _line(taken: Inventory, line: Line) -> int:
    assert taken.whole.equation.closes()
    return taken.whole.equation.totals[line].size_bytes


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bucket_that_agrees_is_explained_to_the_byte(
    make: Make, versioned: bool, accounted: Accounted
) -> None:
    world = make(versioned)
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    follow(world.catalog, world.stores, PROJECT)

    told = accounted(world)
    taken = _take(world)

    assert world.state(copies[0]) == "quarantined"
    assert not taken.differences
    assert _line(taken, Line.COMMITTED) == sum(one.stored_bytes for one in copies[2:])
    assert _line(taken, Line.QUARANTINED) == sum(one.stored_bytes for one in copies[:2])
    assert taken.whole.equation.sum_bytes == told


def test_overwritten_versions_are_noncurrent_and_an_overwritten_copy_is_seen(
    make: Make, accounted: Accounted
) -> None:
    world = make(True)
    kept = world.commit(1, {"model.bin": b"m" * 100})
    key = layout.object_key(kept.prefix, "model.bin")
    store = _store(world)
    store._client.put_object(Bucket=store.bucket, Key=f"jobs/{key}", Body=b"other")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"1234567")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"123")
    store._client.put_object(Bucket=store.bucket, Key="jobs/away", Body=b"12345678901")
    store._client.delete_object(Bucket=store.bucket, Key="jobs/away")
    stray = Key("checkpoints/vision/gpt/nothing")
    send_parts(store, stray, store.create_upload(stray, 60), b"s" * 60)

    told = accounted(world)
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
    assert taken.whole.equation.sum_bytes == told


def test_pending_uploads_of_a_bucket_count_with_their_attempt(
    make: Make, accounted: Accounted
) -> None:
    world = make(False)
    attempt = world.prepare(1, {"a": b"p" * 70})
    key = Key(layout.object_key(attempt.prefix, "a"))
    send_parts(world.store, key, world.store.create_upload(key, 70), b"p" * 70)

    told = accounted(world)
    taken = _take(world)

    assert _line(taken, Line.OPEN) == 70
    assert taken.uploads.size_bytes == 70
    assert not taken.differences
    assert taken.whole.equation.sum_bytes == told
