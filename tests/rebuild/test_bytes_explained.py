"""After a rebuild every byte of the store is explained again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from lastgood.catalog.reconciliation import reports
from lastgood.flows.inventories import by_name
from lastgood.flows.reconciliation import reconcile
from lastgood.rules import layout
from lastgood.stores.base import Key
from tests.factories import send_parts, upload_object
from tests.rebuild.conftest import Lose, Older, publish, rebuilt
from tests.retention.world import PROJECT, World


def _report(world: World, folder: Path) -> dict[str, Any]:
    end = world.now()
    told = reconcile.run(
        world.catalog,
        world.stores,
        PROJECT,
        window=(end - timedelta(days=1), end),
        report_dir=folder,
        actor="dag:test",
    )
    with world.catalog.transaction() as tx:
        document: dict[str, Any] = reports.get(tx, told["reports"][0]["report_id"]).document
    return document


def _half_deleted(world: World, sequence: int) -> str:
    copy = world.commit(sequence)
    marker = world.store.stat(Key(layout.marker_key(copy.prefix)))
    assert marker is not None
    list(world.store.delete([marker]))
    return copy.prefix


def test_by_a_catalog_that_was_lost(any_world: World, lose: Lose, tmp_path: Path) -> None:
    any_world.commit(1)
    _half_deleted(any_world, 2)
    left = any_world.prepare(3, {"a.bin": b"a" * 10})
    upload_object(any_world.store, layout.object_key(left.prefix, "a.bin"), b"a" * 10)
    store = any_world.store
    taken = by_name.take(
        any_world.catalog, any_world.stores, store.name, accounts_for=[PROJECT], actor="test"
    )
    killed = Key(f"{layout.inventory_prefix(store.name, taken.inventory)}owned-aaaaaaaa.parquet")
    send_parts(store, killed, store.create_upload(killed, 60), b"p" * 60)
    publish(any_world)
    again = lose(any_world)
    rebuilt(again)

    document = _report(again, tmp_path / "reports")

    assert document["equation"]["closes"]
    assert document["store_equation"]["lines"]["unexplained"] == 0
    assert document["findings"] == []
    assert document["counts"]["failed"] == 2


def test_by_one_that_was_outdated(any_world: World, older: Older, tmp_path: Path) -> None:
    _half_deleted(any_world, 1)
    any_world.commit(2)
    publish(any_world)
    take = older(any_world)
    any_world.commit(3)
    publish(any_world)
    behind = take(any_world)
    rebuilt(behind)

    document = _report(behind, tmp_path / "reports")

    assert document["equation"]["closes"]
    assert document["equation"]["lines"]["unexplained"] == 0
    assert document["findings"] == []
