"""Buckets have versions, delete markers and pending uploads: each is a line, and nothing is
left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from lastgood.flows.inventory import Inventory, take
from lastgood.flows.inventory_merge import Cause
from lastgood.flows.inventory_owners import SHARED
from lastgood.flows.quarantine import follow
from lastgood.rules import layout
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import Key
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from tests.factories import send_parts
from tests.retention.world import PROJECT, World, opened

Make = Callable[[bool], World]


@pytest.fixture
def make(catalog_dsn: str, owner_dsn: str, tmp_path: Path, moto_s3: str) -> Iterator[Make]:
    """A function that makes a world over a new bucket, versioned or not."""
    client = prepared(
        boto3.client(
            "s3",
            endpoint_url=moto_s3,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=CONFIG,
        )
    )
    worlds = []

    def world(versioned: bool) -> World:
        bucket = f"reconcile-{uuid4().hex[:12]}"
        client.create_bucket(Bucket=bucket)
        if versioned:
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        made = opened(catalog_dsn, owner_dsn, tmp_path, S3Store("bucket", client, bucket, "jobs"))
        worlds.append(made)
        return made.__enter__()

    yield world
    for made in worlds:
        made.__exit__(None, None, None)
    client.close()


def _take(world: World) -> Inventory:
    return take(world.catalog, world.store, accounts_for=[PROJECT], projects=[PROJECT])


def _line(taken: Inventory, line: Line) -> int:
    assert taken.whole.equation.closes()
    return taken.whole.equation.totals[line].size_bytes


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bucket_that_agrees_is_explained_to_the_byte(make: Make, versioned: bool) -> None:
    world = make(versioned)
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    follow(world.catalog, world.stores, PROJECT)

    taken = _take(world)

    assert world.state(copies[0]) == "quarantined"
    assert not taken.differences
    assert _line(taken, Line.COMMITTED) == sum(one.stored_bytes for one in copies[2:])
    assert _line(taken, Line.QUARANTINED) == sum(one.stored_bytes for one in copies[:2])


def test_overwritten_versions_are_noncurrent_and_an_overwritten_copy_is_seen(make: Make) -> None:
    world = make(True)
    kept = world.commit(1, {"model.bin": b"m" * 100})
    key = layout.object_key(kept.prefix, "model.bin")
    store = world.store
    assert isinstance(store, S3Store)
    store._client.put_object(Bucket=store.bucket, Key=f"jobs/{key}", Body=b"other")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"1234567")
    store._client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=b"123")

    taken = _take(world)

    causes = {(place.project, place.cause) for place in taken.differences}
    assert causes == {(PROJECT, Cause.SIZE_DIFFERS), (SHARED, Cause.UNTRACKED)}
    assert _line(taken, Line.NONCURRENT) == 100 + 7
    assert _line(taken, Line.UNEXPLAINED) == 5 + 3


def test_pending_uploads_of_a_bucket_count_with_their_attempt(make: Make) -> None:
    world = make(False)
    attempt = world.prepare(1, {"a": b"p" * 70})
    key = Key(layout.object_key(attempt.prefix, "a"))
    send_parts(world.store, key, world.store.create_upload(key, 70), b"p" * 70)

    taken = _take(world)

    assert _line(taken, Line.OPEN) == 70
    assert taken.uploads.size_bytes == 70
    assert not taken.differences
