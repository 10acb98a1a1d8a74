"""A real S3 server for the tests: one Ceph node per run, shared by its workers."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import boto3
import pytest

from lastgood.stack.ceph import DESCRIPTION, Ceph, missing_programs, stop
from lastgood.stores.s3_client import CONFIG, prepared
from tests.ceph.attesting import AttestingServer

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REQUIRED = "LASTGOOD_REQUIRE_CEPH"
_FOLDERS = "lastgood-test-ceph-"
_bucket_numbers = itertools.count(1)


class MakeBucket(Protocol):
    """Makes an empty bucket of the cluster and tells its name."""

    def __call__(self, *, versioned: bool = False, object_lock: bool = False) -> str:
        """Object Lock comes with versioning."""


@pytest.fixture(scope="session")
def ceph() -> Iterator[Ceph]:
    """The run's Ceph node. Skipped where Ceph is not installed, unless LASTGOOD_REQUIRE_CEPH=1:
    then its absence is a failure."""
    missing = missing_programs()
    if missing:
        reason = f"needs Ceph, {', '.join(missing)} not found: install radosgw ceph-mon ceph-osd"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason} ({REQUIRED}=1)")
        pytest.skip(reason)
    _remove_clusters_of_killed_runs()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"{_FOLDERS}{run}"
    with _shared(folder) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ceph_client(ceph: Ceph) -> Iterator[S3Client]:
    """A client of the cluster's ordinary user, as the stores have it."""
    client = client_of(ceph)
    yield client
    client.close()


def bucket_maker(client: S3Client) -> MakeBucket:
    """A function that makes a new bucket of the client's server."""

    def make(*, versioned: bool = False, object_lock: bool = False) -> str:
        bucket = f"bucket-{os.getpid()}-{next(_bucket_numbers)}"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=object_lock)
        if versioned and not object_lock:
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return bucket

    return make


@pytest.fixture(scope="session")
def make_ceph_bucket(ceph_client: S3Client) -> MakeBucket:
    """A function that makes a new bucket."""
    return bucket_maker(ceph_client)


@pytest.fixture
def ceph_bucket(make_ceph_bucket: MakeBucket) -> str:
    """A new bucket without versions."""
    return make_ceph_bucket()


@pytest.fixture
def ceph_versioned_bucket(make_ceph_bucket: MakeBucket) -> str:
    """A new bucket with versions."""
    return make_ceph_bucket(versioned=True)


@pytest.fixture
def ceph_locked_bucket(make_ceph_bucket: MakeBucket) -> str:
    """A new bucket with Object Lock, and no default retention."""
    return make_ceph_bucket(object_lock=True)


def client_of(
    ceph: Ceph,
    access_key: str | None = None,
    secret_key: str | None = None,
    *,
    endpoint: str | None = None,
) -> S3Client:
    """A client of the cluster, of its ordinary user unless told otherwise, through the server
    before it if there is one."""
    return prepared(
        boto3.client(
            "s3",
            endpoint_url=endpoint or ceph.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access_key or ceph.access_key,
            aws_secret_access_key=secret_key or ceph.secret_key,
            config=CONFIG,
        )
    )


@pytest.fixture(scope="session")
def attesting(ceph: Ceph) -> Iterator[AttestingServer]:
    """A server before the cluster that checks the SHA-256 of what it receives."""
    with AttestingServer(ceph.endpoint).running() as server:
        yield server


@contextmanager
def environment_of(ceph: Ceph, endpoint: str | None = None) -> Iterator[None]:
    """boto3 reaches the cluster by its own settings meanwhile."""
    with s3_environment(endpoint or ceph.endpoint, ceph.access_key, ceph.secret_key):
        yield


@contextmanager
def s3_environment(endpoint: str, access_key: str, secret_key: str) -> Iterator[None]:
    """boto3 reaches this S3 server by its own settings meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret_key)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of its first use
        yield


@contextmanager
def _shared(folder: Path) -> Iterator[Ceph]:
    """The first worker to come starts the cluster, the last one to go stops it; the locks are the
    kernel's, so that a killed worker counts as gone."""
    with ExitStack() as stack:
        with _alone(folder):
            users = stack.enter_context(_users(folder).open("w"))
            fcntl.flock(users, fcntl.LOCK_SH)
            started = (folder / DESCRIPTION).exists()
            cluster = Ceph.running(folder) if started else Ceph.start(folder)
        yield cluster
        with _alone(folder):
            _stop_unless_used(folder, users)


def _users(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.users")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else starts or stops the cluster of this folder meanwhile."""
    path = folder.with_name(f"{folder.name}.lock")
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever had it before may have removed the file.
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return


def _stop_unless_used(folder: Path, users: IO[str]) -> None:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    stop(folder)
    _users(folder).unlink(missing_ok=True)
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)


def _remove_clusters_of_killed_runs() -> None:
    for found in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*.users"):
        folder = found.with_name(found.name.removesuffix(".users"))
        with suppress(FileNotFoundError):  # another run may remove it meanwhile
            if found.stat().st_uid == os.geteuid():
                with _alone(folder), found.open("w") as users:
                    _stop_unless_used(folder, users)
