"""The sweep against whoever comes at the same moment, each order with two real sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs import copies, copy_transitions, readers
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.catalog.retention import marks
from lastgood.catalog.sweeping import tombstones
from lastgood.flows import quarantine
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold
from lastgood.flows.sweeping import sweep
from lastgood.stores.base import KeyOutcome, Prefix, Store, StoredObject
from tests.concurrency.sessions import Session, Stop, standing, stop_after, wait_until_blocked
from tests.retention.world import PROJECT, World, candidates_of_mark, opened

GRACE = timedelta(hours=1)


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def old(world: World) -> Copy:
    """The candidate of a fresh mark."""
    first = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    return first


@pytest.fixture
def due(world: World, old: Copy) -> Copy:
    """The same, in quarantine and due for deletion."""
    world.sweep()
    world.advance(GRACE)
    world.mark()
    assert world.state(old) == "quarantined"
    return old


def place(world: World, *, checkpoint: Copy | None = None) -> hold.Placed:
    selector = None if checkpoint else Selector(workload="gpt")
    new = NewHold("legal", "counsel", "case 7", "operator:ann", selector=selector)
    target = checkpoint.checkpoint if checkpoint else None
    return hold.place(world.catalog, world.stores, PROJECT, new, target)


def test_a_hold_by_selector_waits_for_an_intent_and_comes_too_late(
    world: World, due: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, tombstones, "intend")
    with standing(stop, world.sweep) as sweeping:
        holding = Session(lambda: place(world))
        wait_until_blocked(world.owner)
        assert world.row("SELECT count(*) FROM lastgood.holds") == (0,)
    sweeping.result()
    placed = holding.result()
    assert world.state(due) == "deleted"
    assert due.checkpoint_id not in placed.checkpoint_ids
    assert len(placed.checkpoint_ids) == 2


def test_a_hold_on_the_checkpoint_waits_for_an_intent_and_gets_410(
    world: World, due: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, tombstones, "intend")
    with standing(stop, world.sweep) as sweeping:
        holding = Session(lambda: place(world, checkpoint=due))
        wait_until_blocked(world.owner)
    sweeping.result()
    with pytest.raises(errors.CopyGone):
        holding.result()


@pytest.mark.parametrize("by_selector", [True, False])
def test_an_intent_waits_for_a_hold_and_sees_it(
    world: World, due: Copy, monkeypatch: pytest.MonkeyPatch, by_selector: bool
) -> None:
    stop = stop_after(monkeypatch, holds, "take")
    call = (lambda: place(world)) if by_selector else (lambda: place(world, checkpoint=due))
    with standing(stop, call) as holding:
        sweeping = Session(world.sweep)
        wait_until_blocked(world.owner)
        assert world.row("SELECT count(*) FROM lastgood.tombstones") == (0,)
    holding.result()
    sweeping.result()
    assert world.state(due) == "present"
    assert world.row("SELECT count(*) FROM lastgood.tombstones") == (0,)
    assert set(world.keys(due).values()) == {False}


def test_quarantine_waits_for_a_reader_and_sees_its_lease(
    world: World, old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, readers, "grant")
    with standing(
        stop,
        lambda: read.acquire_reader(
            world.catalog, world.stage_name(), old.checkpoint, reader="eval"
        ),
    ) as reading:
        sweeping = Session(world.sweep)
        wait_until_blocked(world.owner)
    assert reading.result().lease.copy_id == old.copy_id
    told = sweeping.result()
    assert world.state(old) == "present"
    assert "no_reader" in told["reasons"][str(old.checkpoint)]


def test_a_reader_waits_for_the_quarantine_and_gets_no_lease(
    world: World, old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, copy_transitions, "transition")
    with standing(stop, world.sweep) as sweeping:
        reading = Session(
            lambda: read.acquire_reader(
                world.catalog, world.stage_name(), old.checkpoint, reader="eval"
            )
        )
        wait_until_blocked(world.owner)
    sweeping.result()
    with pytest.raises(errors.CopyState, match="quarantined"):
        reading.result()
    assert world.row("SELECT count(*) FROM lastgood.reader_leases") == (0,)


def test_a_reader_of_the_latest_never_gets_what_a_sweep_takes(
    world: World, old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, copy_transitions, "transition")
    with standing(stop, world.sweep) as sweeping:
        reading = Session(
            lambda: read.acquire_reader(world.catalog, world.stage_name(), None, reader="eval")
        )
        wait_until_blocked(world.owner)
    sweeping.result()
    leased = reading.result().lease.copy_id
    assert leased != old.copy_id
    assert world.copy(leased).state is copies.State.PRESENT


class _Gated:
    """A store whose first deletion stands at a gate."""

    def __init__(self, store: Store, stop: Stop) -> None:
        self._store = store
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        if objects and objects[0].key.startswith("checkpoints/"):
            self._stop.stand()
        yield from self._store.delete(objects)


def test_two_sweeps_at_once_delete_a_copy_once(world: World, due: Copy) -> None:
    stop = Stop()
    world.stores["local"] = _Gated(world.store, stop)
    before = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")[0]
    with standing(stop, world.sweep) as first:
        second = Session(world.sweep)
        wait_until_blocked(world.owner)
        assert world.state(due) == "deleting"
    told = [first.result(), second.result()]
    assert world.state(due) == "deleted"
    assert sum(each["deleted"] for each in told) == 1
    assert world.row("SELECT count(*) FROM lastgood.tombstones") == (1,)
    assert world.row("SELECT count(*) FROM lastgood.tombstone_proofs") == (1,)
    after = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")[0]
    assert before - after == due.stored_bytes


def test_two_sweeps_at_once_quarantine_a_copy_once(
    world: World, old: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_after(monkeypatch, copy_transitions, "transition")
    planned = sweep.plan(world.catalog, PROJECT)
    with standing(
        stop, lambda: sweep.execute(world.catalog, world.stores, planned, "dag:one")
    ) as first:
        second = Session(lambda: sweep.execute(world.catalog, world.stores, planned, "dag:two"))
        wait_until_blocked(world.owner)
    told = [first.result(), second.result()]
    assert sorted(each["quarantined"] for each in told) == [0, 1]
    assert world.row("SELECT count(*) FROM lastgood.copy_transitions WHERE copy_id = 1") == (2,)


def test_two_sweeps_under_pressure_at_once_lose_nothing_of_their_plans_and_take_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.promote({"capacity": {"soft": "75%", "hard": "85%", "reserve": "0B"}})
    saved = [world.commit(sequence, {"model.bin": bytes(50_000)}) for sequence in range(1, 7)]
    size = saved[0].stored_bytes
    world.owner.execute(  # two of the four that nothing keeps are wanted back
        "UPDATE lastgood.capacity_counters SET backend_total = %s, backend_at = now()",
        (int(4.5 * size / 0.75),),
    )
    stop = stop_after(monkeypatch, quarantine, "carry_out")
    with (
        standing(stop, world.sweep) as first,
        standing(stop_after(monkeypatch, sweep, "turn"), world.sweep) as second,
    ):
        stop.opened.set()
        ended = first.result()
    told = second.result()
    assert ended["mark"] < told["mark"]  # the second one marked while the first was at work
    assert (ended["quarantined"], ended["kept"], ended["reasons"]) == (2, 0, {})
    assert (told["quarantined"], told["kept"]) == (0, 0)
    states = [world.state(copy) for copy in saved]
    assert (states.count("quarantined"), states[4:]) == (2, ["present", "present"])


class _Slow:
    """A store whose first hiding stands at a gate before it does anything."""

    def __init__(self, store: Store, stop: Stop) -> None:
        self._store = store
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        self._stop.stand()
        self._store.quarantine(prefix, objects)


def test_an_undo_that_overtakes_a_slow_store_still_ends_readable(world: World, old: Copy) -> None:
    stop = Stop()
    world.stores["local"] = _Slow(world.store, stop)
    with standing(stop, world.sweep) as sweeping:
        holding = Session(lambda: place(world, checkpoint=old))
        wait_until_blocked(world.owner)
        assert world.state(old) == "present"
    sweeping.result()
    assert holding.result().undone == (old.copy_id,)
    assert set(world.keys(old).values()) == {False}
    assert world.copy(old).carried_out == world.copy(old).transition == 3


def test_a_mark_waits_for_a_commit_under_way_and_counts_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sequence in (1, 2):
        world.commit(sequence)
    stop = stop_after(monkeypatch, copy_transitions, "create")
    with standing(stop, lambda: world.commit(3)) as committing:
        marking = Session(world.mark)
        wait_until_blocked(world.owner)
    late = committing.result()
    mark_id = marking.result()
    with world.catalog.transaction() as tx:
        mark = marks.get(tx, PROJECT, mark_id)
        found = [each.copy_id for each in candidates_of_mark(tx, PROJECT, mark_id)]
    assert late.committed_at < mark.at
    assert mark.counts["checkpoints"] == 3
    assert found == [1]


def test_a_commit_waits_for_the_instant_of_a_mark_and_is_recorded_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sequence in (1, 2):
        world.commit(sequence)
    stop = stop_after(monkeypatch, marks, "choose_instant")
    with standing(stop, world.mark) as marking:
        committing = Session(lambda: world.commit(3))
        wait_until_blocked(world.owner)
    mark_id = marking.result()
    late = committing.result()
    with world.catalog.transaction() as tx:
        mark = marks.get(tx, PROJECT, mark_id)
    assert late.committed_at > mark.at
    assert mark.counts["checkpoints"] == 2
