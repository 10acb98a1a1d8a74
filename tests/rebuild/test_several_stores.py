"""A catalog over several stores, and stores that a new catalog has claimed too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood import errors
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.flows import control_keys
from lastgood.rules import layout
from lastgood.stores.base import Key
from lastgood.stores.file import FileStore
from tests.rebuild.conftest import Lose, checkpoints_of, publish, rebuilt
from tests.retention.world import World


def _second(world: World, root: Path, name: str = "spill") -> FileStore:
    """Another store of the catalog; the world's next commits go there."""
    root.mkdir(exist_ok=True)
    store = FileStore(name, root)
    world.stores[name] = store
    _configure(world, root, name)
    return store


def _configure(world: World, root: Path, name: str = "spill") -> None:
    config = {"name": name, "kind": "file", "root": str(root)}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow(name, "file", config, "rack-2", "warm"))


def _spilled(world: World, root: Path) -> FileStore:
    spill = _second(world, root)
    control_keys.claim(world.catalog, spill)
    world.owner.execute(
        "INSERT INTO lastgood.capacity_counters (project, store) VALUES ('vision', 'spill')"
    )
    world.commit(1)
    own, world.store = world.store, spill
    world.commit(2)
    world.store = own
    publish(world)
    return spill


def test_checkpoints_of_one_stage_come_back_from_two_stores(
    world: World, lose: Lose, tmp_path: Path
) -> None:
    spill = _spilled(world, tmp_path / "spill")
    before = checkpoints_of(world)
    again = lose(world)
    _configure(again, spill.root)

    told = rebuilt(again)

    assert (told.added, [one.latest for one in told.stages]) == (2, ["vision/gpt/pretrain/1.2"])
    assert checkpoints_of(again) == before
    control_keys.guard(again.catalog, again.stores)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(world.catalog, world.stores)


def test_a_store_left_out_goes_on_refusing_until_it_is_rebuilt_too(
    world: World, lose: Lose, tmp_path: Path
) -> None:
    spill = _spilled(world, tmp_path / "spill")
    control_keys.publish(world.catalog, [spill], "vision", 1, generation=1)
    again = lose(world)
    _configure(again, spill.root)

    assert rebuilt(again, names=["spill"]).added == 1
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(again.catalog, again.stores)
    told = rebuilt(again)
    assert (told.added, told.confirmed, told.incarnation) == (1, 1, 3)
    control_keys.guard(again.catalog, again.stores)


def test_an_empty_store_that_the_new_catalog_claimed_comes_along(
    world: World, lose: Lose, tmp_path: Path
) -> None:
    world.commit(1)
    publish(world)
    again = lose(world)
    fresh = _second(again, tmp_path / "fresh", "fresh")
    control_keys.claim(again.catalog, fresh)

    rebuilt(again)

    control_keys.guard(again.catalog, again.stores)
    assert control_keys.owner_of(fresh) == control_keys.owner_of(world.store)


def test_stores_of_two_catalogs_are_not_mixed(world: World, lose: Lose, tmp_path: Path) -> None:
    world.commit(1)
    again = lose(world)
    other = _second(again, tmp_path / "other", "other")
    other.put_new(
        Key(layout.CATALOG_KEY),
        b'{"catalog_id": "0b8f0f4e-5a1c-4c64-9d0e-3c6f5f0f5a11", "facts": {}}',
    )

    with pytest.raises(errors.Conflict, match="different catalogs"):
        rebuilt(again)
    control_keys.guard(world.catalog, world.stores, "vision")
