"""What the catalog puts into its outbox wakes the DAGs that wait for it, each by its own row."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.flows.capacity import pressure
from lastgood.wakeup import AWAITED, OutboxTrigger
from tests.retention.world import PROJECT, World, opened

DAGS = Path(__file__).parents[2] / "dags"


@pytest.fixture
def world(
    catalog_dsn: str, owner_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def _kinds(dag: str, asset: str) -> set[str]:
    watchers = runpy.run_path(str(DAGS / f"{dag}.py"))[asset].watchers
    return {kind for watcher in watchers for kind in watcher.trigger.kinds}


def _waiting(world: World) -> set[str]:
    rows = world.owner.execute(
        "SELECT kind FROM lastgood.outbox WHERE delivered_at IS NULL AND stage_id IS NULL"
    )
    return {row[0] for row in rows}


async def _delivered(world: World, kinds: set[str]) -> None:
    while _waiting(world) & kinds:
        await asyncio.sleep(0.01)


async def _first(world: World, kinds: set[str]) -> dict[str, object]:
    """What a trigger fires with; it goes on until that is delivered."""
    firing = OutboxTrigger(sorted(kinds), poll_seconds=0.01).run()
    event = await asyncio.wait_for(anext(firing), 60)
    going_on = asyncio.ensure_future(anext(firing))
    await asyncio.wait_for(_delivered(world, kinds), 60)
    going_on.cancel()
    await asyncio.gather(going_on, return_exceptions=True)
    payload: dict[str, object] = event.payload
    return payload


def test_crossing_soft_wakes_the_sweep_and_the_validations(world: World) -> None:
    world.promote({"capacity": {"soft": "1B", "hard": "10MB"}})
    world.commit(1)
    world.commit(2)
    pressure.observe(world.catalog, PROJECT, cause="a test", actor="test")
    sweep, validate = _kinds("sweep_quarantine", "ROOM_WANTED"), {"receipts-wanted"}
    assert sweep == {"room-wanted"}
    assert validate < _kinds("validate_restores", "COMMITTED")
    assert sweep | validate < set(AWAITED)

    assert asyncio.run(_first(world, sweep)) == {"projects": [PROJECT], "events": 1}
    assert _waiting(world) == validate
    assert asyncio.run(_first(world, validate)) == {"projects": [PROJECT], "events": 1}
