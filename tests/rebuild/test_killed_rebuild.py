"""A rebuild that is killed at any step is finished by the next, and nothing is served between."""

from __future__ import annotations

import pytest

from lastgood import errors
from lastgood.catalog.sweeping import tombstones
from lastgood.faults import REBUILD_POINTS
from lastgood.flows import control_keys
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.faults.dying import killed_at
from tests.rebuild.conftest import Lose, Older, checkpoints_of, publish, rebuilt
from tests.retention.world import PROJECT, World

PROGRAM = """
from lastgood.catalog.connect import open_catalog
from lastgood.flows.rebuilding import rebuild
from lastgood.flows.services import stores_of
catalog = open_catalog()
rebuild.run(catalog, stores_of(catalog), because='the disk died', actor='operator:ann')
"""


def killed(world: World, point: str) -> None:
    """Rebuild in a process of its own that dies at this point, as by a power cut."""
    killed_at(point, PROGRAM, catalog=str(world.catalog._pool.conninfo))


def _require_equation(world: World) -> None:
    listed = sum(one.size_bytes for one in world.store.list(Prefix("checkpoints/")))
    (sums,) = world.row("SELECT committed_bytes + in_flight_bytes FROM lastgood.capacity_counters")
    assert sums == listed


@pytest.mark.parametrize(
    "point", [point for point in REBUILD_POINTS if point != "rebuild.after-gone"]
)
def test_a_killed_rebuild_of_a_lost_catalog_is_gone_on_with(
    world: World, lose: Lose, point: str
) -> None:
    base = world.commit(1)
    world.commit(2, depends_on=[base])
    half = world.commit(3)
    marker = world.store.stat(Key(layout.marker_key(half.prefix)))
    assert marker is not None
    list(world.store.delete([marker]))
    world.commit(1, stage="sft")
    publish(world, "pretrain", "sft")
    before = [row for row in checkpoints_of(world) if row[3] != 3]
    again = lose(world)

    killed(again, point)

    if point != "rebuild.after-end":
        with pytest.raises((errors.CatalogBehind, errors.ForeignCatalog)):
            control_keys.guard(again.catalog, again.stores)
    told = rebuilt(again)
    assert told.flawless
    assert [(*row[:12], *row[13:]) for row in checkpoints_of(again)] == [
        (*row[:12], *row[13:]) for row in before
    ]
    assert {one.latest for one in told.stages} == {
        "vision/gpt/pretrain/1.2",
        "vision/gpt/sft/1.1",
    }
    control_keys.guard(again.catalog, again.stores)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(world.catalog, world.stores)
    held = "SELECT count(DISTINCT checkpoint_id) FROM lastgood.hold_checkpoints"
    assert again.row(held) == (3,)
    _require_equation(again)


@pytest.mark.parametrize(
    "point",
    [
        "rebuild.after-identity",
        "rebuild.after-checkpoint",
        "rebuild.after-gone",
        "rebuild.after-stage",
    ],
)
def test_a_killed_rebuild_of_an_outdated_catalog_is_gone_on_with(
    world: World, older: Older, point: str
) -> None:
    gone = world.commit(1)
    world.commit(2)
    world.mark()
    publish(world)
    take = older(world)
    list(world.store.delete(list(world.store.list(Prefix(gone.prefix)))))
    world.commit(3)
    publish(world)
    behind = take(world)

    killed(behind, point)

    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(behind.catalog, behind.stores)
    rebuilt(behind)
    control_keys.guard(behind.catalog, behind.stores)
    assert behind.state(gone) == "deleted"
    assert [row[3] for row in checkpoints_of(behind)] == [2, 3]
    with behind.catalog.transaction() as tx:
        [tombstone] = tombstones.of_stage(tx, PROJECT, gone.stage_id)
    assert tombstone.proof is not None
    _require_equation(behind)


def test_a_killed_rebuild_goes_on_under_its_incarnation(world: World, lose: Lose) -> None:
    world.commit(1)
    world.commit(2)
    publish(world)
    again = lose(world)
    killed(again, "rebuild.after-checkpoint")
    assert again.row("SELECT count(*) FROM lastgood.checkpoints") == (1,)

    told = rebuilt(again)

    assert (told.incarnation, told.added) == (2, 2)
    assert again.row("SELECT count(*) FROM lastgood.rebuilds") == (1,)
    assert again.row("SELECT count(*) FROM lastgood.holds") == (1,)
