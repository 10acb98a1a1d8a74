"""The room as operators see it: API, page, metrics and command line say the same."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from tests.cli.conftest import CommandLine, lastgood
from tests.retention.world import World

__all__ = ["lastgood"]

SIZE = 100_000


@pytest.fixture
def pressed(world: World) -> World:
    """Two stages above soft; one waits for a receipt, and collection cannot reach what is asked."""
    world.promote({"capacity": {"soft": "75%", "hard": "85%", "reserve": "0B"}})
    for sequence in (1, 2, 3):
        world.commit(sequence, {"a": bytes(SIZE)})
        world.commit(sequence, {"a": bytes(SIZE)}, stage="sft", receipt=None)
    world.owner.execute(
        "UPDATE lastgood.capacity_counters SET backend_total = committed_bytes * 100 / 84,"
        " backend_at = now()"
    )
    world.mark()
    world.sweep()
    return world


def test_api_page_metrics_and_command_line_say_the_same(
    api: httpx.Client, pressed: World, lastgood: CommandLine
) -> None:
    [shown] = api.get("/v1/capacity", params={"project": "vision"}).json()["capacity"]
    assert (shown["state"], shown["store"], shown["cause"]) == (
        "closed",
        "local",
        "a proof of reach",
    )
    proof, numbers = shown["proof"], shown["numbers"]
    assert not proof["reaches"]
    assert 0 < proof["expected_bytes"] - 2 * SIZE < 2 * 1000  # with a manifest of each
    help_text = "validate the newest checkpoint of vision/gpt/sft at level checksum"
    assert proof["helps"][0]["what"] == help_text

    metrics = api.get("/metrics").text
    where = 'project="vision",store="local"'
    for line in (
        'lastgood_capacity_state{project="vision",state="closed",store="local"} 1.0',
        'lastgood_capacity_state{project="vision",state="open",store="local"} 0.0',
        f"lastgood_capacity_unreachable{{{where}}} 1.0",
    ):
        assert line in metrics
    usage = f'lastgood_capacity_bytes{{number="usage",{where}}}'
    told = next(line for line in metrics.splitlines() if line.startswith(usage))
    assert float(told.split()[-1]) == numbers["usage_bytes"]

    page = api.get("/pages/capacity").text
    assert help_text in page
    assert "a sweep looked" in page

    told_here = lastgood("capacity", "-p", "vision", "--json").document["capacity"]
    assert [{**one, "at": None} for one in told_here] == [{**shown, "at": None}]
    printed = lastgood("capacity")
    assert printed.code == 0
    assert "closed" in printed.out
    assert f"{help_text}: frees" in printed.out
    alerts = lastgood("status").out
    assert "new jobs are refused; see `lastgood capacity --project vision`" in alerts


def test_what_was_recorded_is_read_as_of_an_instant(
    api: httpx.Client, pressed: World, lastgood: CommandLine
) -> None:
    changes = api.get("/v1/capacity/changes").json()["changes"]
    assert [(one["state"], one["cause"]) for one in changes] == [
        ("closed", "a proof of reach"),
        ("soft", "a sweep looked"),
    ]
    [then] = api.get("/v1/capacity", params={"at": changes[1]["recorded_at"]}).json()["capacity"]
    assert (then["state"], then["proof"]) == ("soft", None)
    told = lastgood("capacity", "--at", changes[1]["recorded_at"], "--json").document
    assert told["capacity"] == [then]
    assert "a proof of reach" in lastgood("capacity", "--changes").out
    tomorrow = (pressed.now() + timedelta(days=1)).isoformat()
    assert api.get("/v1/capacity", params={"at": tomorrow}).status_code == 422
    assert lastgood("capacity", "-p", "nobody").code == 4
    order = lastgood("sweep", "vision", "--dry-run").out
    assert "under pressure in local" in order
    assert "under pressure the sweep marks first: this is what mark" in order
