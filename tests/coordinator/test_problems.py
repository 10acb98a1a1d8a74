"""What nobody expected is a problem too: it tells nothing of our insides, and is logged once."""

from __future__ import annotations

import logging

import httpx
import pytest
from fastapi import FastAPI

from lastgood.catalog.db import Catalog
from lastgood.coordinator.app import create_app
from lastgood.coordinator.problems import BODY_LIMIT_BYTES, LONG_BODY_LIMIT_BYTES
from tests.coordinator.api import RUNNER, Api, bearer, refused
from tests.coordinator.conftest import Server


@pytest.fixture
def broken(catalog_dsn: str, catalog: Catalog) -> httpx.AsyncClient:
    """A coordinator with a route that fails in a way that nobody foresaw."""
    app: FastAPI = create_app(catalog_dsn)

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("the password is hunter2")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def test_an_unexpected_failure_tells_nothing_and_is_logged_once(
    broken: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    import anyio

    with caplog.at_level(logging.WARNING):
        answer = anyio.run(broken.get, "/broken")
    problem = refused(answer, 500, "internal-error")
    assert "hunter2" not in answer.text
    assert set(problem) == {"type", "title", "status", "detail"}
    told = [record for record in caplog.records if record.exc_info]
    assert len(told) == 1
    assert "GET /broken failed" in told[0].getMessage()


def test_a_catalog_that_cannot_be_reached_is_unavailable_and_tells_no_address(
    var: object,
) -> None:
    dsn = "host=127.0.0.1 port=9 user=secret-user dbname=secret-db connect_timeout=2"
    with Server(dsn) as url:
        answer = httpx.get(f"{url}/lastgood/health", timeout=60)
    refused(answer, 503, "unavailable")
    assert "secret" not in answer.text
    assert "retry-after" in answer.headers


def test_a_body_that_is_too_long_is_refused_before_it_is_read(api: Api) -> None:
    answer = _announce(api, "checkpoints/commit", LONG_BODY_LIMIT_BYTES + 1)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"payload-too-large" in answer


@pytest.mark.parametrize("route", ["generations", "heartbeats", "preemptions", "readers"])
def test_a_document_that_is_read_before_its_sender_is_known_is_short(api: Api, route: str) -> None:
    assert _announce(api, route, BODY_LIMIT_BYTES + 1).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("route", ["checkpoints/prepare", "checkpoints/commit"])
def test_a_long_document_is_read_only_once_its_sender_is_known(api: Api, route: str) -> None:
    """Or anybody could fill the memory and stop the event loop for seconds."""
    answer = api.client.post(f"{RUNNER}/{route}", content=b"{", headers=bearer("nobody"))
    refused(answer, 401, "unauthenticated")


def _announce(api: Api, route: str, length: int) -> bytes:
    """Send only the head of a request; the answer comes without the body."""
    import socket

    url = api.client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
        connection.sendall(
            f"POST {RUNNER}/{route} HTTP/1.1\r\nHost: test\r\n"
            f"Authorization: Bearer {api.key}\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        answer = b""
        while b"payload-too-large" not in answer:
            received = connection.recv(65536)
            if not received:
                break
            answer += received
        return answer
