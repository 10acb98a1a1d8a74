"""Room as jobs meet it: over HTTP, with real stores."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from lastgood.catalog.capacity import capacity, capacity_states
from lastgood.catalog.db import Catalog
from lastgood.flows.settings.apply import apply
from lastgood.rules.manifest_room import manifest_room
from tests.coordinator.api import Api, ok, refused
from tests.coordinator.conftest import CONFIG, write_config

SPILL = CONFIG["stores/local.yaml"].replace("local", "spill")
POLICY = CONFIG["policies/small.yaml"] + "capacity: {soft: 5kB, hard: 6kB, spill_store: spill}\n"
MANIFEST = manifest_room([("a", 1)])
"""What a prepare of one small object claims beside it."""


@pytest.fixture
def config() -> dict[str, str]:
    return {**CONFIG, "stores/spill.yaml": SPILL, "policies/small.yaml": POLICY}


def _changes(catalog: Catalog) -> list[tuple[str, str, str]]:
    with catalog.transaction() as tx:
        found = capacity_states.changes(tx, "vision")
    return [(row.store, row.state, row.cause) for row in reversed(found)]


def test_a_refused_job_gets_the_numbers_of_both_stores_and_when_to_ask_again(
    api: Api, catalog: Catalog, owner_dsn: str
) -> None:
    writers = [api.writer(workload=f"job-{number}") for number in range(3)]
    took = [ok(writer.prepare(1, {"a": bytes(4500)}), 201)["store"] for writer in writers[:2]]
    assert took == ["local", "spill"]

    answer = writers[2].prepare(1, {"a": bytes(600)})

    problem = refused(answer, 507, "no-room")
    assert (problem["store"], problem["state"], problem["asked_bytes"]) == (
        "local",
        "soft",
        600 + MANIFEST,
    )
    claimed = 4500 + MANIFEST
    assert (problem["usage_bytes"], problem["hard_bytes"]) == (claimed, 6000)
    assert list(problem["stores"]) == ["local", "spill"]
    assert [one["missing_bytes"] for one in problem["stores"].values()] == [
        claimed + 600 + MANIFEST - 6000
    ] * 2
    assert int(answer.headers["retry-after"]) == problem["retry_after_seconds"] == 3600
    assert _changes(catalog) == [
        ("local", "soft", f"admitted: {claimed:,} bytes"),
        ("spill", "soft", f"admitted: {claimed:,} bytes"),
    ]
    with psycopg.connect(owner_dsn) as owner:
        woken = owner.execute(
            "SELECT kind FROM lastgood.outbox WHERE stage_id IS NULL ORDER BY kind"
        ).fetchall()
    assert woken == [("receipts-wanted",), ("room-wanted",)]


def test_what_was_admitted_finishes_although_the_project_stands_closed(
    api: Api, catalog: Catalog, tmp_path: Path
) -> None:
    writer = api.writer()
    prepared = ok(writer.prepare(1, {"a": bytes(4500)}), 201)
    smaller = POLICY.replace("5kB, hard: 6kB, spill_store: spill", "1kB, hard: 2kB")
    apply(
        catalog,
        write_config(tmp_path / "smaller", {**CONFIG, "policies/small.yaml": smaller}),
        actor="operator:test",
    )
    refused(api.writer(workload="new").prepare(1, {"a": b"1"}), 507, "no-room")
    assert _changes(catalog)[-1] == ("local", "closed", f"refused: {1 + MANIFEST:,} bytes")

    files = {"a": bytes(4500)}
    again = ok(writer.prepare(1, files), 201)  # its answer was lost: the room is its own
    assert again["attempt"] == prepared["attempt"]
    token = again["fencing_token"]
    ok(writer.post(f"checkpoints/{again['attempt']}/grants", {"parts": []}, token))
    ok(writer.put(again["attempt"], "a", files["a"], token=token))
    ok(writer.commit(again["attempt"], writer.manifest(1, files)))
    with catalog.transaction() as tx:
        use = capacity.use(tx, "vision", "local").own
    assert use.in_flight_bytes == 0
    assert 4500 < use.committed_bytes < 4500 + MANIFEST  # claimed as a whole before it began
    refused(writer.prepare(2, files), 507, "no-room")
