"""The coordinator with operator routes behind a static token, over a world with real bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from lastgood.coordinator.operators.auth import TOKEN_VARIABLE
from lastgood.coordinator.serve import standalone
from tests.retention.world import World, opened

TOKEN = "the operators' token"
BASIC = ("ann", TOKEN)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def anybody(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[httpx.Client]:
    """A client without credentials."""
    monkeypatch.setenv(TOKEN_VARIABLE, hashlib.sha256(TOKEN.encode()).hexdigest())
    with TestClient(standalone(catalog_dsn), follow_redirects=False) as client:
        client.base_url = httpx.URL("http://testserver/lastgood")
        yield client


@pytest.fixture
def api(anybody: httpx.Client) -> httpx.Client:
    """A client with the operator token as a bearer."""
    anybody.headers.update(BEARER)
    return anybody


@pytest.fixture
def browser(anybody: httpx.Client) -> httpx.Client:
    """A client that behaves as a browser on our own pages."""
    anybody.auth = BASIC
    anybody.headers.update(SAME_SITE)
    return anybody
