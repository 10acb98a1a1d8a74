"""Inventories and accountings through the API."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from lastgood.coordinator.operators import inventories
from lastgood.flows.inventories import by_name
from tests.retention.world import PROJECT, World


def test_inventories_are_listed_and_compared_and_large_ones_are_not(
    api: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for sequence in (1, 2):
        world.commit(sequence)
        manifest = by_name.take(
            world.catalog, world.stores, "local", accounts_for=[PROJECT], actor="test"
        )
        taken.append(manifest.inventory)
    asked = {"before": taken[0], "after": taken[1]}

    listed = api.get("/v1/inventories", params={"store": "local"})
    compared = api.get("/v1/inventories/diff", params=asked)
    monkeypatch.setattr(inventories, "ROWS_LIMIT", 1)
    refused = api.get("/v1/inventories/diff", params=asked)

    assert [one["inventory"] for one in listed.json()["inventories"]] == taken[::-1]
    assert compared.json()["difference"]["total"]["new"] > 0
    assert refused.status_code == 409
    assert f"lastgood inventory diff {taken[0]} {taken[1]}" in refused.json()["detail"]


def test_a_backends_number_is_recorded_with_who_said_it(api: httpx.Client, world: World) -> None:
    body = {"bytes": 700, "as_of": world.now().isoformat(), "because": "zfs list"}

    said = api.post("/v1/stores/local/accounting", json={**body, "cause": "snapshots"})
    later = (world.now() + timedelta(days=1)).isoformat()
    early = api.post("/v1/stores/local/accounting", json={**body, "as_of": later})
    shown = api.get("/v1/stores/local/accounting")

    assert said.status_code == 201
    assert early.status_code == 422
    (number,) = shown.json()["numbers"]
    assert (number["cause"], number["size_bytes"]) == ("snapshots", 700)
    assert number["actor"].startswith("operator:")
