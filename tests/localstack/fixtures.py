"""A second real S3 server for the tests, held against AWS by its makers: LocalStack's, which checks
additional checksums and completes conditionally. Ceph 16 does neither."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from lastgood.stack.ports import LOOPBACK, free_port
from lastgood.stores.s3_client import CONFIG, prepared
from tests.ceph.fixtures import MakeBucket, bucket_maker

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REQUIRED = "LASTGOOD_REQUIRE_LOCALSTACK"
PYTHON = Path(__file__).resolve().parents[2] / ".venv/localstack/bin/python"
STARTS = 3  # a free port may be taken before the server binds it
READY_SECONDS = 120.0


@pytest.fixture(scope="session")
def localstack() -> Iterator[str]:
    """The endpoint URL of a server of this worker. Skipped where it is not installed, unless
    LASTGOOD_REQUIRE_LOCALSTACK=1: then its absence is a failure."""
    if not PYTHON.exists():
        reason = "needs LocalStack: `make localstack` installs it"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason} ({REQUIRED}=1)")
        pytest.skip(reason)
    with running() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def localstack_client(localstack: str) -> Iterator[S3Client]:
    """A client of the server, as the stores have it."""
    client = prepared(plain_client(localstack))
    yield client
    client.close()


@pytest.fixture(scope="session")
def make_localstack_bucket(localstack_client: S3Client) -> MakeBucket:
    """A function that makes a new bucket."""
    return bucket_maker(localstack_client)


def plain_client(endpoint: str) -> S3Client:
    """A client of the server as boto3 makes it. Any credentials do."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=CONFIG,
    )


@contextmanager
def running() -> Iterator[str]:
    """A server of one's own, in a folder that goes with it."""
    for remaining in reversed(range(STARTS)):
        with tempfile.TemporaryDirectory(prefix="lastgood-test-localstack-") as folder:
            port = free_port()
            endpoint = f"http://{LOOPBACK}:{port}"
            with process(port, Path(folder)) as server:
                if answers(endpoint, server):
                    yield endpoint
                    return
            said = Path(folder, "log").read_text()[-2000:]
        assert remaining, f"LocalStack does not answer: {said}"


@contextmanager
def process(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is being started, with its files below an empty folder."""
    program = Path(__file__).with_name("server.py")
    with Path(folder, "log").open("wb") as log:
        server = subprocess.Popen(
            [PYTHON, program, str(port), str(folder)],
            # Where Python may not keep what it compiled, each start takes seconds longer.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        yield server
    finally:
        server.kill()  # nothing is kept
        server.wait()
        assert server.stdin is not None
        server.stdin.close()


def answers(endpoint: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait until it does; False if it ended before."""
    until = time.monotonic() + READY_SECONDS
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{endpoint}/_localstack/health", timeout=5).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False
