"""One store of each kind, empty, for the same test bodies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from lastgood.stores import parts
from lastgood.stores.base import Store
from lastgood.stores.file import FileStore
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared

MiB = 1 << 20
_bucket_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 5 MiB, the least that S3 takes, so that three of them are quickly sent."""
    monkeypatch.setattr(parts, "PART_BYTES", 5 * MiB)


@pytest.fixture
def bucket_store(moto_s3: str) -> Iterator[Callable[..., S3Store]]:
    """A function that makes a store of a new bucket."""
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

    def make(*, versioned: bool = False, prefix: str = "jobs/a+b c") -> S3Store:
        bucket = f"conformance-{next(_bucket_numbers)}"
        client.create_bucket(Bucket=bucket)
        if versioned:
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return S3Store("stored", client, bucket, prefix)

    yield make
    client.close()


@pytest.fixture(params=["file", "file-direct", "s3", "s3-versioned"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, bucket_store: Callable[..., S3Store]
) -> Store:
    if request.param.startswith("file"):
        return FileStore("stored", tmp_path, direct=request.param == "file-direct")
    return bucket_store(versioned=request.param == "s3-versioned")
