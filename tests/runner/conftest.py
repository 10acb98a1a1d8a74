"""A real coordinator under uvicorn: real PostgreSQL, a file store, Ceph's S3."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings.tokens import create_project_key
from lastgood.flows.settings.apply import apply
from lastgood.runner import Retry, Workload
from lastgood.stack.ceph import Ceph
from lastgood.stack.ports import LOOPBACK, held_port
from lastgood.stack.postgres import EmbeddedPostgres
from tests.ceph.fixtures import environment_of, s3_environment
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.faults.s3_proxy import S3Proxy
from tests.runner.faults import Faults
from tests.waiting import wait_for

QUICK = Retry(
    patience=timedelta(seconds=120),
    first_pause=timedelta(milliseconds=20),
    longest_pause=timedelta(milliseconds=200),
)
POLICY = """\
name: test
timezone: UTC
roles:
  hot: {keep: newest, count: 4, leaves_when: newer_restored}
gate: {level: checksum, receipt_max_age: 1d}
leases: {generation: 5m, writer: 5m, grant: 5m, reader: 5m}
"""
PROJECT = """\
name: demo
owner: team
store: local
policy: test
finding_owner: team
finding_deadline: 3d
"""
STORE = """\
name: local
{place}
failure_domain: here
tier: fast
encryption: none
"""


class RunningCoordinator:
    """A coordinator in a thread of this process; it may be stopped and started again.

    Tests of one module share it; each has a stage of its own.
    """

    def __init__(self, dsn: str, configuration: Path, store_root: Path, port: int) -> None:
        self.dsn = dsn
        self.store_root = store_root
        self.stage = ""
        with Catalog(dsn) as catalog:
            apply(catalog, configuration, actor="operator:test")
            with catalog.transaction() as tx:
                self.project_key = create_project_key(tx, "demo", "test")
        self._port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self.faults = Faults(self._application)
        self._current: Any = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        await self._current(scope, receive, send)

    def start(self) -> None:
        from lastgood.coordinator.serve import standalone

        self._current = standalone(self.dsn)
        self._server = uvicorn.Server(
            uvicorn.Config(self.faults, host=LOOPBACK, port=self._port, log_level="critical")
        )
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_for(lambda: self._server is not None and self._server.started)

    def stop(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    def begin_test(self, stage: str) -> None:
        """Forget what an earlier test did."""
        self.stage = stage
        self.faults.clear()

    def stored(self, name: str) -> Path:
        """The file of this name among the stage's objects in a file store."""
        below = self.store_root / "checkpoints" / "demo" / "mlp" / self.stage
        return next(below.rglob(name))

    def workload(self, holder: str = "test", retry: Retry = QUICK) -> Workload:
        return Workload(
            self.url,
            self.project_key,
            workload="mlp",
            stage=self.stage,
            holder=holder,
            retry=retry,
        )


@pytest.fixture(autouse=True)
def _renewed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a renewal is quick, though no lease ends while a busy machine does something
    else."""
    generations = "lastgood.coordinator.runners.generations"
    monkeypatch.setattr(f"{generations}._HEARTBEATS_PER_LEASE", 600)
    monkeypatch.setattr("lastgood.runner.wire.http.LATEST_RENEWAL", timedelta(milliseconds=500))


@pytest.fixture(autouse=True)
def _quiet_broken_connections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="uvicorn.error")


def write_configuration(folder: Path, place: str) -> Path:
    files = {
        "policies/test.yaml": POLICY,
        "projects/demo.yaml": PROJECT,
        "stores/local.yaml": STORE.format(place=place),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def s3_proxy(ceph: Ceph) -> Iterator[S3Proxy]:
    """What the coordinator's S3 store, and whoever has its URLs, talk through."""
    with S3Proxy(ceph.endpoint).running() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def localstack_proxy(localstack: str) -> Iterator[S3Proxy]:
    """What a coordinator talks through to the server that checks digests as AWS does."""
    with S3Proxy(localstack).running() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def coordinators(
    postgres: EmbeddedPostgres,
    template_catalog: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str], RunningCoordinator]]:
    """A coordinator for each way in which jobs send bytes, started when first asked for."""
    with ExitStack() as running:
        made: dict[str, RunningCoordinator] = {}

        def coordinator_for(how: str) -> RunningCoordinator:
            if how not in made:
                root = tmp_path_factory.mktemp(how)
                place = f"kind: file\nroot: {root}/store\ndirect: {str(how == 'direct').lower()}"
                if how in ("presigned", "attested", "faulty"):
                    name = {"attested": "attesting", "faulty": "s3_proxy"}.get(how)
                    at = None if name is None else request.getfixturevalue(name).endpoint
                    running.enter_context(environment_of(request.getfixturevalue("ceph"), at))
                    bucket = request.getfixturevalue("make_ceph_bucket")()
                    place = f"kind: s3\nbucket: {bucket}"
                elif how == "localstack":
                    at = request.getfixturevalue("localstack_proxy").endpoint
                    running.enter_context(s3_environment(at, "test", "test"))
                    bucket = request.getfixturevalue("make_localstack_bucket")(object_lock=True)
                    place = f"kind: s3\nbucket: {bucket}\naccepts: [unsigned-requests]"
                name = f"catalog_{secrets.token_hex(6)}"
                postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
                running.callback(postgres.drop_database, name)
                configuration = write_configuration(root / "config", place)
                dsn = postgres.dsn(name, APP_ROLE)
                port = running.enter_context(held_port())  # also while it is stopped
                made[how] = RunningCoordinator(dsn, configuration, root / "store", port)
                made[how].start()
                running.callback(made[how].stop)
            return made[how]

        yield coordinator_for


@pytest.fixture
def how(request: pytest.FixtureRequest) -> str:
    """How jobs send bytes: endpoint, direct or presigned (attested, localstack: to a store that
    checks the digests of parts; faulty: through a proxy; one of these in a module). Parametrize it
    indirectly."""
    return str(getattr(request, "param", "endpoint"))


@pytest.fixture
def coordinator(how: str, coordinators: Callable[[str], RunningCoordinator]) -> RunningCoordinator:
    """A coordinator whose store takes bytes as `how` says."""
    running = coordinators(how)
    running.begin_test(f"stage-{secrets.token_hex(4)}")
    return running


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder as a training script writes it."""
    return write_checkpoint(tmp_path / "checkpoint")


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    contents = {
        "model/rank0.safetensors": bytes(range(256)) * 4_000 + bytes([seed]),
        "model/rank1.safetensors": bytes([seed]) * 300_001,
        "rng (copy) 100%.bin": b"\0\xff" + bytes([seed]),
        "empty": b"",
    }
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
