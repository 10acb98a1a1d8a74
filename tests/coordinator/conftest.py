"""The coordinator under uvicorn, with a real catalog and a file store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import tokens
from lastgood.coordinator.serve import standalone
from lastgood.flows.services import Services
from lastgood.flows.settings.apply import apply
from tests.coordinator.api import Api

CONFIG = {
    "stores/local.yaml": """\
        name: local
        kind: file
        root: stores/local
        failure_domain: rack-1
        tier: fast
        """,
    "policies/small.yaml": """\
        name: small
        roles:
          hot: {keep: newest, count: 2}
        leases: {generation: 1m, writer: 1m, grant: 30s, reader: 5m}
        """,
    "projects/vision.yaml": """\
        name: vision
        owner: team
        store: local
        policy: small
        finding_owner: team
        """,
    "projects/other.yaml": """\
        name: other
        owner: team
        store: local
        policy: small
        finding_owner: team
        """,
}


def write_config(folder: Path, documents: dict[str, str]) -> Path:
    """Write YAML files below a folder; answers the folder."""
    import textwrap

    for name, content in documents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(content))
    return folder


@pytest.fixture
def config() -> dict[str, str]:
    """The configuration that the test's catalog gets; override it for another."""
    return dict(CONFIG)


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Below which relative stores lie."""
    folder = tmp_path / "var"
    folder.mkdir()
    monkeypatch.setenv("LASTGOOD_VAR", str(folder))
    return folder


@pytest.fixture
def store_root(var: Path) -> Path:
    return var / "stores" / "local"


@pytest.fixture
def catalog(
    catalog_dsn: str, var: Path, tmp_path: Path, config: dict[str, str]
) -> Iterator[Catalog]:
    with Catalog(catalog_dsn) as catalog:
        apply(catalog, write_config(tmp_path / "config", config), actor="operator:test")
        yield catalog


@pytest.fixture
def services(catalog: Catalog) -> Services:
    return Services.of(catalog)


class Server:
    """The coordinator on a free port, in a thread."""

    def __init__(self, dsn: str) -> None:
        config = uvicorn.Config(standalone(dsn), host="127.0.0.1", port=0, log_level="warning")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            self._thread.join(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def coordinator(catalog: Catalog, catalog_dsn: str) -> Iterator[str]:
    """Where a running coordinator answers."""
    with Server(catalog_dsn) as url:
        yield url


@pytest.fixture
def client(coordinator: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=coordinator, timeout=60) as client:
        yield client


def api_of(catalog: Catalog, client: httpx.Client, project: str) -> Api:
    with catalog.transaction() as tx:
        key = tokens.create_project_key(tx, project, "test")
    return Api(client, project, key)


@pytest.fixture
def api(catalog: Catalog, client: httpx.Client) -> Api:
    """The project `vision` as its key sees it."""
    return api_of(catalog, client, "vision")


@pytest.fixture
def other_api(catalog: Catalog, client: httpx.Client) -> Api:
    """The project `other`, which shares the store."""
    return api_of(catalog, client, "other")
