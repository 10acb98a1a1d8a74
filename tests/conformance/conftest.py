"""One store of each kind, empty, for the same test bodies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores import parts
from lastgood.stores.base import Store
from lastgood.stores.file import FileStore
from lastgood.stores.postgres import PostgresStore
from lastgood.stores.postgres_database import create_tables
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from tests.conftest import APP_ROLE
from tests.s3_servers import CEPH, LOCALSTACK, new_store

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MiB = 1 << 20
KINDS = ["file", "file-direct", "postgres", "s3", "s3-versioned", *CEPH, LOCALSTACK[1]]
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 5 MiB, the least that S3 takes, so that three of them are quickly sent."""
    monkeypatch.setattr(parts, "PART_BYTES", 5 * MiB)


@pytest.fixture(scope="session")
def moto_client(moto_s3: str) -> Iterator[S3Client]:
    """A client of moto's server; making one takes longer than most of these tests."""
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
    yield client
    client.close()


@pytest.fixture
def bucket_store(moto_client: S3Client) -> Callable[..., S3Store]:
    """A function that makes a store of a new bucket of moto."""

    def make(*, versioned: bool = False, prefix: str = "jobs/a+b c") -> S3Store:
        bucket = f"conformance-{next(_numbers)}"
        moto_client.create_bucket(Bucket=bucket)
        if versioned:
            moto_client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return S3Store("stored", moto_client, bucket, prefix)

    return make


@pytest.fixture
def schema_store(
    postgres: EmbeddedPostgres, store_database: str
) -> Iterator[Callable[[], PostgresStore]]:
    """A function that makes a store of a new schema."""
    with ExitStack() as stack:

        def make() -> PostgresStore:
            schema = f"store_{next(_numbers)}"
            create_tables(postgres.dsn(store_database), schema, role=APP_ROLE)
            made = PostgresStore("stored", postgres.dsn(store_database, APP_ROLE), schema)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="session")
def store_database(postgres: EmbeddedPostgres) -> str:
    """The name of a database for the tables of stores."""
    postgres.create_role(APP_ROLE)
    postgres.create_database("stores")
    return "stores"


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which one of the kinds the test's store is."""
    found: str = request.node.callspec.params["store"]
    return found


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param.startswith("file"):
        return FileStore("stored", tmp_path, direct=request.param == "file-direct")
    made: Store
    if request.param == "postgres":
        made = request.getfixturevalue("schema_store")()
    elif request.param.startswith("s3"):
        made = request.getfixturevalue("bucket_store")(versioned=request.param == "s3-versioned")
    else:
        # LocalStack 4.13 compares where a page begins with encoded keys, and so loses some.
        prefix = "jobs" if request.param.startswith("localstack") else "jobs/a+b c"
        made = new_store(request, "stored", request.param, prefix)
    return made
