"""A store that died with copies in it is given up: what was lost is told, and proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood.catalog.capacity import capacity, capacity_states
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.cleaning.incomplete_uploads import Found
from lastgood.catalog.jobs import attempts, damage_events, dependencies, stages
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.reconciliation import findings, inventories, reports
from lastgood.catalog.reconciliation.findings import Sighting
from lastgood.catalog.settings import projects, store_registrations
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.catalog.views import operator_views
from lastgood.errors import AttemptLost, CopyLost, NotFound
from lastgood.flows import control_keys, lost_store, quarantine
from lastgood.flows.auditing import audit
from lastgood.flows.capacity import pressure
from lastgood.flows.cleaning import cleanup
from lastgood.flows.inventories import by_name
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold
from lastgood.flows.overview import overview
from lastgood.flows.services import stores_of
from lastgood.flows.settings.apply import apply
from lastgood.flows.unregister import GivenUp, StoreHeld, StoreInUse, give_up, unregister
from lastgood.rules import layout
from lastgood.rules.byte_equation import Line
from lastgood.rules.finding_owners import Owners
from lastgood.stores.base import Key, Prefix, StoredObject, StoreError
from lastgood.stores.file import FileStore
from lastgood.stores.s3_errors import StoreThrottled
from tests.retention.world import PROJECT, World, opened

OLD = "name: old\nkind: file\nroot: {root}\nfailure_domain: rack-2\ntier: cold\n"


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """The project, which has written to a second store `old` and still does."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "local") as found:
        (tmp_path / "old").mkdir()
        row = StoreRow("old", "file", {"root": str(tmp_path / "old")}, "rack-2", "cold")
        with found.catalog.transaction() as tx:
            projects.put_store(tx, row)
        found.stores = stores_of(found.catalog)
        control_keys.claim(found.catalog, found.stores["old"])
        write_to(found, "old")
        yield found


def write_to(world: World, store: str) -> None:
    with world.catalog.transaction() as tx:
        projects.put(tx, Project(PROJECT, "team", store, "short", {}, None))
    world.store = world.stores[store]


def lose(world: World, **options: Any) -> GivenUp:
    return give_up(
        world.catalog, world.stores, "old", because="burnt", actor="operator:ann", **options
    )


def latest(world: World, stage: str) -> read.Latest:
    return read.latest(world.catalog, world.stage_name(stage))


def throttled(self: FileStore, key: Key) -> StoredObject | None:
    raise StoreThrottled(store=self.name, key=key, action="stat", reason="SlowDown")


def break_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: FileStore, objects: object) -> object:
        raise StoreError(store=self.name, key="", reason="input/output error")

    monkeypatch.setattr(FileStore, "delete", refused)


def test_what_was_in_a_dead_store_is_lost_and_the_work_goes_on_with_what_is_left(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=2))
    world.mark()
    with monkeypatch.context() as broken:
        break_deletes(broken)
        world.sweep()
    assert [world.state(copy) for copy in old] == ["quarantined", "deleting", "present", "present"]
    alone = [world.commit(sequence, stage="alone") for sequence in (1, 2)]
    base = world.commit(2, stage="chain")
    hold.place(
        world.catalog,
        world.stores,
        PROJECT,
        NewHold("research", "ann", "a paper", "operator:ann"),
        base.checkpoint,
    )
    half = world.prepare(3, {"model.bin": b"half"}, stage="alone")
    sealed = world.prepare(4, {"model.bin": b"half"}, stage="alone")
    with world.catalog.transaction() as tx:
        stages.locked(tx, PROJECT, sealed.stage_id)
        attempts.transition(
            tx, sealed, attempts.State.SEALED, actor="runner:test", reason="", manifest=b"{}"
        )
        begun = Found(f"{half.prefix}x", "u1", half.attempt_id, "listed", "t", None, 1, 9, "test")
        incomplete_uploads.see(tx, PROJECT, "old", [begun], actor="dag:test", at=world.now())
        findings.follow(
            tx,
            PROJECT,
            "old",
            [Sighting("untracked", "notes", 3, 1, ())],
            owners=Owners("team"),
            deadline=timedelta(days=3),
            actor="dag:test",
            at=world.now(),
        )
    with pytest.raises(StoreInUse, match=r"project vision writes to it .projects/vision.yaml"):
        lose(world)
    write_to(world, "local")
    kept = world.commit(1, stage="chain")  # older than what is in the dead store
    rests = world.commit(3, stage="chain", depends_on=[base])
    newest = world.commit(5)
    with pytest.raises(StoreHeld, match="of a copy is there"):
        lose(world)
    (tmp_path / "old").rename(tmp_path / "burnt")
    world.stores = stores_of(world.catalog)
    with pytest.raises(StoreInUse, match=r"5 copies of vision are present; .* `--lost` gives"):
        unregister(world.catalog, world.stores, "old", because="x", actor="operator:ann")

    asked = lose(world, dry_run=True)

    assert (asked.at, asked.seen[:18]) == (None, "it does not answer")
    assert world.state(old[3]) == "present"
    assert latest(world, "alone").checkpoint is not None

    gone = lose(world)

    assert gone.loss == asked.loss
    told = {one.stage: (one.copies, one.latest, one.becomes) for one in gone.loss.stages}
    name = "vision/gpt/"
    assert told == {
        f"{name}alone": (2, f"{name}alone/1.2", None),
        f"{name}chain": (1, f"{name}chain/1.3", f"{name}chain/1.1"),
        f"{name}pretrain": (4, f"{name}pretrain/1.5", f"{name}pretrain/1.5"),
    }
    lost = [*old, *alone, base]
    assert {world.state(copy) for copy in lost} == {"lost"}
    assert (gone.loss.attempts, gone.loss.uploads) == (2, 1)
    assert gone.loss.size_bytes == sum(copy.stored_bytes for copy in lost)

    none = latest(world, "alone")
    assert none.checkpoint is None
    assert none.reasons == (
        "none of the 2 checkpoints of vision/gpt/alone was found good; lost were 2 with store old",
    )
    now = latest(world, "chain").checkpoint
    assert now is not None
    assert now.id == kept.checkpoint
    with world.catalog.transaction() as tx:
        until = world.now()
        assert dependencies.on_damage(tx, PROJECT, until) == {rests.manifest}
        changes = damage_events.of_project(tx, PROJECT, until)
        assert [(key, one[-1].whole) for key, one in changes.items()] == [(rests.manifest, False)]
    with pytest.raises(CopyLost, match="was lost with store old"):
        read.acquire_reader(
            world.catalog, world.stage_name(), old[3].checkpoint, reader="eval", ttl=None
        )
    with pytest.raises(CopyLost):
        hold.place(
            world.catalog,
            world.stores,
            PROJECT,
            NewHold("research", "ann", "late", "operator:ann"),
            old[3].checkpoint,
        )
    with pytest.raises(CopyLost):
        quarantine.undo(
            world.catalog, world.stores, old[0].checkpoint, because="x", actor="operator:ann"
        )
    with world.catalog.transaction() as tx:
        ended = attempts.get(tx, PROJECT, half.attempt_id)
        with pytest.raises(AttemptLost, match="goes where its project stores now"):
            attempts.require(ended, attempts.State.OPEN, action="commit")
        assert attempts.in_store(tx, "old") == []
        assert attempts.unfinished(tx, PROJECT) == []
        assert incomplete_uploads.left(tx, PROJECT) == []
        assert findings.current(tx, store="old") == []
        use = capacity.use(tx, PROJECT, "old").own
        assert (use.committed_bytes, use.in_flight_bytes) == (0, 0)
        (row,) = store_registrations.unregistered(tx)
        window = (world.now() - timedelta(days=1), world.now())
        assert reports.lost(tx, PROJECT, window) == {"old": (7, gone.loss.size_bytes)}
        assert (row.lost, row.lost_copies, row.lost_bytes) == (True, 7, gone.loss.size_bytes)
        shown = operator_views.checkpoints(tx, project=PROJECT, state="lost")
        assert len(shown) == 7
        assert len(operator_views.checkpoints(tx, project=PROJECT)) == 3
    assert world.row("SELECT count(*) FROM lastgood.tombstone_proofs")[0] == 0

    assert_told_to_local(world, "alone", "chain", "pretrain")

    assert not [alert for alert in overview(world.catalog, world.stores).alerts if "old" in alert]
    control_keys.guard(world.catalog, world.stores)
    world.mark()
    told_by_sweep = world.sweep()
    assert (told_by_sweep["failed"], told_by_sweep["stop"]) == ({}, None)
    cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    assert world.state(newest) == "present"  # the only proof that is left of its stage
    found = audit.run(world.catalog)
    assert found.breaks == []

    again = come_back(world, tmp_path)
    assert {place.cause for place in again.differences} == {Cause.UNTRACKED}
    unknown = again.by_project[PROJECT].equation.totals[Line.UNEXPLAINED].size_bytes
    assert unknown == gone.loss.size_bytes
    with world.catalog.transaction() as tx:
        assert store_registrations.dependents(tx, "old") == []
    assert {world.state(copy) for copy in lost} == {"lost"}
    there = {str(key) for key in (one.key for one in world.stores["old"].list(Prefix("")))}
    world.mark()
    world.sweep()
    cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    left = {str(one.key) for one in world.stores["old"].list(Prefix("checkpoints/"))}
    assert left == {key for key in there if key.startswith("checkpoints/")}
    assert audit.run(world.catalog).breaks == []


def assert_told_to_local(world: World, *names: str) -> None:
    """The store that is left has what a dump from before the loss would be told by."""
    for name in names:
        query = "SELECT last_event FROM lastgood.stages WHERE stage = %s"
        newest = layout.event_key(world.stage_name(name), world.row(query, name)[0])
        assert world.stores["local"].stat(Key(newest)) is not None, name


def test_who_goes_on_after_a_crash_tells_of_stages_that_only_rested_on_what_was_lost(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = world.commit(1, stage="base")
    write_to(world, "local")
    world.commit(1, stage="rests", depends_on=[base])
    (tmp_path / "old").rename(tmp_path / "burnt")
    world.stores = stores_of(world.catalog)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(lost_store, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            lose(world)
    assert world.state(base) == "lost"
    assert latest(world, "rests").checkpoint is None

    again = lose(world)

    assert (again.loss.copies, again.lost_before) == (0, 1)
    assert_told_to_local(world, "base", "rests")
    assert audit.run(world.catalog).breaks == []


def test_what_several_give_up_at_once_is_lost_once(world: World, tmp_path: Path) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    write_to(world, "local")
    (tmp_path / "old").rename(tmp_path / "burnt")
    world.stores = stores_of(world.catalog)

    def given_up(_: int) -> GivenUp | NotFound:
        try:
            return lose(world)
        except NotFound as late:
            return late

    with ThreadPoolExecutor(4) as operators:
        answers = list(operators.map(given_up, range(4)))

    told = [one.loss.copies + one.lost_before for one in answers if isinstance(one, GivenUp)]
    assert max(told) == len(copies)
    assert {world.state(copy) for copy in copies} == {"lost"}
    assert world.row("SELECT count(*) FROM lastgood.events WHERE kind = 'lost'")[0] == len(copies)
    assert audit.run(world.catalog).breaks == []


def come_back(world: World, tmp_path: Path) -> Inventory:
    """The store is found again, with all that was in it, registered and listed."""
    (tmp_path / "burnt").rename(tmp_path / "old")
    (tmp_path / "config" / "stores").mkdir(parents=True)
    (tmp_path / "config/stores/old.yaml").write_text(OLD.format(root=tmp_path / "old"))
    apply(world.catalog, tmp_path / "config", actor="operator:eve")
    world.stores = stores_of(world.catalog)
    taken = by_name.take(
        world.catalog, world.stores, "old", accounts_for=[PROJECT], actor="test"
    ).inventory
    return by_name.read(world.catalog, world.stores, "old", taken)


def test_an_empty_place_holds_none_of_its_copies_and_its_inventories_are_gone_with_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.promote({"capacity": {"soft": "500B", "hard": "50kB"}})
    world.commit(1)
    pressure.observe(world.catalog, PROJECT, cause="test", actor="test")
    by_name.take(world.catalog, world.stores, "old", accounts_for=[PROJECT], actor="test")
    write_to(world, "local")
    with monkeypatch.context() as busy:
        busy.setattr(FileStore, "stat", throttled)
        with pytest.raises(StoreHeld, match="it is there: Store old throttles"):
            lose(world)
    (tmp_path / "old").rename(tmp_path / "unmounted")
    (tmp_path / "old").mkdir()
    world.stores = stores_of(world.catalog)

    gone = lose(world)

    assert gone.seen.endswith("is this the store, is it mounted?")
    assert (gone.loss.copies, gone.left) == (1, ())
    with world.catalog.transaction() as tx:
        assert inventories.of_store(tx, "old") == []
        assert capacity_states.pressed_since(tx, PROJECT, world.now()) is None
        (change, before) = capacity_states.changes(tx, PROJECT)
        assert (before.state, change.state) == ("soft", "open")
    with pytest.raises(NotFound):
        lose(world)
