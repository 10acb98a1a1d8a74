"""Retirements through the API: asked for, approved by somebody else, undone."""

from __future__ import annotations

from datetime import timedelta

import httpx

from lastgood.flows.keeping import retire
from lastgood.flows.overview import overview
from lastgood.rules.scope import Scope
from tests.retention.world import PROJECT, World


def test_a_retirement_is_asked_for_and_not_approved_by_the_same_operator(
    api: httpx.Client, world: World
) -> None:
    world.commit(1)
    body = {"scope": "vision/gpt/pretrain", "reason": "superseded"}

    asked = api.post("/v1/retirements", json=body)
    again = api.post("/v1/retirements", json=body)
    path = f"/v1/retirements/vision/{asked.json()['retirement_id']}"
    alone = api.post(f"{path}/approve")
    (listed,) = api.get("/v1/retirements").json()["retirements"]

    assert (asked.status_code, asked.json()["effective_at"]) == (201, None)
    assert again.status_code == 409
    assert alone.status_code == 403
    assert (listed["scope"], listed["state"]) == ("vision/gpt/pretrain", "waits for approval")


def test_it_is_approved_and_undone(api: httpx.Client, world: World) -> None:
    world.commit(1)
    asked = retire.ask(
        world.catalog,
        world.stores,
        Scope(PROJECT),
        reason="the team is no more",
        actor="operator:cli",
        grace=timedelta(days=30),
    )
    path = f"/v1/retirements/vision/{asked.retirement_id}"

    approved = api.post(f"{path}/approve")
    undone = api.post(f"{path}/undo", json={"because": "needed"})
    again = api.post(f"{path}/undo", json={"because": "needed"})

    assert approved.status_code == 200
    assert approved.json()["effective_at"] is not None
    assert undone.json()["undone_because"] == "needed"
    assert again.status_code == 409


def test_what_is_wrong_is_refused(api: httpx.Client, world: World) -> None:
    world.commit(1)
    bodies = [
        ({"scope": "vision/gpt", "reason": "x", "grace_seconds": 60}, 422),
        ({"scope": "vision/gpt", "reason": ""}, 422),
        ({"scope": "vision/gpt/a/b", "reason": "x"}, 422),
        ({"scope": "vision/ghost", "reason": "x"}, 404),
        ({"scope": "ghost", "reason": "x"}, 404),
    ]
    for body, status in bodies:
        assert api.post("/v1/retirements", json=body).status_code == status, body


def test_the_page_shows_it_and_takes_the_approval_and_the_undo(
    browser: httpx.Client, world: World
) -> None:
    world.commit(1)
    asked = retire.ask(
        world.catalog,
        world.stores,
        Scope("vision", "gpt"),
        reason="<over>",
        actor="operator:bob",
    )
    said = {"project": "vision", "retirement": str(asked.retirement_id)}
    assert "waits for approval" in browser.get("/pages/checkpoints").text
    told = overview(world.catalog, world.stores).alerts
    assert any("waits for `lastgood retire approve" in alert for alert in told)

    approved = browser.post("/pages/retirements/approve", data=said)
    page = browser.get(str(approved.url.join(approved.headers["location"]))).text
    assert approved.status_code == 303
    assert "in grace" in page
    assert "&lt;over&gt;" in page
    told = overview(world.catalog, world.stores).alerts
    assert any("takes it back until then" in alert for alert in told)

    undone = browser.post("/pages/retirements/undo", data=said | {"because": "needed"})
    assert undone.status_code == 303
    assert "retirements/undo" not in browser.get("/pages/checkpoints").text
