"""A deletion that a store refuses, or does not tell the whole of, stays open and is tried again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.sweeping import tombstones
from lastgood.flows.sweeping import approval, sweep
from lastgood.rules import layout
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyOutcome,
    Outcome,
    Prefix,
    Store,
    StoredObject,
)
from tests.retention.world import PROJECT, World

GRACE = timedelta(hours=1)


class Stubborn:
    """A store that works, but for what a test switches on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refuses: str | None = None  # keys that end so are not deleted
        self.hides_nothing = False
        self.truncates: str | None = None  # listings of such a prefix stop early
        self.deleted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        for one in objects:
            if self.refuses is not None and one.key.endswith(self.refuses):
                yield KeyOutcome(one.key, None, Outcome.REFUSED, "object lock")
            else:
                self.deleted.append(one.key)
                yield from self._store.delete([one])

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        if self.hides_nothing:
            raise AccessRefused(store="local", key=prefix, action="hiding", reason="read-only")
        self._store.quarantine(prefix, objects)

    def list(self, prefix: Prefix, *, versions: bool = False) -> Any:
        if self.truncates is not None and prefix.startswith(self.truncates):
            return _Truncated()
        return self._store.list(prefix, versions=versions)


class _Truncated:
    complete = False

    def __iter__(self) -> Iterator[StoredObject]:
        return iter(())


@pytest.fixture
def stubborn(world: World) -> Stubborn:
    store = Stubborn(world.store)
    world.stores["local"] = store
    return store


@pytest.fixture
def due(world: World) -> Copy:
    """A copy whose grace is over, under a fresh mark."""
    old = world.commit(1, {"a.bin": b"aaaa", "b.bin": b"bb", "deep/c.bin": b"c"})
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    world.advance(GRACE)
    world.mark()
    return old


def test_the_marker_goes_first_and_the_manifest_last(
    world: World, due: Copy, stubborn: Stubborn
) -> None:
    world.sweep()
    gone = [key.removeprefix(due.prefix) for key in stubborn.deleted]
    assert gone[0] == layout.MARKER_NAME
    assert gone[-1] == layout.MANIFEST_NAME
    assert len(gone) == 5


def test_a_refused_key_stays_counted_and_is_tried_again(
    world: World, due: Copy, stubborn: Stubborn
) -> None:
    stubborn.refuses = "b.bin"
    before = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")
    told = world.sweep()
    assert world.state(due) == "deleting"
    assert "object lock" in str(told["failed"])
    assert world.row("SELECT committed_bytes FROM lastgood.capacity_counters") == before
    assert list(world.keys(due)) == ["objects/b.bin"]
    stubborn.refuses = None
    world.sweep()
    assert world.state(due) == "deleted"
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_copy(tx, PROJECT, due.copy_id)
        assert tombstone is not None
        outcomes = tombstones.outcomes(tx, tombstone)
    assert outcomes.refused == 0
    assert outcomes.freed_bytes == due.stored_bytes
    tries = world.owner.execute(
        "SELECT outcome FROM lastgood.tombstone_keys WHERE key LIKE '%%b.bin' ORDER BY number"
    ).fetchall()
    assert [outcome for (outcome,) in tries] == ["refused", "gone"]


def test_a_deletion_under_way_is_finished_although_the_mark_is_too_old(
    world: World, due: Copy, stubborn: Stubborn
) -> None:
    stubborn.refuses = "b.bin"
    world.sweep()
    stubborn.refuses = None
    world.advance(timedelta(hours=3))
    with pytest.raises(errors.MarkNotSweepable):
        world.sweep()
    assert world.state(due) == "deleted"


def test_a_listing_that_is_not_whole_closes_nothing(
    world: World, due: Copy, stubborn: Stubborn
) -> None:
    stubborn.truncates = due.prefix
    told = world.sweep()
    assert world.state(due) == "deleting"
    assert "is not whole" in str(told["failed"])
    assert len(world.keys(due)) == 5
    stubborn.truncates = None
    world.sweep()
    assert world.state(due) == "deleted"


def test_what_we_did_not_write_is_named_and_left_alone(world: World, due: Copy) -> None:
    root: Path = world.store.root  # type: ignore[attr-defined]
    foreign = root / ".quarantine" / due.prefix / "notes.txt"
    foreign.write_text("mine")
    told = world.sweep()
    assert foreign.read_text() == "mine"
    assert world.state(due) == "deleting"
    assert "lastgood did not write it" in str(told["failed"])
    foreign.unlink()
    world.sweep()
    assert world.state(due) == "deleted"


def test_a_store_that_cannot_hide_is_made_to_follow_by_the_next_sweep(
    world: World, stubborn: Stubborn
) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    stubborn.hides_nothing = True
    world.mark()
    told = world.sweep()
    assert "read-only" in str(told["failed"])
    assert world.state(old) == "quarantined"
    assert set(world.keys(old).values()) == {False}
    stubborn.hides_nothing = False
    assert world.sweep()["carried_out"] == 1
    assert set(world.keys(old).values()) == {True}
    assert world.sweep()["carried_out"] == 0


def test_a_sweep_that_would_take_too_much_stops_and_asks(world: World) -> None:
    world.promote({"quarantine": {"grace": "1h", "share_guard": "50%", "share_guard_min": 2}})
    copies = [world.commit(sequence) for sequence in range(1, 8)]
    world.mark()
    told = world.sweep()
    assert ("5 of 7 copies" in told["stop"], told["left"]) == (True, 5)
    assert {world.state(copy) for copy in copies} == {"present"}
    approval.approve_now(world.catalog, PROJECT, actor="operator:ann", because="looked at it")
    assert world.sweep()["stop"] is None
    assert [world.state(copy) for copy in copies].count("quarantined") == 5


def test_more_bytes_than_the_policy_allows_at_once_need_approval(world: World) -> None:
    world.promote({"quarantine": {"grace": "1h", "share_guard": "100%", "approve_above": "10B"}})
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    told = world.sweep()
    assert "approve_above" in told["stop"]
    assert world.state(old) == "present"


def test_a_copy_that_the_mark_keeps_again_comes_back(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    newest = world.commit(3)
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"
    world.receipt(newest, "fail")
    world.mark()
    assert world.sweep()["taken_back"] == 1
    assert world.state(old) == "present"
    assert set(world.keys(old).values()) == {False}


def test_a_catalog_behind_its_store_sweeps_nothing(world: World, due: Copy) -> None:
    world.store.put_new(Key(layout.event_key(world.stage_name(), 999)), b'{"facts": {}}')
    with pytest.raises(errors.CatalogBehind):
        world.sweep()
    assert world.state(due) == "quarantined"


def test_after_a_jump_of_the_clock_nothing_is_swept(world: World, due: Copy) -> None:
    world.sweep()
    fresh = world.commit(4)
    world.mark()
    world.set_clock(timedelta(hours=9))
    with pytest.raises(errors.ClockJump):
        world.sweep()
    assert world.state(fresh) == "present"


def test_a_dry_run_prints_what_the_sweep_would_take_to_the_gate(world: World, due: Copy) -> None:
    planned = sweep.plan(world.catalog, PROJECT)
    assert "delete: 1 copy, 1 kB" in str(planned)
    assert str(due.checkpoint) in str(planned)
    assert world.state(due) == "quarantined"


def test_a_folder_that_no_store_makes_holds_up_no_other_copy(world: World, tmp_path: Path) -> None:
    replaced = world.commit(1, {"a.bin": b"aaaa"})
    other = world.commit(2, {"a.bin": b"aaaa"})
    world.commit(3)
    world.commit(4)
    world.mark()
    world.sweep()
    world.advance(GRACE)
    world.mark()
    elsewhere = tmp_path / "elsewhere"
    folder = next(tmp_path.rglob(Path(replaced.prefix).name))
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    told = world.sweep()
    assert "symbolic link" in told["failed"][f"{replaced.checkpoint} in local"]
    assert world.state(other) == "deleted"
    assert (elsewhere / "objects" / "a.bin").read_bytes() == b"aaaa"
