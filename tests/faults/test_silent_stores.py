"""A store that does not answer is told within seconds to who is in a hurry; long work is as patient
with it as ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from lastgood.stores import hurry, s3_patience
from lastgood.stores.base import EVERYTHING, Key, StoreError
from lastgood.stores.folder_questions import FolderHangs, answered
from lastgood.stores.hurry import hurried
from lastgood.stores.open import StoreConfig, Stores
from lastgood.stores.postgres import PostgresStore
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_errors import StoreSilent, StoreThrottled
from tests.concurrency.sessions import Session
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.waiting import wait_for

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


class Mount:
    """A folder of which every opening waits for `answers`, as on a mount whose server is away, and
    takes `each_seconds`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.answers = threading.Event()
        self.each_seconds = 0.0
        self._open = os.open
        monkeypatch.setattr(os, "open", self._opened)

    def _opened(self, path: Any, *flags: Any, **options: Any) -> int:
        if str(path) == str(self.root):
            self.answers.wait()
        if threading.current_thread().name.startswith("ask-cold"):
            time.sleep(self.each_seconds)
        return self._open(path, *flags, **options)

    @property
    def threads(self) -> int:
        """How many threads stand in it."""
        return sum(one.name == "ask-cold" for one in threading.enumerate())


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with pytest.MonkeyPatch.context() as patch:
        found = Mount(tmp_path, patch)
        yield found
        found.answers.set()
        wait_for(lambda: found.threads == 0)


def test_a_folder_that_hangs_is_told_soon_and_keeps_one_thread_however_often_it_is_asked(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores(lambda name: StoreConfig(name, "file", str(mount.root)))
    with monkeypatch.context() as patch:
        patch.setattr(hurry, "ANSWER_WITHIN", SOON)
        for _ in range(20):
            with pytest.raises(FolderHangs, match=r"Store cold does not answer: .* for 0.05 s"):
                stores["cold"]
        asking = Session(lambda: stores["cold"])
        with pytest.raises(FolderHangs):
            asking.result()
        assert mount.threads == 1
        mount.answers.set()
        wait_for(lambda: mount.threads == 0)
    assert stores["cold"].stat(Key("absent")) is None


def test_a_folder_that_is_slow_is_waited_for(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    mount.answers.set()
    store = Stores(lambda name: StoreConfig(name, "file", str(mount.root)))["cold"]
    for folder in range(5):
        (mount.root / f"{folder}").mkdir()
        (mount.root / f"{folder}" / "object").touch()
    monkeypatch.setattr(hurry, "ANSWER_WITHIN", timedelta(seconds=1))
    mount.each_seconds = 0.3
    with hurried():
        found = answered(store, lambda: list(store.list(EVERYTHING)))
    assert len(found) == 5
