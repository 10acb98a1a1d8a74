"""`lastgood rebuild`, `release-preview` and `audit` as an operator runs them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.catalog.jobs import copies
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.stores.base import Key
from tests.cli.conftest import CommandLine
from tests.rebuild.conftest import Databases, Lose, publish
from tests.retention.world import PROJECT, World


@pytest.fixture
def lastgood(world: World, lose: Lose, tmp_path: Path) -> tuple[World, CommandLine]:
    for sequence in range(1, 6):
        world.commit(sequence)
    publish(world)
    again = lose(world)
    dsn = str(again.catalog._pool.conninfo)
    environment = {**os.environ, "LASTGOOD_CATALOG": dsn, "LASTGOOD_OPERATOR": "ann"}
    return again, CommandLine(environment, tmp_path)


def test_a_rebuild_by_hand_and_what_its_hold_keeps(lastgood: tuple[World, CommandLine]) -> None:
    world, run = lastgood
    assert run("rebuild", "--because", " ").code == 2

    told = run("rebuild", "--because", "the disk died", "--json")

    assert (told.code, told.document["added"], told.document["incarnation"]) == (0, 5, 2)
    assert world.row("SELECT actor, because FROM lastgood.rebuilds") == (
        "operator:ann",
        "the disk died",
    )
    hold = told.document["holds"][PROJECT]
    leaving = run("release-preview", hold, "--json").document["leaving"]
    assert [(one["checkpoint"][-3:], one["now"]) for one in leaving] == [
        ("1.1", False),
        ("1.2", False),
        ("1.3", False),
    ]
    with world.catalog.transaction() as tx:
        present = copies.in_state(tx, PROJECT, copies.State.PRESENT)
    for copy in present:
        validate.run(world.catalog, world.stores, copy.copy_id)
    leaving = run("release-preview", hold, "--json").document["leaving"]
    assert all(one["now"] for one in leaving)
    assert run("release", hold, "--because", "looked").code == 0
    world.mark()
    assert world.sweep()["quarantined"] == len(leaving)
    assert run("audit").code == 0


def test_apply_writes_what_the_rebuild_of_a_lost_catalog_needs_before_it_refuses_the_store(
    world: World, databases: Databases, tmp_path: Path
) -> None:
    world.commit(1)
    publish(world)
    files = {
        "stores/local.yaml": f"name: local\nkind: file\nroot: {tmp_path / 'store'}\n"
        "failure_domain: rack-1\ntier: fast\n",
        "projects/vision.yaml": f"name: {PROJECT}\nowner: team\nstore: local\npolicy: short\n"
        "finding_owner: team\nfinding_deadline: 3d\n",
        "policies/short.yaml": "name: short\nroles:\n  hot: {keep: newest, count: 2}\n",
    }
    for name, text in files.items():
        (tmp_path / "config" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "config" / name).write_text(text)
    run = CommandLine({**os.environ, "LASTGOOD_CATALOG": databases.empty().app_dsn}, tmp_path)
    for _ in range(2):
        refused = run("apply", "config")
        assert (refused.code, "`lastgood rebuild` takes its place" in refused.err) == (5, True)
    assert not (tmp_path / "store" / "probe").exists()

    told = run("rebuild", "--because", "the disk died", "--json")

    assert (told.code, told.document["added"]) == (0, 1)
    assert run("apply", "config", "--json").document["changes"][0]["how"] == "probed"


def test_a_role_by_time_bucket_sees_one_bucket_and_the_preview_says_so(
    lastgood: tuple[World, CommandLine],
) -> None:
    world, run = lastgood
    world.promote({"roles": {"daily": {"keep": "every", "interval": "1d", "within": "30d"}}})
    world.advance(timedelta(hours=1))
    told = run("rebuild", "--because", "the disk died", "--json")
    leaving = run("release-preview", told.document["holds"][PROJECT], "--json")
    assert [one["checkpoint"][-3:] for one in leaving.document["leaving"]] == [
        "1.1",
        "1.2",
        "1.3",
        "1.4",
    ]


def test_something_that_is_not_whole_ends_with_1_and_a_broken_record_too(
    lastgood: tuple[World, CommandLine],
) -> None:
    world, run = lastgood
    [bad] = [
        one
        for one in world.store.list("checkpoints/")
        if "0003/" in one.key and one.key.endswith("model.bin")
    ]
    list(world.store.delete([bad]))

    told = run("rebuild", "--because", "the disk died")

    assert told.code == 1
    assert "not whole, kept as evidence: vision/gpt/pretrain/1.3" in told.out
    assert "model.bin: missing-object" in told.out
    assert world.store.stat(Key(layout.CATALOG_KEY)) is not None
    world.owner.execute("UPDATE lastgood.copies SET state = 'quarantined' WHERE copy_id = 1")
    audited = run("audit", "--json")
    assert audited.code == 1
    assert [one["kind"] for one in audited.document["breaks"]] == ["copy"]
