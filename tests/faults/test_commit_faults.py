"""The coordinator is killed at each step of a commit; what comes next finishes it exactly once."""

# ruff: noqa: F811 -- fixtures are imported, and named again where they are used

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from lastgood import faults
from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import tokens
from lastgood.flows.control_keys import guard
from lastgood.flows.jobs import commit, verify
from lastgood.flows.services import Services
from lastgood.rules import layout
from lastgood.stores.base import EVERYTHING
from tests.coordinator.api import Api, Saved, Writer, ok
from tests.coordinator.conftest import (  # noqa: F401 -- fixtures
    Server,
    catalog,
    config,
    services,
    store_root,
    var,
)
from tests.coordinator.serving import ServerProcess

FILES = {"rank-0/model.bin": b"m" * 5000, "rank-1/model.bin": b"n" * 7000, "empty": b""}
AFTER_SEAL = tuple(point for point in faults.COMMIT_POINTS if point.startswith("commit."))


class Client:
    """A job that repeats what was not answered, as one that follows the rules does."""

    def __init__(self, catalog: Catalog) -> None:
        with catalog.transaction() as tx:
            self._key = tokens.create_project_key(tx, "vision", "test")

    def save(self, url: str) -> dict[str, object]:
        """Acquire, prepare, send and commit with the same keys as ever."""
        with httpx.Client(base_url=url, timeout=60) as client:
            writer = Api(client, "vision", self._key).writer()
            saved = self._upload(writer)
            return ok(writer.commit(saved.attempt, saved.manifest))

    def _upload(self, writer: Writer) -> Saved:
        prepared = writer.prepare(1, FILES)
        if prepared.status_code == 409 and prepared.json()["state"] in ("sealed", "committed"):
            attempt = prepared.json()["attempt"]
            return Saved(attempt, "", writer.manifest(1, FILES), {})
        return writer.upload(1, FILES)

    def save_and_see_it_die(self, url: str) -> None:
        with pytest.raises(httpx.TransportError):
            self.save(url)


def expected_keys(services: Services) -> set[str]:
    """Exactly what one committed checkpoint leaves in its store."""
    with services.catalog.transaction() as tx:
        [row] = tx.execute("SELECT prefix, checkpoint_id FROM copies").fetchall()
        events = tx.execute("SELECT number, kind FROM events ORDER BY number").fetchall()
    prefix = row["prefix"]
    assert [event["kind"] for event in events].count("committed") == 1
    return {
        layout.CATALOG_KEY,
        layout.incarnation_key(1),
        layout.manifest_key(prefix),
        layout.marker_key(prefix),
        *(layout.object_key(prefix, path) for path in FILES),
    }


def assert_committed_once(services: Services) -> None:
    store = services.stores["local"]
    keys = {entry.key for entry in store.list(EVERYTHING)}
    control = {key for key in keys if key.startswith("control/stages/vision/resnet/pretrain/")}
    assert keys - control == expected_keys(services)
    assert control
    guard(services.catalog, services.stores)
    with services.catalog.transaction() as tx:
        [counters] = tx.execute(
            "SELECT in_flight_bytes, committed_bytes FROM capacity_counters"
            " WHERE project = 'vision'"
        ).fetchall()
        [copy] = tx.execute(
            "SELECT total_bytes + control_bytes AS bytes, state"
            "  FROM copies JOIN checkpoints USING (checkpoint_id)"
        ).fetchall()
    assert copy["state"] == "present"
    assert (counters["in_flight_bytes"], counters["committed_bytes"]) == (0, copy["bytes"])
    assert verify.pending(services.catalog) == []


@pytest.mark.parametrize("point", faults.COMMIT_POINTS)
def test_a_client_that_repeats_itself_ends_with_one_checkpoint(
    catalog_dsn: str,
    catalog: Catalog,
    services: Services,
    point: str,
) -> None:
    client = Client(catalog)
    with ServerProcess(catalog_dsn, point) as server:
        client.save_and_see_it_die(server.url)
        assert server.died() == -signal.SIGKILL
    with Server(catalog_dsn) as url:
        first = client.save(url)
        assert client.save(url) == first
    assert first["checkpoint"] == "vision/resnet/pretrain/1.1"
    assert_committed_once(services)


@pytest.mark.parametrize("point", AFTER_SEAL)
def test_a_sealed_attempt_whose_client_never_returns_is_finished_by_the_workers(
    catalog_dsn: str,
    catalog: Catalog,
    services: Services,
    point: str,
) -> None:
    client = Client(catalog)
    with ServerProcess(catalog_dsn, point) as server:
        client.save_and_see_it_die(server.url)
        assert server.died() == -signal.SIGKILL
    [attempt] = verify.pending(catalog)
    outcome = commit.finish(services.catalog, services.stores, attempt)
    assert outcome["state"] == "committed"
    assert_committed_once(services)


def test_a_fault_needs_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(faults.os, "kill", lambda _, by: killed.append(by))
    monkeypatch.setenv("LASTGOOD_FAULT", "commit.after-seal")
    monkeypatch.delenv("LASTGOOD_FAULTS_ALLOWED", raising=False)
    faults.point("commit.after-seal")
    assert killed == []
    monkeypatch.setenv("LASTGOOD_FAULTS_ALLOWED", "1")
    faults.point("commit.after-verify")
    assert killed == []
    faults.point("commit.after-seal")
    assert killed == [signal.SIGKILL]


def test_every_point_is_in_the_code() -> None:
    """A point that nobody passes any more would prove nothing."""
    root = Path(faults.__file__).parent
    code = "".join(file.read_text() for file in root.glob("flows/**/*.py"))
    missing = {point for point in faults.COMMIT_POINTS if f'faults.point("{point}")' not in code}
    assert missing == set()
