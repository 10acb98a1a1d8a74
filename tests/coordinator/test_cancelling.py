"""A writer gives its own attempt up, and its room is free once nothing can be sent any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from lastgood.flows.cleaning import cleanup
from lastgood.flows.services import Services
from lastgood.rules.manifest_room import manifest_room
from lastgood.stores.base import Prefix
from tests.conftest import MoveClock
from tests.coordinator.api import RUNNER, Api, bearer, ok, refused


def cancel(api: Api, attempt: str, token: str) -> httpx.Response:
    return api.client.delete(f"{RUNNER}/checkpoints/{attempt}", headers=bearer(token))


def in_flight(services: Services) -> int:
    with services.catalog.transaction() as tx:
        row: Any = tx.execute(
            "SELECT sum(in_flight_bytes)::int AS b FROM capacity_counters"
        ).fetchone()
    assert row is not None
    return int(row["b"])


def test_a_cancelled_attempt_takes_nothing_more_and_frees_its_room(
    api: Api, services: Services, move_clock: MoveClock
) -> None:
    writer = api.writer()
    saved = writer.upload(1, {"model.bin": b"weights"})
    assert in_flight(services) == 7 + manifest_room([("model.bin", 1)])

    for _ in range(2):
        assert ok(cancel(api, saved.attempt, saved.fencing_token))["state"] == "aborting"
    refused(
        writer.put(saved.attempt, "model.bin", b"weights", token=saved.fencing_token),
        409,
        "attempt-state",
    )
    refused(writer.commit(saved.attempt, saved.manifest), 409, "attempt-state")
    ok(writer.prepare(2, {"model.bin": b"weights"}), 201)

    move_clock(timedelta(hours=1))
    assert ok(cancel(api, saved.attempt, saved.fencing_token))["state"] == "closed"
    assert in_flight(services) == 7 + manifest_room([("model.bin", 1)])
    assert not [
        one.key
        for one in services.stores["local"].list(Prefix("checkpoints/"))
        if saved.attempt in one.key
    ]
    told = cleanup.run(services.catalog, services.stores, "vision", "dag:test")
    assert told["failed"] == {}


def test_what_is_committed_or_of_somebody_else_cannot_be_cancelled(api: Api) -> None:
    writer = api.writer()
    saved = writer.upload(1, {"model.bin": b"weights"})
    ok(writer.commit(saved.attempt, saved.manifest))
    refused(cancel(api, saved.attempt, writer.token), 409, "attempt-state")
    other = ok(api.acquire(0, stage="sft"), 201)
    refused(cancel(api, saved.attempt, other["token"]), 404, "not-found")
