"""How operators see incomplete uploads: by route, on the page and as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from lastgood.stores.base import Key
from tests.operators.conftest import anybody, browser  # noqa: F401 -- fixtures
from tests.retention.world import World
from tests.uploads.writers import ABORT_AFTER, begin, clean


@pytest.fixture
def seen(world: World, browser: httpx.Client) -> Iterator[httpx.Client]:  # noqa: F811
    """One upload is gone, one waits, one is of nobody, and one of a stranger."""
    begin(world, 1).send("a.bin")
    world.advance(ABORT_AFTER)
    world.store.create_upload(Key("checkpoints/vision/<b>x&/y.bin"), 10)
    world.store.create_upload(Key("elsewhere/z.bin"), 10)
    clean(world)
    begin(world, 2, {"c.bin": b"c" * 8}).send()
    world.advance(timedelta(minutes=20))
    clean(world)
    return browser


def test_routes_page_and_metrics_show_the_same(seen: httpx.Client) -> None:
    told = seen.get("/v1/uploads").json()
    states = {one["key"].rsplit("/", 1)[1]: one["state"] for one in told["uploads"]}
    assert states == {"y.bin": "reported", "c.bin": "waiting"}
    assert told["foreign"] == {"local": 1}
    assert told["thresholds"][0]["age"] == 3600
    assert [one["state"] for one in told["attempts"]] == ["open"]

    every = seen.get("/v1/uploads", params={"ended": True}).json()["uploads"]
    gone = next(one for one in every if one["state"] == "gone")
    assert gone["proof"]["uploads_left"] == 0
    history = seen.get(f"/v1/uploads/vision/{gone['entry_id']}").json()["history"]
    assert [one["what"] for one in history][-1] == "gone"
    assert seen.get(f"/v1/uploads/audio/{gone['entry_id']}").status_code == 404

    page = seen.get("/pages/uploads", params={"ended": True})
    assert page.status_code == 200, page.text
    for text in ("reported", "aborts", "&lt;b&gt;x&amp;", "never touched: 1", "Proof"):
        assert text.lower() in page.text.lower()
    assert "<b>x" not in page.text

    metrics = seen.get("/metrics").text
    where = '{{project="vision",state="{}",store="local"}}'
    assert f"lastgood_incomplete_upload_bytes{where.format('waiting')} 8.0" in metrics
    assert f"lastgood_incomplete_uploads{where.format('reported')} 1.0" in metrics
    assert f"lastgood_oldest_incomplete_upload_seconds{where.format('reported')}" in metrics
    assert 'lastgood_foreign_uploads{store="local"} 1.0' in metrics


def test_the_rule_of_a_store_without_rules_is_no_server_error(seen: httpx.Client) -> None:
    for answer in (seen.get("/v1/stores/local/lifecycle"), seen.post("/v1/stores/local/lifecycle")):
        assert (answer.status_code, answer.json()["type"]) == (422, "invalid-input")
    assert seen.get("/v1/stores/nowhere/lifecycle").status_code == 404
