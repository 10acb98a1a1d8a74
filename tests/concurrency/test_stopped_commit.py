"""A commit that is stopped before it writes into its store, while others finish it, sweep the
checkpoint away and close its record: when it goes on, nothing of it may appear there again."""

# ruff: noqa: F811 -- fixtures are imported, and named again where they are used

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from lastgood.catalog import locks
from lastgood.catalog.jobs import attempts, copies, generations, stages
from lastgood.errors import FencedGeneration
from lastgood.flows.jobs import commit, failures
from lastgood.flows.retention import mark
from lastgood.flows.services import Services
from lastgood.flows.sweeping import sweep
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import Key, Prefix, StoredObject
from lastgood.stores.file import FileStore
from tests.conftest import MoveClock
from tests.coordinator.api import Api, Writer, ok, refused
from tests.coordinator.conftest import (  # noqa: F401 -- fixtures
    CONFIG,
    api,
    catalog,
    client,
    coordinator,
    services,
    store_root,
    var,
)

WAIT_SECONDS = 60


@pytest.fixture
def config() -> dict[str, str]:
    return {
        **CONFIG,
        "policies/small.yaml": """\
            name: small
            roles:
              hot: {keep: newest, count: 1}
            gate: {level: checksum}
            quarantine: {grace: 5m, share_guard: 100%}
            leases: {generation: 1h, writer: 1m, grant: 30s, reader: 5m}
            """,
    }


class Stopped:
    """A commit in a thread of its own, stopped where it is about to write a key."""

    def __init__(self, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        write = FileStore.put_new

        def put_new(store: FileStore, key: Key, data: bytes) -> StoredObject:
            if threading.current_thread() is self._thread and key.endswith(before):
                self._stop()
            return write(store, key, data)

        monkeypatch.setattr(FileStore, "put_new", put_new)

    def _stop(self) -> None:
        self.reached.set()
        assert self.goes_on.wait(WAIT_SECONDS)

    def start(self, *said: Any) -> None:
        self._said = said
        self._thread.start()
        assert self.reached.wait(WAIT_SECONDS)

    def _run(self) -> None:
        try:
            commit.commit(*self._said)
        except BaseException as error:
            self.errors.append(error)

    def end(self) -> None:
        self.goes_on.set()
        if self._thread.is_alive():
            self._thread.join(WAIT_SECONDS)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Stopped]:
    found = Stopped(request.param, monkeypatch)
    yield found
    found.end()


def sweep_all_but_the_newest(services: Services, move_clock: MoveClock) -> None:
    with services.catalog.transaction() as tx:
        present = copies.in_state(tx, "vision", copies.State.PRESENT)
    for copy in present:
        validate.run(services.catalog, services.stores, copy.copy_id)
    for _ in range(2):
        mark.run(services.catalog, "vision")
        sweep.run(services.catalog, services.stores, "vision", "dag:test")
        move_clock(timedelta(minutes=6))


@pytest.mark.parametrize("stopped", [layout.MANIFEST_NAME, layout.MARKER_NAME], indirect=True)
def test_a_commit_that_goes_on_after_the_deletion_writes_nothing(
    stopped: Stopped,
    services: Services,
    api: Api,
    move_clock: MoveClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer: Writer = api.writer()
    saved = writer.upload(1, {"model.bin": b"weights"})
    with services.catalog.transaction() as tx:
        known = generations.writer_of_token(tx, writer.token)
    attempt_id = UUID(saved.attempt)
    manifest = Manifest.parse(saved.manifest)

    monkeypatch.setattr(locks, "CARRYING_OUT_SECONDS", 1)
    stopped.start(services.catalog, services.stores, known, attempt_id, manifest)
    answer = writer.commit(saved.attempt, saved.manifest)
    if answer.status_code != 200:  # the stopped one has the right to write, and keeps it
        refused(answer, 503, "prefix-busy")
        stopped.end()
        ok(writer.commit(saved.attempt, saved.manifest))
    for sequence in (2, 3):
        writer.save(sequence)
    sweep_all_but_the_newest(services, move_clock)
    stopped.end()

    with services.catalog.transaction() as tx:
        deleted = copies.in_state(tx, "vision", copies.State.DELETED)
    assert [copy.checkpoint.position for copy in deleted] == [(1, 1), (1, 2)]
    left = [
        one.key for copy in deleted for one in services.stores["local"].list(Prefix(copy.prefix))
    ]
    assert left == []


def test_a_copy_that_a_process_hangs_over_does_not_stop_the_sweep(
    services: Services, api: Api, move_clock: MoveClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "CARRYING_OUT_SECONDS", 1)
    writer = api.writer()
    for sequence in (1, 2, 3):
        writer.save(sequence)
    with services.catalog.transaction() as tx:
        [first, *_] = copies.in_state(tx, "vision", copies.State.PRESENT)
        locks.carrying_out(tx, first.prefix)
        sweep_all_but_the_newest(services, move_clock)
    assert state_of(services, first) is copies.State.DELETING

    sweep.run(services.catalog, services.stores, "vision", "dag:test")
    with services.catalog.transaction() as tx:
        deleted = copies.in_state(tx, "vision", copies.State.DELETED)
    assert [copy.checkpoint.position for copy in deleted] == [(1, 1), (1, 2)]


def state_of(services: Services, copy: copies.Copy) -> copies.State:
    with services.catalog.transaction() as tx:
        return copies.get(tx, copy.project, copy.copy_id).state


@pytest.mark.parametrize("stopped", [layout.MANIFEST_NAME], indirect=True)
def test_a_commit_that_another_process_ended_meanwhile_says_how_it_ended(
    stopped: Stopped, services: Services, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = api.writer()
    saved = writer.upload(1, {"model.bin": b"weights"})
    with services.catalog.transaction() as tx:
        known = generations.writer_of_token(tx, writer.token)
    attempt_id = UUID(saved.attempt)
    monkeypatch.setattr(locks, "CARRYING_OUT_SECONDS", 1)
    manifest = Manifest.parse(saved.manifest)
    stopped.start(services.catalog, services.stores, known, attempt_id, manifest)

    ok(api.acquire(1, key="another"), 201)
    with services.catalog.transaction() as tx:
        stage = stages.locked(tx, "vision", known.stage_id)
        attempt = attempts.get(tx, stage.project, attempt_id)
        failed = attempts.State.FAILED
        attempts.transition(tx, attempt, failed, actor="system", reason=failures.FENCED)
    stopped.end()

    [error] = stopped.errors
    assert isinstance(error, FencedGeneration)
