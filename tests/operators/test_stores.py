"""What stores were found to do, as operators see it and ask for it."""

from __future__ import annotations

import httpx

from tests.retention.world import World


def test_a_store_is_probed_and_its_profile_shown(api: httpx.Client, world: World) -> None:
    (listed,) = api.get("/v1/stores").json()["stores"]
    assert (listed["store"], listed["kind"], listed["probed_at"]) == ("local", "file", None)
    assert api.get("/v1/stores/local/profile").status_code == 404
    assert api.post("/v1/stores/nowhere/probe").status_code == 404

    asked = api.post("/v1/stores/local/probe")

    assert asked.status_code == 201
    shown = api.get("/v1/stores/local/profile").json()
    assert shown == asked.json()
    assert shown["findings"]["conditional-put"]["answer"] == "yes"
    assert shown["choices"]["quarantine"] == "moved out of sight, and back to undo it"
    assert shown["unfit"] == {}
    assert api.get("/v1/stores").json()["stores"][0]["probed_at"] == shown["recorded_at"]
