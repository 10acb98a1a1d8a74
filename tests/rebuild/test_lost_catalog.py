"""A catalog that was lost comes back from what its stores say, and from nothing else."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from lastgood import errors
from lastgood.catalog.jobs import checkpoints, copies
from lastgood.catalog.keeping import holds as catalog_holds
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.validation import receipts
from lastgood.flows import control_keys
from lastgood.flows.cleaning import cleanup
from lastgood.flows.jobs import acquire
from lastgood.flows.keeping import release
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.factories import upload_object
from tests.rebuild.conftest import Lose, checkpoints_of, publish, rebuilt
from tests.retention.world import PROJECT, World


def _filled(world: World) -> None:
    base = world.commit(1, {"a.bin": b"aaaa", "deep/b c%.bin": b"", "c.bin": b"c" * 70_000})
    world.commit(2, metrics={"eval/loss": 0.5})
    newer = world.commit(1, generation=2, depends_on=[base])
    world.commit(1, stage="sft")
    world.commit(3, generation=2, resumed_from=newer)
    publish(world, "pretrain", "sft")


def test_the_same_checkpoints_manifests_and_pointers_come_back(
    any_world: World, lose: Lose
) -> None:
    _filled(any_world)
    before = checkpoints_of(any_world)
    again = lose(any_world)

    told = rebuilt(again)

    assert told.flawless, [one.reason for one in told.not_whole + told.contradicted]
    assert (told.added, told.confirmed, told.leftovers) == (5, 0, [])
    assert checkpoints_of(again) == before
    assert {(one.stage, one.generation, one.latest) for one in told.stages} == {
        ("vision/gpt/pretrain", 3, "vision/gpt/pretrain/2.3"),
        ("vision/gpt/sft", 2, "vision/gpt/sft/1.1"),
    }
    control_keys.guard(again.catalog, again.stores)
    with again.catalog.transaction() as tx:
        for copy in copies.in_state(tx, PROJECT, copies.State.PRESENT):
            assert receipts.of_copy(tx, PROJECT, copy.copy_id) == []
    assert again.row("SELECT committed_bytes, in_flight_bytes FROM lastgood.capacity_counters") == (
        sum(one.size_bytes for one in again.store.list(Prefix("checkpoints/"))),
        0,
    )


def test_history_goes_on_above_what_the_stores_saw(world: World, lose: Lose) -> None:
    world.commit(1)
    publish(world)
    events = "SELECT last_event, generation FROM lastgood.stages"
    (last_event, generation) = world.row(events)
    again = lose(world)

    rebuilt(again)

    assert again.row("SELECT min(number) > %s FROM lastgood.events", last_event) == (True,)
    assert again.row(events)[1] == generation + 1
    assert again.row(
        "SELECT bool_and(ordered) FROM (SELECT recorded_at > lag(recorded_at) OVER"
        " (ORDER BY generation, sequence) IS NOT false AS ordered FROM lastgood.checkpoints) t"
    ) == (True,)


def test_the_lost_catalog_that_comes_back_refuses(world: World, lose: Lose) -> None:
    world.commit(1)
    publish(world)
    again = lose(world)
    rebuilt(again)

    control_keys.guard(again.catalog, again.stores)
    with pytest.raises(errors.CatalogBehind, match="incarnation 2"):
        control_keys.guard(world.catalog, world.stores)
    with pytest.raises(errors.CatalogBehind):
        world.sweep()


def test_a_job_acquires_the_next_generation_and_resumes(world: World, lose: Lose) -> None:
    last = world.commit(1)
    publish(world)
    again = lose(world)
    rebuilt(again)

    name = again.stage_name()
    seen = acquire.holder_of(again.catalog, name)
    request = acquire.AcquireRequest(name, seen.generation, "k", "node-1", "checkpointed", "large")
    acquired = acquire.acquire(again.catalog, again.stores, request)

    assert (seen.active, acquired.generation) == (False, 3)
    assert acquired.resume is not None
    assert acquired.resume.manifest == last.manifest
    again.commit(1, generation=3)
    control_keys.guard(again.catalog, again.stores)
    other = acquire.AcquireRequest(name, 3, "k2", "node-1", "checkpointed", "small")
    with pytest.raises(errors.Conflict, match="class large"):
        acquire.acquire(again.catalog, again.stores, other)


def test_nothing_is_swept_before_the_holds_are_released(any_world: World, lose: Lose) -> None:
    for sequence in range(1, 6):
        any_world.commit(sequence)
    left = any_world.prepare(9, {"a.bin": b"a"})
    upload_object(any_world.store, layout.object_key(left.prefix, "a.bin"), b"a")
    publish(any_world)
    again = lose(any_world)
    told = rebuilt(again)
    again._offset = any_world._offset
    before = sorted(one.key for one in again.store.list(Prefix("checkpoints/")))
    with again.catalog.transaction() as tx:
        present = [one.copy_id for one in copies.in_state(tx, PROJECT, copies.State.PRESENT)]
    for copy_id in present:
        assert validate.run(again.catalog, again.stores, copy_id)["verdict"] == "pass"
    again.advance(timedelta(days=3))
    for copy_id in present:
        validate.run(again.catalog, again.stores, copy_id)
    again.mark()
    swept = again.sweep()
    cleaned = cleanup.run(again.catalog, again.stores, PROJECT, "dag:test")

    assert (swept["quarantined"], swept["deleted"], cleaned["evidence_dropped"]) == (0, 0, 0)
    assert sorted(one.key for one in again.store.list(Prefix("checkpoints/"))) == before

    [hold] = told.holds.values()
    release.release(
        again.catalog, again.stores, PROJECT, UUID(hold), because="looked", actor="operator:ann"
    )
    again.mark()
    assert again.sweep()["quarantined"] == 3
    cleaned = cleanup.run(again.catalog, again.stores, PROJECT, "dag:test")
    assert (cleaned["evidence_dropped"], cleaned["closed"], cleaned["failed"]) == (1, 1, {})


def test_half_deleted_and_half_committed_ones_never_become_checkpoints(
    any_world: World, lose: Lose
) -> None:
    half_deleted, kept = any_world.commit(1), any_world.commit(2)
    marker = any_world.store.stat(Key(layout.marker_key(half_deleted.prefix)))
    assert marker is not None
    list(any_world.store.delete([marker]))
    half_committed = any_world.prepare(3, {"a.bin": b"a"})
    upload_object(any_world.store, layout.object_key(half_committed.prefix, "a.bin"), b"a")
    publish(any_world)
    again = lose(any_world)

    told = rebuilt(again)

    assert (told.added, told.flawless) == (1, True)
    assert {one.prefix for one in told.leftovers} == {half_deleted.prefix, half_committed.prefix}
    assert [row[5] for row in checkpoints_of(again)] == [kept.manifest]
    assert again.row("SELECT count(*) FROM lastgood.attempts WHERE state = 'failed'") == (2,)


def test_a_quarantined_one_comes_back_held(any_world: World, lose: Lose) -> None:
    old = any_world.commit(1)
    any_world.commit(2)
    any_world.commit(3)
    any_world.mark()
    any_world.sweep()
    assert any_world.state(old) == "quarantined"
    publish(any_world)
    again = lose(any_world)

    told = rebuilt(again)

    assert told.added == 3
    assert set(again.keys(old).values()) == {False}
    with again.catalog.transaction() as tx:
        [copy] = copies.of_checkpoint(tx, old.checkpoint)
        held = catalog_holds.on_checkpoint(tx, PROJECT, copy.checkpoint_id)
    assert copy.state is copies.State.PRESENT
    assert [one.kind for one in held] == ["incident"]


def test_a_flipped_byte_is_named_and_becomes_no_checkpoint(any_world: World, lose: Lose) -> None:
    good, bad = any_world.commit(1), any_world.commit(2, {"a.bin": b"right", "b.bin": b"b"})
    on_bad = any_world.commit(3, depends_on=[bad])
    key = Key(layout.object_key(bad.prefix, "a.bin"))
    there = any_world.store.stat(key)
    assert there is not None
    list(any_world.store.delete([there]))
    upload_object(any_world.store, key, b"wrong")
    publish(any_world)
    again = lose(any_world)

    told = rebuilt(again)

    assert not told.flawless
    problems = {one.checkpoint: one for one in told.not_whole}
    assert set(problems) == {str(bad.checkpoint), str(on_bad.checkpoint)}
    [named] = problems[str(bad.checkpoint)].objects
    assert (named["path"], named["problem"]) == ("a.bin", "digest-mismatch")
    assert bad.manifest in problems[str(on_bad.checkpoint)].reason
    assert [row[5] for row in checkpoints_of(again)] == [good.manifest]
    with again.catalog.transaction() as tx:
        assert checkpoints.find(tx, bad.checkpoint) is None
    assert again.store.stat(key) is not None


def test_a_dry_run_changes_nothing(world: World, lose: Lose) -> None:
    world.commit(1)
    publish(world)
    again = lose(world)
    before = {one.key for one in world.store.list(Prefix(""))}

    told = rebuilt(again, dry_run=True)

    assert (told.markers, told.incarnation) == (1, None)
    assert {one.key for one in world.store.list(Prefix(""))} == before
    assert again.row("SELECT count(*) FROM lastgood.stages") == (0,)
    control_keys.guard(world.catalog, world.stores)


def test_foreign_keys_are_named_and_left_alone(world: World, lose: Lose) -> None:
    world.commit(1)
    upload_object(world.store, "notes/readme.txt", b"mine")
    again = lose(world)
    told = rebuilt(again)
    assert told.stores["local"]["foreign"] == ["notes/readme.txt"]
    assert again.store.stat(Key("notes/readme.txt")) is not None


def test_a_project_that_is_not_configured_stops_it(world: World, lose: Lose) -> None:
    upload_object(
        world.store,
        "checkpoints/other/gpt/pretrain/00000001.000000000001/"
        "0b8f0f4e-5a1c-4c64-9d0e-3c6f5f0f5a11/objects/a",
        b"a",
    )
    again = lose(world)
    with pytest.raises(errors.InvalidInput, match=r"not configured: other"):
        rebuilt(again)
    control_keys.guard(world.catalog, world.stores)


def test_a_second_rebuild_of_the_same_catalog_is_refused(world: World, lose: Lose) -> None:
    world.commit(1)
    again = lose(world)
    with again.catalog.transaction() as running:
        rebuilds.alone(running)
        with pytest.raises(errors.Conflict, match="another rebuild"):
            rebuilt(again)
    assert rebuilt(again).added == 1
