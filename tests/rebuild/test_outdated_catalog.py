"""A catalog that is behind its stores keeps the history that it has and learns the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood import errors
from lastgood.catalog.jobs import attempts, checkpoints, copies
from lastgood.catalog.keeping import holds as catalog_holds
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.catalog.sweeping import tombstones
from lastgood.flows import control_keys
from lastgood.flows.auditing import audit
from lastgood.flows.jobs import acquire
from lastgood.flows.keeping import hold
from lastgood.flows.sweeping import sweep
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.factories import upload_object
from tests.rebuild.conftest import Older, checkpoints_of, publish, rebuilt
from tests.retention.world import PROJECT, World


def test_an_older_dump_is_refused_then_rebuilt_then_serves(any_world: World, older: Older) -> None:
    first = any_world.commit(1)
    publish(any_world)
    take = older(any_world)
    any_world.commit(2)
    any_world.commit(1, generation=2)
    publish(any_world)
    before = checkpoints_of(any_world)
    behind = take(any_world)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(behind.catalog, behind.stores)
    kept = behind.row("SELECT count(*), min(recorded_at) FROM lastgood.events WHERE number < 99")

    told = rebuilt(behind)

    assert (told.added, told.confirmed, told.gone) == (2, 1, [])
    assert checkpoints_of(behind) == before
    assert (
        behind.row(
            "SELECT count(*), min(recorded_at) FROM lastgood.events WHERE number <= %s", kept[0]
        )
        == kept
    )
    control_keys.guard(behind.catalog, behind.stores)
    name = behind.stage_name()
    seen = acquire.holder_of(behind.catalog, name)
    request = acquire.AcquireRequest(name, seen.generation, "k", "node-1")
    acquired = acquire.acquire(behind.catalog, behind.stores, request)
    assert acquired.generation == 4
    assert acquired.resume is not None
    assert acquired.resume.id.position == (2, 1)
    behind.commit(1, generation=4)
    control_keys.guard(behind.catalog, behind.stores)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(any_world.catalog, any_world.stores)
    assert first.manifest in {row[5] for row in checkpoints_of(behind)}


def test_an_attempt_that_was_open_in_the_dump_is_committed_as_it_was(
    world: World, older: Older
) -> None:
    world.commit(1)
    objects = {"a.bin": b"a" * 100}
    attempt = world.prepare(2, objects)
    take = older(world)
    upload_object(world.store, layout.object_key(attempt.prefix, "a.bin"), objects["a.bin"])
    done = _commit_in_the_store(world, attempt, objects)
    behind = take(world)

    told = rebuilt(behind)

    assert (told.added, told.flawless) == (1, True)
    with behind.catalog.transaction() as tx:
        assert attempts.get(tx, PROJECT, attempt.attempt_id).state is attempts.State.COMMITTED
        assert checkpoints.find(tx, attempt.checkpoint) is not None
    assert done in {row[5] for row in checkpoints_of(behind)}
    assert behind.row("SELECT in_flight_bytes FROM lastgood.capacity_counters") == (0,)


def _commit_in_the_store(world: World, attempt: attempts.Attempt, objects: dict[str, bytes]) -> str:
    from lastgood.rules import canonical
    from tests.retention.world import _manifest

    body = canonical.canonical_bytes(_manifest(attempt, objects, {}, (), None))
    digest = canonical.digest(body)
    world.store.put_new(Key(layout.manifest_key(attempt.prefix)), body)
    world.store.put_new(Key(layout.marker_key(attempt.prefix)), layout.marker_bytes(digest))
    return str(digest)


def test_what_was_deleted_since_the_dump_stays_deleted(any_world: World, older: Older) -> None:
    world = any_world
    gone, half = world.commit(1), world.commit(2)
    world.commit(3)
    world.commit(4)
    world.mark()
    publish(world)
    take = older(world)
    list(world.store.delete(list(world.store.list(Prefix(gone.prefix)))))
    marker = world.store.stat(Key(layout.marker_key(half.prefix)))
    assert marker is not None
    list(world.store.delete([marker]))
    behind = take(world)

    told = rebuilt(behind)

    assert set(told.gone) == {str(gone.checkpoint), str(half.checkpoint)}
    assert behind.state(gone) == "deleted"
    assert behind.state(half) == "deleting"
    behind.mark()
    assert behind.sweep()["deleted"] == 1
    assert behind.state(half) == "deleted"
    assert behind.keys(half) == {}
    with behind.catalog.transaction() as tx:
        chain = tombstones.of_stage(tx, PROJECT, half.stage_id)
    assert all(one.proof is not None for one in chain)
    assert len(checkpoints_of(behind)) == 2
    assert audit.run(behind.catalog).breaks == []


def test_a_standing_selector_takes_what_is_added(world: World, older: Older) -> None:
    world.commit(1)
    new = NewHold("legal", "counsel", "case 7", "operator:ann", selector=Selector(workload="gpt"))
    placed = hold.place(world.catalog, world.stores, PROJECT, new)
    take = older(world)
    late = world.commit(2)
    publish(world)
    behind = take(world)

    rebuilt(behind)

    with behind.catalog.transaction() as tx:
        [copy] = copies.of_checkpoint(tx, late.checkpoint)
        standing = catalog_holds.on_checkpoint(tx, PROJECT, copy.checkpoint_id)
    assert placed.hold_id in {one.hold_id for one in standing}
    assert audit.run(behind.catalog).breaks == []


def test_what_was_quarantined_comes_back_and_nothing_is_swept(
    any_world: World, older: Older
) -> None:
    world = any_world
    early, late = world.commit(1), world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    assert world.state(early) == "quarantined"
    take = older(world)
    world.commit(4)
    world.mark()
    world.sweep()
    assert world.state(late) == "quarantined"
    publish(world)
    behind = take(world)

    rebuilt(behind)

    for copy in (early, late):
        assert behind.state(copy) == "present"
        assert set(behind.keys(copy).values()) == {False}
        with behind.catalog.transaction() as tx:
            assert catalog_holds.on_checkpoint(tx, PROJECT, copy.checkpoint_id)
    behind._offset = world._offset
    behind.advance(timedelta(hours=2))
    behind.mark()
    told = sweep.run(behind.catalog, behind.stores, PROJECT, "dag:test")
    assert (told["quarantined"], told["deleted"], told["carried_out"]) == (0, 0, 0)


def test_a_known_checkpoint_that_is_damaged_is_named_and_answered_no_more(
    world: World, older: Older
) -> None:
    good, bad = world.commit(1), world.commit(2)
    publish(world)
    take = older(world)
    world.release_writer()
    publish(world)
    key = Key(layout.object_key(bad.prefix, "model.bin"))
    there = world.store.stat(key)
    assert there is not None
    list(world.store.delete([there]))
    upload_object(world.store, key, b"x" * there.size_bytes)
    behind = take(world)

    told = rebuilt(behind)

    assert [one.checkpoint for one in told.damaged] == [str(bad.checkpoint)]
    assert not told.flawless
    assert [one.latest for one in told.stages] == [str(good.checkpoint)]
    assert behind.row(
        "SELECT verdict FROM lastgood.receipts WHERE copy_id = %s ORDER BY number DESC LIMIT 1",
        bad.copy_id,
    ) == ("fail",)
    assert behind.state(bad) == "present"
    control_keys.guard(behind.catalog, behind.stores)


def test_a_commit_whose_marker_was_still_to_be_written_is_kept(world: World, older: Older) -> None:
    whole = world.commit(1)
    world.owner.execute("UPDATE lastgood.attempts SET finished_at = NULL")
    take = older(world)
    publish(world)
    marker = world.store.stat(Key(layout.marker_key(whole.prefix)))
    assert marker is not None
    list(world.store.delete([marker]))
    behind = take(world)

    told = rebuilt(behind)

    assert (told.confirmed, told.gone) == (1, [])
    assert behind.state(whole) == "present"


def test_a_store_that_is_not_there_stops_it(world: World, older: Older) -> None:
    kept = world.commit(1)
    publish(world)
    claim = world.store.stat(Key(layout.CATALOG_KEY))
    assert claim is not None
    list(world.store.delete([claim]))
    with pytest.raises(errors.Unavailable, match="is this the place"):
        rebuilt(world)
    assert world.state(kept) == "present"


def test_a_catalog_with_a_history_takes_no_other_ones_store(world: World, older: Older) -> None:
    world.commit(1)
    take = older(world)
    behind = take(world)
    behind.owner.execute("UPDATE lastgood.identity SET catalog_id = gen_random_uuid()")
    with pytest.raises(errors.ForeignCatalog):
        rebuilt(behind)
    control_keys.guard(world.catalog, world.stores)


def test_of_two_catalogs_that_rebuild_at_once_one_is_refused(
    world: World, older: Older, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lastgood.flows.rebuilding import takeover

    world.commit(1)
    publish(world)
    take, twin = older(world), older(world)
    world.commit(2)
    publish(world)
    one, other = take(world), twin(world)
    real = takeover.begin

    def late(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(takeover, "begin", real)
        rebuilt(one)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(takeover, "begin", late)
    with pytest.raises(errors.CatalogBehind):
        rebuilt(other)
    control_keys.guard(one.catalog, one.stores)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(other.catalog, other.stores)
    rebuilt(other)  # an operator's word again: now the other has it
    control_keys.guard(other.catalog, other.stores)
    with pytest.raises(errors.CatalogBehind):
        control_keys.guard(one.catalog, one.stores)
