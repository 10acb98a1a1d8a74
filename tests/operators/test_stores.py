"""What stores were found to do, and their end, as operators see it and ask for it."""

from __future__ import annotations

from pathlib import Path

import httpx

from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
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
    assert api.get("/v1/stores/nowhere/profiles").status_code == 404
    (first,) = api.get("/v1/stores/local/profiles").json()["probes"]
    assert (first["findings"], first["changed"]) == (shown["findings"], {})
    assert api.get("/v1/stores").json()["stores"][0]["probed_at"] == shown["recorded_at"]


def test_a_store_is_unregistered_once_nothing_needs_it(
    api: httpx.Client, world: World, tmp_path: Path
) -> None:
    config = {"root": str(tmp_path / "spare")}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("spare", "file", config, "rack-2", "cold"))
    why = {"because": "sold"}
    assert api.post("/v1/stores/spare/unregister", json={"because": " "}).status_code == 422
    refused = api.post("/v1/stores/local/unregister", json=why)
    assert (refused.status_code, refused.json()["type"]) == (409, "store-in-use")
    assert "project vision writes to it" in refused.json()["detail"]

    dry = api.post("/v1/stores/spare/unregister", json=why | {"dry_run": True})
    assert (dry.status_code, dry.json()["type"]) == (422, "invalid-input")
    lost = why | {"lost": True}
    refused = api.post("/v1/stores/local/unregister", json=lost)
    assert (refused.status_code, refused.json()["type"]) == (409, "store-in-use")
    dry = api.post("/v1/stores/spare/unregister", json=lost | {"dry_run": True}).json()
    assert (dry["at"], dry["copies"], dry["stages"]) == (None, 0, [])
    assert dry["seen"].startswith("it does not answer: ")

    gone = api.post("/v1/stores/spare/unregister", json=why)

    assert (gone.status_code, gone.json()["inventories"]) == (200, 0)
    assert gone.json()["left"][0].startswith("its control keys, for it does not answer")
    assert api.post("/v1/stores/spare/unregister", json=why).status_code == 404
    assert api.post("/v1/stores/spare/probe").status_code == 404
    shown = api.get("/v1/stores").json()
    assert [one["store"] for one in shown["stores"]] == ["local"]
    (ended,) = shown["unregistered"]
    assert (ended["store"], ended["because"]) == ("spare", "sold")
    assert ended["recorded_at"] == gone.json()["at"]
