"""Incremental checkpoints: one is worth no more than the worst of all that it depends on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from lastgood import errors
from lastgood.catalog import outbox
from lastgood.catalog.jobs import dependencies
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.validation import validations
from lastgood.flows.capacity import pressure
from lastgood.flows.jobs import read
from lastgood.flows.retention import mark, why
from lastgood.flows.validation import unblock, validate
from lastgood.stores.base import Prefix
from tests.factories import upload_object
from tests.retention.world import PROJECT, World

ANN = "operator:ann"
KEEP_ONE = {"roles": {"hot": {"keep": "newest", "count": 1}}}


def damage(world: World, copy: Copy) -> None:
    """Take the copy's object away, and let a validation find that."""
    objects = list(world.store.list(Prefix(f"{copy.prefix}objects/")))
    assert {str(one.outcome) for one in world.store.delete(objects)} == {"gone"}
    told = validate.run(world.catalog, world.stores, copy.copy_id)
    assert told["verdict"] == "fail"


def woken(world: World) -> bool:
    """Whether somebody waits to run validations; hears of it, too."""
    with world.catalog.transaction() as tx:
        found = outbox.undelivered(tx, [pressure.RECEIPTS_WANTED])
        outbox.deliver(tx, found)
    return bool(found)


def collect(world: World) -> None:
    """Mark and sweep until nothing more would go."""
    for _ in range(3):
        world.mark()
        assert world.sweep()["failed"] == {}
        world.advance(timedelta(hours=1, minutes=30))


def test_what_depends_on_damage_is_no_last_good_checkpoint(world: World) -> None:
    world.promote(KEEP_ONE)
    good = world.commit(1)
    base = world.commit(2)
    middle = world.commit(3, depends_on=[base])
    last = world.commit(4, depends_on=[middle])
    world.release_writer()
    before = mark.run(world.catalog, PROJECT)
    assert [world.state(copy) for copy in (good, base, middle, last)] == ["present"] * 4

    damage(world, base)
    latest = read.latest(world.catalog, world.stage_name()).checkpoint
    assert latest is not None
    assert latest.id == good.checkpoint
    with pytest.raises(errors.Conflict, match=r"1\.4 depends on .*1\.2, of which no sound copy"):
        read.acquire_reader(world.catalog, world.stage_name(), last.checkpoint, reader="x")

    collect(world)
    assert world.state(good) == "present"
    told = why.why(world.catalog, world.stores, good.checkpoint)
    assert [reason.name for reason in told.kept] == ["hot", "floor"]
    replayed = mark.run(
        world.catalog, PROJECT, at=datetime.fromisoformat(before["at"]), kind="replay"
    )
    assert replayed["digest"] == before["digest"]


def test_other_stages_that_depend_on_damage_are_blocked_and_walk_back(world: World) -> None:
    base = world.commit(1)
    good = world.commit(1, stage="sft")
    last = world.commit(2, stage="sft", depends_on=[base])
    only = world.commit(1, stage="eval", depends_on=[base])
    damage(world, base)
    assert woken(world)
    with pytest.raises(errors.RestoreBlocked):
        read.latest(world.catalog, world.stage_name("sft"))
    with pytest.raises(errors.Conflict, match="depends on"):
        unblock.unblock(world.catalog, world.stores, last.checkpoint, because="x", actor=ANN)
    for copy_id in validate.due_levels(world.catalog, PROJECT):
        validate.run(world.catalog, world.stores, copy_id)
    latest = read.latest(world.catalog, world.stage_name("sft")).checkpoint
    assert latest is not None
    assert latest.id == good.checkpoint
    assert not woken(world)
    upload_object(world.store, f"{base.prefix}objects/model.bin", b"pretrain 1.1" * 10)
    assert validate.run(world.catalog, world.stores, base.copy_id)["verdict"] == "pass"
    assert woken(world), "nothing of stage eval was validated, and it can be restored again"
    for copy_id in validate.due_levels(world.catalog, PROJECT):
        validate.run(world.catalog, world.stores, copy_id)
    latest = read.latest(world.catalog, world.stage_name("eval")).checkpoint
    assert latest is not None
    assert latest.id == only.checkpoint


def test_a_base_that_passes_again_is_one(world: World) -> None:
    base = world.commit(1)
    last = world.commit(2, depends_on=[base])
    world.receipt(base, "fail")
    with world.catalog.transaction() as tx:
        assert dependencies.on_damage(tx, PROJECT, world.now()) == {last.manifest}
        assert validations.restorable(tx, PROJECT, last.stage_id) == []
    world.receipt(base, "inconclusive")
    with world.catalog.transaction() as tx:
        assert dependencies.on_damage(tx, PROJECT, world.now()) == {last.manifest}
    world.receipt(base)
    with world.catalog.transaction() as tx:
        assert dependencies.on_damage(tx, PROJECT, world.now()) == frozenset()
        assert validations.restorable(tx, PROJECT, last.stage_id) == [last.copy_id, base.copy_id]
