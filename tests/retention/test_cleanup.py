"""Incomplete attempts go when nobody can write to them any more, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from lastgood.catalog import locks
from lastgood.catalog.jobs import attempt_objects, attempts, stages
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.sweeping import tombstones
from lastgood.flows import control_keys
from lastgood.flows.cleaning import cleanup, cleanup_plan
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.factories import upload_object
from tests.retention.world import PROJECT, World

LEASE = timedelta(minutes=15)
ABORT_AFTER = timedelta(hours=1)
OBJECTS = {"a.bin": b"a" * 64, "b.bin": b"b" * 32}


def run(world: World) -> dict[str, Any]:
    return cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")


def state(world: World, attempt: Attempt) -> str:
    with world.catalog.transaction() as tx:
        return attempts.get(tx, PROJECT, attempt.attempt_id).state.value


def begun(world: World, sequence: int = 1, objects: Mapping[str, bytes] = OBJECTS) -> Attempt:
    """An attempt of which one object arrived, one upload is recorded, and one is known only to the
    store."""
    attempt = world.prepare(sequence, objects)
    first, second = sorted(objects)
    upload_object(world.store, layout.object_key(attempt.prefix, first), objects[first])
    key = Key(layout.object_key(attempt.prefix, second))
    upload = world.store.create_upload(key, len(objects[second]))
    world.store.write_part(key, upload, 1, len(objects[second]), [objects[second]])
    with world.catalog.transaction() as tx:
        attempt_objects.record_uploads(tx, attempt, {second: upload})
    world.store.create_upload(key, len(objects[second]))
    return attempt


def left(world: World, attempt: Attempt) -> tuple[int, int]:
    """How many objects and pending uploads the store has below an attempt's prefix."""
    prefix = Prefix(attempt.prefix)
    return len(list(world.store.list(prefix))), len(list(world.store.uploads(prefix)))


def in_flight(world: World) -> int:
    found: int = world.row("SELECT in_flight_bytes FROM lastgood.capacity_counters")[0]
    return found


def test_an_abandoned_attempt_is_aborted_emptied_and_closed_with_proof(world: World) -> None:
    attempt = begun(world)
    assert left(world, attempt) == (1, 2)
    assert in_flight(world) == 96
    world.advance(ABORT_AFTER)
    told = run(world)
    assert (told["aborting"], told["closed"], told["freed_bytes"]) == (1, 1, 96)
    assert state(world, attempt) == "closed"
    assert left(world, attempt) == (0, 0)
    assert in_flight(world) == 0
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_attempt(tx, PROJECT, attempt.attempt_id)
        assert tombstone is not None
        outcomes = tombstones.outcomes(tx, tombstone)
    assert tombstone.proof is not None
    assert outcomes.refused == 0
    assert run(world)["closed"] == 0


@pytest.mark.parametrize(
    ("passed", "grant", "why"),
    [
        (timedelta(minutes=10), LEASE, "lease lasts until"),
        (timedelta(minutes=30), LEASE, "younger than 1:00:00"),
        (timedelta(hours=2), timedelta(hours=3), "lease lasts until"),
    ],
)
def test_an_attempt_that_may_still_be_written_is_left_alone(
    world: World, passed: timedelta, grant: timedelta, why: str
) -> None:
    attempt = world.prepare(1, OBJECTS, grant=grant)
    world.advance(passed)
    told = run(world)
    assert state(world, attempt) == "open"
    assert why in told["waiting"][str(attempt.attempt_id)]


def test_a_grant_that_outlasts_the_lease_keeps_the_attempt(world: World) -> None:
    attempt = begun(world)
    world.owner.execute(
        "UPDATE lastgood.attempts SET grant_expires_at = grant_expires_at + interval '1 day'"
    )
    world.advance(ABORT_AFTER)
    told = run(world)
    assert "grant lasts until" in told["waiting"][str(attempt.attempt_id)]
    assert left(world, attempt) == (1, 2)


def test_the_age_is_the_larger_of_the_policy_and_the_measured_uploads(world: World) -> None:
    slow = world.prepare(1, OBJECTS, grant=timedelta(hours=9))
    world.advance(timedelta(hours=5))
    with world.catalog.transaction() as tx:
        stages.locked(tx, PROJECT, slow.stage_id)
        locks.attempt(tx, slow.attempt_id)
        sealed = attempts.State.SEALED
        attempts.transition(tx, slow, sealed, actor="runner:test", reason="", manifest=b"{}")
    attempt = begun(world, 2)
    world.advance(timedelta(hours=9))
    assert "younger than 10:0" in run(world)["waiting"][str(attempt.attempt_id)]
    world.advance(timedelta(hours=2))
    assert run(world)["closed"] == 1


class _Fickle:
    """A store whose listings of uploads, or of objects, are not whole."""

    def __init__(self, store: Any, broken: str) -> None:
        self._store = store
        self._broken = broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _listing(self, name: str, prefix: str, **options: Any) -> Any:
        listing = getattr(self._store, name)(prefix, **options)
        return _Partial() if name == self._broken and prefix.startswith("checkpoints/") else listing

    def list(self, prefix: str, **options: Any) -> Any:
        return self._listing("list", prefix, **options)

    def uploads(self, prefix: str) -> Any:
        return self._listing("uploads", prefix)


class _Partial:
    complete = False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize("broken", ["list", "uploads"])
def test_a_listing_that_is_not_whole_never_closes_an_attempt(world: World, broken: str) -> None:
    attempt = begun(world)
    world.advance(ABORT_AFTER)
    world.stores["local"] = _Fickle(world.store, broken)
    told = run(world)
    assert state(world, attempt) == "aborting"
    assert "not whole" in str(told["failed"])
    assert in_flight(world) == 96
    world.stores["local"] = world.store
    assert run(world)["closed"] == 1
    assert in_flight(world) == 0


def test_evidence_of_a_failed_attempt_stays_for_its_time(world: World) -> None:
    attempt = begun(world)
    with world.catalog.transaction() as tx:
        stages.locked(tx, PROJECT, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        for to in (attempts.State.SEALED, attempts.State.FAILED):
            current = attempts.get(tx, PROJECT, attempt.attempt_id)
            attempts.transition(
                tx, current, to, actor="runner:test", reason="digest", manifest=b"{}"
            )
    world.advance(timedelta(days=1, hours=23))
    run(world)
    assert left(world, attempt) == (1, 2)
    world.advance(timedelta(hours=1))
    assert run(world)["evidence_dropped"] == 1
    assert state(world, attempt) == "closed"
    assert left(world, attempt) == (0, 0)
    assert in_flight(world) == 0


def test_a_stray_upload_below_a_committed_prefix_is_aborted_and_the_copy_stays(
    world: World,
) -> None:
    copy = world.commit(1)
    key = Key(layout.object_key(copy.prefix, "model.bin"))
    world.store.create_upload(key, 10)
    assert run(world)["stray_uploads_aborted"] == 0
    world.advance(LEASE + timedelta(minutes=1))
    assert run(world)["stray_uploads_aborted"] == 1
    assert len(world.keys(copy)) == 3
    assert world.state(copy) == "present"


def test_an_upload_of_nobody_is_reported_and_never_touched(world: World) -> None:
    world.commit(1)
    prefix = layout.project_prefix("vision")  # type: ignore[arg-type]
    world.store.create_upload(Key(f"{prefix}someone/else.bin"), 10)
    world.advance(timedelta(days=30))
    told = run(world)
    assert len(told["unknown_uploads"]) == 1
    assert "someone/else.bin" in told["unknown_uploads"][0]
    assert len(list(world.store.uploads(Prefix(prefix)))) == 1


def test_old_control_keys_are_pruned_and_the_newest_stay(world: World) -> None:
    world.commit(1)
    name = world.stage_name()
    newest = world.row("SELECT last_event FROM lastgood.stages")[0]
    for _ in range(5):
        world.receipt(world.copy(1))
        control_keys.publish(world.catalog, [world.store], PROJECT, world.copy(1).stage_id)
    told = run(world)
    left_keys = [one.key for one in world.store.list(Prefix(layout.control_prefix(name)))]
    assert told["control_keys_pruned"] == 2
    assert left_keys == [layout.event_key(name, newest + number) for number in (3, 4, 5)]


def test_a_commit_that_seals_first_is_not_aborted(world: World) -> None:
    attempt = begun(world)
    world.advance(ABORT_AFTER)
    planned = cleanup_plan.plan(world.catalog, PROJECT)
    assert [each.attempt_id for each in planned.abort] == [attempt.attempt_id]
    with world.catalog.transaction() as tx:
        stages.locked(tx, PROJECT, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        sealed = attempts.State.SEALED
        attempts.transition(tx, attempt, sealed, actor="runner:test", reason="", manifest=b"{}")
    told = cleanup.execute(world.catalog, world.stores, planned, "dag:test")
    assert (told["aborting"], state(world, attempt)) == (0, "sealed")
    assert left(world, attempt) == (1, 2)
