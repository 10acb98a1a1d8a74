"""A store that does not answer is told within seconds to who is in a hurry; long work is as patient
with it as ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import boto3
import pytest
from botocore.config import Config

from lastgood.stores import hurry, s3_patience
from lastgood.stores.base import StoreError
from lastgood.stores.hurry import hurried
from lastgood.stores.postgres import PostgresStore
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_errors import StoreSilent, StoreThrottled
from tests.faults.s3_proxy import Answer, Rule, S3Proxy

ATTEMPTS = 6  # of long work
SOON = timedelta(milliseconds=50)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Proxy]:
    """One with nothing behind it: every request meets a rule."""
    with S3Proxy("http://127.0.0.1:1").running() as running:
        yield running


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = "botocore.retries.standard.ExponentialBackoff.delay_amount"
    monkeypatch.setattr(soon, lambda *_: 0.0)


class Client:
    """Opens a store, and counts how often its first question was sent."""

    def __init__(self, endpoint: str) -> None:
        waits = Config(connect_timeout=0.1)
        self._client = prepared(
            boto3.client(
                "s3",
                endpoint_url=endpoint,
                region_name="us-east-1",
                aws_access_key_id="nobody",
                aws_secret_access_key="nothing",
                config=CONFIG.merge(waits),
            )
        )
        self.sent = 0
        self._client.meta.events.register("before-send.s3", self._count)

    def _count(self, **_: object) -> None:
        self.sent += 1

    def open(self) -> None:
        S3Store("cold", self._client, "bucket")


@contextmanager
def where_packets_vanish() -> Iterator[tuple[str, int]]:
    """An address whose queue of connections is full: what is sent there is dropped."""
    with ExitStack() as open_ones:
        server = open_ones.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = open_ones.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()


def test_a_black_hole_is_told_after_one_connection_that_did_not_come_about() -> None:
    with where_packets_vanish() as (host, port):
        client = Client(f"http://{host}:{port}")
        with pytest.raises(StoreSilent, match="Connect timeout"), hurried():
            client.open()
        assert client.sent == 1
        with pytest.raises(StoreSilent, match="Connect timeout"):
            client.open()
        assert client.sent == 1 + ATTEMPTS


def test_a_refused_connection_is_tried_once_more() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(StoreSilent, match="Could not connect"), hurried():
        client.open()
    assert client.sent == s3_patience.UNANSWERED_ATTEMPTS
    with pytest.raises(StoreSilent, match="Could not connect"):
        client.open()
    assert client.sent == s3_patience.UNANSWERED_ATTEMPTS + ATTEMPTS


def test_a_server_that_takes_the_question_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_patience, "ANSWER_WITHIN", SOON)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(StoreSilent, match="Read timeout"), hurried():
            client.open()  # which waits a minute for long work
    assert client.sent == s3_patience.UNANSWERED_ATTEMPTS


def test_a_gateway_with_nothing_behind_it(server: S3Proxy) -> None:
    server.set(Rule("", Answer(503, "SlowDown"), times=None))
    client = Client(server.endpoint)
    with pytest.raises(StoreThrottled, match="of bucket 'bucket'"), hurried():
        client.open()
    assert client.sent == s3_patience.REFUSED_ATTEMPTS
    with pytest.raises(StoreThrottled):
        client.open()
    assert client.sent == s3_patience.REFUSED_ATTEMPTS + ATTEMPTS


def test_a_database_where_packets_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurry, "CONNECT_WITHIN", timedelta(seconds=2))  # the least that libpq takes
    with (
        where_packets_vanish() as (host, port),
        pytest.raises(StoreError, match=r"connect: .*timeout"),
    ):
        PostgresStore("small", f"host={host} port={port} user=x dbname=x password=x", "lastgood")
