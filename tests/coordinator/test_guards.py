"""Airflow does not authenticate a plugin's app: every route has to declare who may use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from lastgood.coordinator.app import create_app
from lastgood.coordinator.auth import guard_name

FRAMEWORK = {"/openapi.json"}  # names and shapes of routes, as in the documentation
FOR_ANYBODY = {"/health", "/pages", "/pages/style.css"}


def guards(dependant: Dependant) -> Iterator[str]:
    """The names of all guards among a route's dependencies, however deep."""
    for inner in dependant.dependencies:
        name = guard_name(inner.call)
        if name is not None:
            yield name
        yield from guards(inner)


def unguarded(app: FastAPI) -> set[str]:
    """Every route that declares no guard, and every one that lets anybody in without being known
    for it."""
    found = set()
    for route in app.routes:
        path = getattr(route, "path", str(route))
        if path in FRAMEWORK:
            continue
        declared = set(guards(route.dependant)) if isinstance(route, APIRoute) else set()
        if not declared or (declared == {"anybody"} and path not in FOR_ANYBODY):
            found.add(path)
    return found


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The app with its operator routes."""
    monkeypatch.setenv("LASTGOOD_OPERATOR_TOKEN_SHA256", "0" * 64)
    return create_app("host=nowhere")


def test_every_route_declares_its_guard(app: FastAPI) -> None:
    assert len(app.routes) > 15
    assert unguarded(app) == set()


def test_a_route_without_a_guard_is_found(app: FastAPI) -> None:
    def helpful() -> str:
        return "not a guard"

    @app.get("/v1/forgotten", dependencies=[Depends(helpful)])
    def forgotten() -> None: ...

    app.mount("/files", FastAPI())
    assert unguarded(app) == {"/v1/forgotten", "/files"}
