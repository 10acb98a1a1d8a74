"""A project in a file store, and in buckets of moto's server and of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from lastgood.stores.file import FileStore
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from tests.retention.world import World, opened

PREFIX = "team/a b+c%20"


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """In a file store."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def direct_world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """In a file store into whose folders jobs write themselves."""
    (tmp_path / "store").mkdir()
    store = FileStore("local", tmp_path / "store", direct=True)
    with opened(catalog_dsn, owner_dsn, tmp_path / "store", store) as found:
        yield found


@pytest.fixture
def bucket(moto_s3: str) -> Iterator[S3Store]:
    """A prefix of a bucket of moto."""
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
    name = f"uploads-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    yield S3Store("cloud", client, name, PREFIX)
    client.close()


@pytest.fixture
def s3_world(bucket: S3Store, catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path, bucket) as found:
        yield found


@pytest.fixture
def ceph_world(
    ceph_client: object, ceph_bucket: str, catalog_dsn: str, owner_dsn: str, tmp_path: Path
) -> Iterator[World]:
    store = S3Store("cloud", ceph_client, ceph_bucket, PREFIX)  # type: ignore[arg-type]
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as found:
        yield found
