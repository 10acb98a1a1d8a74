"""From candidate to tombstone, on a real file store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood import errors
from lastgood.catalog.sweeping import tombstones
from lastgood.flows import quarantine
from lastgood.flows.auditing import audit
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import sweep
from tests.retention.world import PROJECT, World

GRACE = timedelta(hours=1)


def test_a_checkpoint_that_nothing_keeps_goes_through_quarantine_to_a_proven_deletion(
    world: World,
) -> None:
    old = world.commit(1)
    kept = [world.commit(2), world.commit(3)]
    before = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")[0]
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"
    assert set(world.keys(old).values()) == {True}
    world.advance(GRACE)
    world.mark()
    told = world.sweep()
    assert world.state(old) == "deleted"
    assert world.keys(old) == {}
    assert [world.state(copy) for copy in kept] == ["present", "present"]
    assert told["deleted"] == 1
    after = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")[0]
    assert before - after == old.stored_bytes == told["freed_bytes"]
    with world.catalog.transaction() as tx:
        chain = tombstones.of_stage(tx, PROJECT, old.stage_id)
        outcomes = tombstones.outcomes(tx, chain[0])
    assert [(t.copy_id, t.mark_id is not None, t.proof is not None) for t in chain] == [
        (old.copy_id, True, True)
    ]
    assert {fact["truth"] for fact in chain[0].facts["facts"].values()} == {"true"}
    assert (outcomes.gone, outcomes.refused) == (3, 0)
    assert audit.run(world.catalog, PROJECT).breaks == []


def test_before_the_grace_is_over_nothing_is_deleted(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    world.advance(GRACE - timedelta(minutes=1))
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"


def test_of_the_policies_under_which_a_copy_waits_the_longer_grace_counts(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    for grace, waits in (("1m", GRACE), ("2h", 2 * GRACE)):
        world.promote({"quarantine": {"grace": grace, "share_guard": "100%"}})
        (told,) = quarantine.listed(world.catalog, PROJECT)
        assert told.deletable_at - told.copy.state_at == waits
        world.advance(waits - GRACE + timedelta(minutes=2))
        world.mark()
        world.sweep()
        assert world.state(old) == "quarantined"
    world.promote({"quarantine": {"grace": "1m", "share_guard": "100%"}}, name="shorter")
    world.mark()
    world.sweep()
    assert world.state(old) == "deleted"


def test_a_replayed_mark_cannot_be_swept(world: World) -> None:
    world.commit(1)
    world.commit(2)
    replay = mark.run(world.catalog, PROJECT, at=world.now(), kind="replay")["mark_id"]
    with pytest.raises(errors.MarkNotSweepable, match="replay"):
        sweep.plan(world.catalog, PROJECT, replay)


def test_a_mark_under_an_older_policy_cannot_be_swept(world: World) -> None:
    world.commit(1)
    world.mark()
    world.promote({"roles": {"hot": {"keep": "newest", "count": 5}}})
    with pytest.raises(errors.MarkNotSweepable, match="no more in force"):
        sweep.plan(world.catalog, PROJECT)


def test_an_old_mark_cannot_be_swept(world: World) -> None:
    world.commit(1)
    world.mark()
    world.advance(timedelta(hours=3))
    with pytest.raises(errors.MarkNotSweepable, match="mark_max_age"):
        sweep.plan(world.catalog, PROJECT)
