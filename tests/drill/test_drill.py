"""A drill restores what a recovery would, lives a checkpoint's life on the real store, and writes
down what it saw before it fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood import errors
from lastgood.catalog import drills
from lastgood.flows import drill
from lastgood.stores.base import Prefix
from tests.retention.world import PROJECT, World, opened

ACTOR = "operator:ann"


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def run(world: World, **options: object) -> drills.Drill:
    return drill.run(
        world.catalog,
        world.stores,
        PROJECT,
        actor=ACTOR,
        wait=world.advance,
        **options,  # type: ignore[arg-type]
    )


def test_the_life_of_a_scratch_checkpoint_shows_all_that_it_must(world: World) -> None:
    world.commit(1, {"model.bin": b"model" * 100})
    world.release_writer()
    mine = {one.key: one.size_bytes for one in world.store.list(Prefix(f"checkpoints/{PROJECT}/"))}

    told = run(world)

    for one in told.expectations:
        print(one.passed, one.expectation, "|", one.evidence)
    assert drill.failures(told) == []
    assert told.passed
    said = [one.expectation for one in told.expectations]
    assert len(said) >= 16
    for needed in ("interrupted checkpoint is reclaimed", "held survives", "read survives"):
        assert any(needed in one for one in said), said
    assert mine == {
        one.key: one.size_bytes for one in world.store.list(Prefix(f"checkpoints/{PROJECT}/"))
    }
    left = list(world.store.list(Prefix("checkpoints/drill-local/")))
    assert len({one.key.split("/")[4] for one in left}) == 1
