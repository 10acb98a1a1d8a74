"""What operators can prove from the API and the pages: certificates, digests, audits, drills."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from lastgood.flows.auditing import daily_digest
from lastgood.flows.drills import drill
from tests.retention.world import PROJECT, World


@pytest.fixture
def deleted(world: World) -> str:
    """The name of a checkpoint whose bytes are proven gone; beside it one in quarantine, 1.2."""
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=2))
    copies.append(world.commit(4))
    world.mark()
    assert world.sweep()["deleted"] == 1
    assert world.state(copies[1]) == "quarantined"
    return str(copies[0].checkpoint)


def _ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_deletion_is_proven_over_the_api(api: httpx.Client, world: World, deleted: str) -> None:
    (tombstone,) = _ok(api.get("/v1/tombstones"))["tombstones"]
    found = _ok(api.get(f"/v1/audits/{PROJECT}/certificates/{tombstone['tombstone']}"))
    assert found["body"]["intent"]["facts"]["evidence"]["checkpoint"] == deleted
    assert _ok(api.get(f"/v1/audits/{PROJECT}"))["breaks"] == []
    world.advance(timedelta(days=2))
    daily_digest.make(world.catalog, world.stores, PROJECT)
    digests = _ok(api.get(f"/v1/audits/{PROJECT}/digests"))["digests"]
    assert [one["number"] for one in digests] == list(range(1, len(digests) + 1))
    assert digests[0]["body"]["stages"]


def test_a_page_offers_only_what_can_still_be_done(browser: httpx.Client, deleted: str) -> None:
    gone = browser.get(f"/pages/why/{deleted}").text
    assert "Place the hold" not in gone
    assert "Take it back" not in gone
    hidden = browser.get("/pages/why/vision/gpt/pretrain/1.2").text
    assert "Place the hold" in hidden
    assert "Take it back" in hidden
    present = browser.get("/pages/why/vision/gpt/pretrain/1.4").text
    assert "Place the hold" in present
    assert "Take it back" not in present


def test_a_drill_is_read_over_the_api_and_on_its_page(
    api: httpx.Client, browser: httpx.Client, world: World
) -> None:
    world.commit(1, receipt=None)
    told = drill.run(
        world.catalog, world.stores, PROJECT, actor="operator:ann", life=False, wait=world.advance
    )
    (listed,) = _ok(api.get(f"/v1/drills?project={PROJECT}"))["drills"]
    assert (listed["drill_id"], listed["passed"]) == (str(told.drill_id), True)
    found = _ok(api.get(f"/v1/drills/{told.drill_id}"))
    assert found["restores"][0]["checkpoint"] == "vision/gpt/pretrain/1.1"
    assert found["restores"][0]["result"]["rto_seconds"] > 0
    page = browser.get(f"/pages/drills/{told.drill_id}").text
    assert "each stage is restored within 28 days" in page
    assert "vision/gpt/pretrain/1.1" in page
    assert api.get("/v1/drills?project=ghost").status_code == 404
