"""Operator routes let in operators and nobody else, and refuse changes from other sites' pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from lastgood.catalog.jobs import generations, stages
from lastgood.catalog.settings import tokens
from lastgood.coordinator import operator_routes
from lastgood.coordinator.app import create_app
from lastgood.coordinator.auth import guard_name
from lastgood.coordinator.operators.auth import TOKEN_VARIABLE, TokenGuard
from lastgood.errors import CatalogSetup
from tests.operators.conftest import BASIC, BEARER, SAME_SITE
from tests.retention.world import PROJECT, World

OPEN = {"/pages", "/pages/style.css"}


def _routes() -> list[tuple[str, str]]:
    app = FastAPI()
    operator_routes.include(app, TokenGuard("0" * 64))
    values = {
        "project": PROJECT,
        "workload": "gpt",
        "stage": "pretrain",
        "position": "1.1",
        "hold": str(uuid4()),
        "finding": str(uuid4()),
        "report": "1",
        "mark": "1",
        "retirement": str(uuid4()),
        "promotion_id": "1",
        "difference": "1",
        "drill": str(uuid4()),
        "tombstone": str(uuid4()),
        "entry": "1",
        "store": "local",
        "before": "1",
        "after": "2",
        "path": "nowhere",
    }
    return [
        (method, route.path.replace(":path}", "}").format(**values))
        for route in app.routes
        if isinstance(route, APIRoute) and route.path not in OPEN
        for method in sorted(route.methods or ())
    ]


def test_every_route_refuses_a_caller_without_credentials(anybody: httpx.Client) -> None:
    answers = {(method, path): anybody.request(method, path) for method, path in _routes()}

    assert len(answers) > 30
    assert {one for one, answer in answers.items() if answer.status_code != 401} == set()


def test_every_route_is_marked_with_its_guard() -> None:
    app = FastAPI()
    operator_routes.include(app, TokenGuard("0" * 64))
    unguarded = [
        route.path
        for route in app.routes
        if isinstance(route, APIRoute)
        and not any(
            guard_name(inner.call) for inner in (*route.dependant.dependencies, route.dependant)
        )
    ]
    assert unguarded == []


def test_tokens_of_jobs_open_no_operator_route(anybody: httpx.Client, world: World) -> None:
    stage_id = world.generation()
    with world.catalog.transaction() as tx:
        key = tokens.create_project_key(tx, PROJECT, "job")
        stage = stages.locked(tx, PROJECT, stage_id)
        writer = generations.get(tx, PROJECT, stage_id, stage.generation)
        token = generations.issue_token(tx, writer)
    for sent in (key, token):
        headers = {"Authorization": f"Bearer {sent}"}
        assert anybody.get("/v1/checkpoints", headers=headers).status_code == 401
        assert anybody.get("/pages/", headers=headers).status_code == 401
        assert anybody.get("/metrics", headers=headers).status_code == 401


def test_the_operator_token_opens_no_route_of_jobs(anybody: httpx.Client) -> None:
    query = {"workload": "gpt", "stage": "pretrain"}
    answer = anybody.get("/v1/runner/generations", params=query, headers=BEARER)
    assert answer.status_code == 401


def test_a_change_from_another_sites_page_is_refused(anybody: httpx.Client) -> None:
    body = {"checkpoint": "vision/gpt/pretrain/1.1", "because": "x"}
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({}, 403),
        ({"Origin": "http://testserver"}, 404),
        (SAME_SITE, 404),
    ):
        answer = anybody.post("/v1/quarantine/undo", json=body, headers=headers, auth=BASIC)
        assert answer.status_code == status, headers
    assert anybody.post("/v1/quarantine/undo", json=body, headers=BEARER).status_code == 404


def test_a_wrong_password_asks_the_browser_again(anybody: httpx.Client) -> None:
    answer = anybody.get("/pages/", auth=("ann", "wrong"))

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert "text/html" in answer.headers["content-type"]


def test_without_a_token_there_are_no_operator_routes(
    catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    app = create_app(catalog_dsn)

    paths = [route.path for route in app.routes if isinstance(route, APIRoute)]

    assert not [path for path in paths if path.startswith("/pages") or "holds" in path]


def test_a_token_hash_that_is_none_is_refused_at_start() -> None:
    with pytest.raises(CatalogSetup, match="SHA-256"):
        TokenGuard("secret")


AIRFLOW = """
import asyncio, sys
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient
from lastgood.coordinator.app import create_app
from lastgood.coordinator.operators.auth import AirflowGuard

manager = init_auth_manager()
app = create_app(sys.argv[1])
assert isinstance(app.state.operator_guard, AirflowGuard)
client = TestClient(app, raise_server_exceptions=False)

def token(role):
    return manager.generate_jwt(SimpleAuthManagerUser(username=role or "none", role=role))

def status(role, method, path, cookie=False, **sent):
    headers = dict(sent.pop("headers", {}))
    if role != "nobody" and not cookie:
        headers["Authorization"] = "Bearer " + token(role)
    client.cookies.clear()
    if cookie:
        client.cookies.set("_token", token(role))
    return client.request(method, path, headers=headers, **sent).status_code

undo = {"json": {"checkpoint": "vision/gpt/pretrain/1.1", "because": "x"}}
cross = {"headers": {"Sec-Fetch-Site": "cross-site"}}
ours = {"headers": {"Sec-Fetch-Site": "same-origin"}}
print(
    status("nobody", "GET", "/v1/checkpoints"),
    status("nobody", "GET", "/pages/"),
    status(None, "GET", "/v1/checkpoints"),
    status("viewer", "GET", "/v1/checkpoints"),
    status("viewer", "GET", "/pages/", cookie=True),
    status("viewer", "POST", "/v1/quarantine/undo", **undo),
    status("viewer", "POST", "/v1/quarantine/undo?dag_id=other", **undo),
    status("op", "POST", "/v1/quarantine/undo", **undo),
    status("op", "POST", "/v1/quarantine/undo", cookie=True, **undo, **cross),
    status("op", "POST", "/v1/quarantine/undo", cookie=True, **undo, **ours),
    client.get("/v1/checkpoints", headers={"Authorization": "Bearer forged"}).status_code,
)
held = {"json": {"project": "vision", "kind": "incident", "owner": "o", "reason": "r",
                 "checkpoint": "vision/gpt/pretrain/1.1"}}
print(client.post("/v1/holds", headers={"Authorization": "Bearer " + token("admin")}, **held)
      .json()["hold"]["placed_by"])
"""


@pytest.mark.slow
def test_airflows_users_and_roles_decide(world: World, catalog_dsn: str, tmp_path: Path) -> None:
    world.commit(1)
    environment = {
        **{name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,op:op,viewer:viewer",
    }
    migrated = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stderr

    done = subprocess.run(
        [sys.executable, "-c", AIRFLOW, catalog_dsn],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    statuses, placed_by = done.stdout.splitlines()[-2:]
    assert statuses.split() == [
        "401",
        "401",
        "403",
        "200",
        "200",
        "403",
        "403",
        "409",
        "403",
        "409",
        "403",
    ]
    assert placed_by == "operator:admin"
