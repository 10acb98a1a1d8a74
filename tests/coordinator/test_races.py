"""Two real sessions, one of which waits for the other's lock: what it then finds is the present."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, copies, copy_transitions, generations, stages
from tests.coordinator.api import RUNNER, Api, bearer, ok, refused
from tests.waiting import wait_for

WAIT_SECONDS = 60
FILES = {"a.bin": b"a" * 100}
T = TypeVar("T")


class Sessions:
    """Holds a lock in one session while another runs into it."""

    def __init__(self, catalog: Catalog, dsn: str, threads: ThreadPoolExecutor) -> None:
        self._catalog = catalog
        self._dsn = dsn
        self._threads = threads

    def while_waiting(
        self, hold: Callable[[Transaction], T], run: Callable[[], Any]
    ) -> tuple[T, Any]:
        """`hold` takes its locks and acts; `run` starts in another session, and only once it waits
        for a lock the first one commits. Answers what both gave."""
        with self._catalog.transaction() as tx:
            held = hold(tx)
            running: Future[Any] = self._threads.submit(run)
            self._wait_for_a_waiter(running)
        return held, running.result(WAIT_SECONDS)

    def _wait_for_a_waiter(self, running: Future[Any]) -> None:
        def somebody_waits() -> bool:
            waiting = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            assert not running.done(), f"it did not wait: {running.result()}"
            return waiting is not None and bool(waiting[0])

        with psycopg.connect(self._dsn, autocommit=True) as watcher:
            wait_for(somebody_waits)


@pytest.fixture
def sessions(catalog: Catalog, catalog_dsn: str) -> Iterator[Sessions]:
    with ThreadPoolExecutor(2) as threads:
        yield Sessions(catalog, catalog_dsn, threads)


def stage_of(catalog: Catalog) -> int:
    with catalog.transaction() as tx:
        row = tx.execute("SELECT stage_id FROM stages WHERE project = 'vision'").fetchone()
    assert row is not None
    stage_id: int = row["stage_id"]
    return stage_id


def fence_first(stage_id: int) -> Callable[[Transaction], bool]:
    def fence(tx: Transaction) -> bool:
        stage = stages.locked(tx, "vision", stage_id)
        return generations.fence(tx, stage, 1, actor="test", reason="meanwhile")

    return fence


@pytest.mark.parametrize("what", ["prepare", "grant", "heartbeat", "commit"])
def test_whoever_waited_for_the_lock_sees_that_it_was_fenced_meanwhile(
    api: Api, catalog: Catalog, sessions: Sessions, what: str
) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    asked = {
        "prepare": lambda: writer.prepare(2, FILES),
        "grant": lambda: writer.post(f"checkpoints/{saved.attempt}/grants", {}),
        "heartbeat": lambda: writer.post("heartbeats", {}),
        "commit": lambda: writer.commit(saved.attempt, saved.manifest),
    }[what]
    fenced, answer = sessions.while_waiting(fence_first(stage_of(catalog)), asked)
    assert fenced
    refused(answer, 409, "fenced-generation")
    assert api.latest()["checkpoint"] is None


def test_history_is_in_order_although_a_transaction_began_earlier_and_waited(
    api: Api, catalog: Catalog, sessions: Sessions
) -> None:
    api.writer()
    stage_id = stage_of(catalog)
    began = threading.Event()
    may_lock = threading.Event()

    def early() -> history.Event:
        with catalog.transaction() as tx:
            tx.execute("SELECT now()")  # its transaction begins before the other's
            began.set()
            assert may_lock.wait(WAIT_SECONDS)
            stages.locked(tx, "vision", stage_id)
            return history.record(tx, stage_id, "early", actor="test", facts={})

    def late(tx: Transaction) -> history.Event:
        stages.locked(tx, "vision", stage_id)
        recorded = history.record(tx, stage_id, "late", actor="test", facts={})
        may_lock.set()
        return recorded

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(early)
        assert began.wait(WAIT_SECONDS)
        first, second = sessions.while_waiting(late, lambda: running.result(WAIT_SECONDS))
    assert second.number == first.number + 1
    assert second.recorded_at > first.recorded_at


def test_a_part_that_arrives_while_the_attempt_is_sealed_is_refused(
    api: Api, catalog: Catalog, sessions: Sessions
) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    attempt_id = UUID(saved.attempt)
    stage_id = stage_of(catalog)

    def seal(tx: Transaction) -> None:
        stages.locked(tx, "vision", stage_id)
        locks.attempt(tx, attempt_id)
        attempt = attempts.get(tx, "vision", attempt_id)
        attempts.transition(tx, attempt, attempts.State.SEALED, actor="test", reason="test")

    _, late = sessions.while_waiting(seal, lambda: writer.put(saved.attempt, "a.bin", b"b" * 100))
    problem = refused(late, 409, "attempt-state")
    assert problem["state"] == "sealed"
    refused(writer.put(saved.attempt, "a.bin", b"c" * 100), 409, "attempt-state")


def test_a_late_part_never_changes_what_was_committed(api: Api) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    ok(writer.commit(saved.attempt, saved.manifest))
    refused(writer.put(saved.attempt, "a.bin", b"b" * 100), 409, "attempt-state")
    reading = ok(api.reader(), 201)
    got = api.client.get(reading["objects"][0]["url"], headers=bearer(reading["token"]))
    assert got.content == FILES["a.bin"]


def test_a_reader_of_the_latest_that_waited_for_a_sweep_gets_no_lease_on_what_it_took(
    api: Api, catalog: Catalog, sessions: Sessions
) -> None:
    api.writer().save(1, FILES)
    stage_id = stage_of(catalog)

    def quarantine(tx: Transaction) -> None:
        stages.locked(tx, "vision", stage_id)
        [copy] = copies.in_state(tx, "vision", copies.State.PRESENT)
        locks.copies(tx, [copy.copy_id])
        copy_transitions.transition(
            tx, copy, copies.State.QUARANTINED, actor="test", reason="swept"
        )

    _, answer = sessions.while_waiting(quarantine, api.reader)
    refused(answer, 404, "not-found")
    with catalog.transaction() as tx:
        assert tx.execute("SELECT 1 FROM reader_leases").fetchone() is None


def test_one_request_that_is_sent_twice_at_once_opens_one_attempt(
    api: Api, catalog: Catalog
) -> None:
    writer = api.writer()
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: writer.prepare(1, FILES), range(6)))
    assert {ok(answer, 201)["attempt"] for answer in answers} == {answers[0].json()["attempt"]}
    assert len({answer.json()["fencing_token"] for answer in answers}) == 1
    with catalog.transaction() as tx:
        assert len(tx.execute("SELECT 1 FROM attempts").fetchall()) == 1


def test_one_commit_that_is_sent_twice_at_once_commits_once(api: Api, catalog: Catalog) -> None:
    writer = api.writer()
    files = {f"shard-{n}": bytes([n]) * 5000 for n in range(8)}
    saved = writer.upload(1, files)
    with ThreadPoolExecutor(6) as threads:
        answers = list(
            threads.map(lambda _: writer.commit(saved.attempt, saved.manifest), range(6))
        )
    assert {ok(answer)["manifest_digest"] for answer in answers} == {
        answers[0].json()["manifest_digest"]
    }
    with catalog.transaction() as tx:
        assert len(tx.execute("SELECT 1 FROM checkpoints").fetchall()) == 1
        counters = tx.execute(
            "SELECT in_flight_bytes, committed_bytes FROM capacity_counters"
            " WHERE project = 'vision'"
        ).fetchone()
        copy = copies.in_state(tx, "vision", copies.State.PRESENT)[0]
    assert counters == {"in_flight_bytes": 0, "committed_bytes": copy.stored_bytes}


def test_a_part_half_way_in_when_the_attempt_is_sealed_is_in_no_checkpoint(
    api: Api, store_root: Path
) -> None:
    writer = api.writer()
    prepared = ok(writer.prepare(1, FILES), 201)
    attempt = prepared["attempt"]
    url = api.client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=WAIT_SECONDS) as connection:
        head = (
            f"PUT {RUNNER}/objects/{attempt}/a.bin?part=1 HTTP/1.1\r\nHost: test\r\n"
            "Connection: close\r\n"
            f"Authorization: Bearer {writer.token}\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head.encode() + b"a" * 50)
        wait_for(lambda: list(store_root.glob(".uploads/*/00001.writer")))
        manifest = writer.manifest(1, FILES)
        refused(writer.commit(attempt, manifest), 422, "missing-object")
        connection.sendall(b"a" * 50)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 409 " in answer.split(b"\r\n")[0]
    assert b"attempt-state" in answer
    assert list(store_root.glob(f"checkpoints/**/{attempt}/**/*")) == []
    assert api.latest()["checkpoint"] is None
