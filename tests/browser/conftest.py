"""A small world of checkpoints for the browser to show, and the coordinator that serves it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from lastgood.coordinator.operators.auth import TOKEN_VARIABLE
from lastgood.coordinator.serve import standalone
from tests.retention.world import World, opened


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def url(world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The coordinator's address with the operator's name and token in it."""
    monkeypatch.setenv(TOKEN_VARIABLE, hashlib.sha256(b"secret").hexdigest())
    config = uvicorn.Config(standalone(catalog_dsn), host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://ann:secret@127.0.0.1:{port}/lastgood/pages/"
    server.should_exit = True
    thread.join()
