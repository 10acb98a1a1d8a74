"""A store ends once nothing needs it: history goes on naming it, and nobody asks it any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from lastgood.catalog.reconciliation import findings, reports
from lastgood.catalog.reconciliation.findings import Sighting
from lastgood.catalog.settings import projects, store_registrations
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.catalog.views import measurements, operator_records
from lastgood.errors import NotFound, Unavailable
from lastgood.flows import control_keys
from lastgood.flows.auditing import audit
from lastgood.flows.cleaning import cleanup
from lastgood.flows.drills.scratch import open_scratch
from lastgood.flows.inventories import by_name
from lastgood.flows.overview import overview
from lastgood.flows.services import stores_of
from lastgood.flows.settings.apply import apply
from lastgood.flows.unregister import StoreInUse, unregister
from lastgood.rules import layout
from lastgood.rules.finding_owners import Owners
from lastgood.stores.base import Key, Prefix
from lastgood.stores.file import FileStore
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.retention.world import PROJECT, World, opened

OLD = "name: old\nkind: file\nroot: {root}\nfailure_domain: rack-2\ntier: cold\n"


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """The project with a second store `old`, claimed and not used yet."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "local") as found:
        register(found, "old", root=str(tmp_path / "old"))
        (tmp_path / "old").mkdir()
        found.stores = stores_of(found.catalog)
        control_keys.claim(found.catalog, found.stores["old"])
        yield found


def register(world: World, name: str, **config: Any) -> None:
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow(name, "file", config, "rack-2", "cold"))


def write_to(world: World, store: str) -> None:
    """Move the project to a store."""
    with world.catalog.transaction() as tx:
        projects.put(tx, Project(PROJECT, "team", store, "short", {}, None))
    world.store = world.stores[store]


def end(world: World, name: str = "old") -> Any:
    return unregister(world.catalog, world.stores, name, because="sold", actor="operator:ann")


def refusal(world: World) -> str:
    with pytest.raises(StoreInUse) as refused:
        end(world)
    assert refused.value.status == 409
    return str(refused.value)


def see(world: World, *sightings: Sighting) -> list[UUID]:
    """Follow the findings of the store `old`; answers those that stand."""
    with world.catalog.transaction() as tx:
        findings.follow(
            tx,
            PROJECT,
            "old",
            sightings,
            owners=Owners("team"),
            deadline=timedelta(days=3),
            actor="dag:test",
            at=world.now(),
        )
        return [one.finding_id for one in findings.current(tx, store="old")]


def test_everything_that_needs_a_store_is_named_and_once_it_is_gone_history_stays(
    world: World, tmp_path: Path
) -> None:
    open_scratch(world.catalog, "old")
    write_to(world, "old")
    copy = world.commit(1)
    world.prepare(2, {"model.bin": b"half"})
    world.promote({"capacity": {"spill_store": "old"}}, name="spilling")
    register(world, "bulk", root=str(tmp_path / "bulk"), inventories={"place": "old"})
    (finding,) = see(world, Sighting("untracked", "notes", 3, 1, ()))
    said = refusal(world)
    for reason in (
        "project vision writes to it (projects/vision.yaml: store)",
        "1 copy of vision is present",
        "1 attempt of vision is open",
        "1 finding of vision is open",
        "store bulk keeps its inventories in it (stores/bulk.yaml: inventories.place)",
        "policy spilling@v1 of vision spills to it (capacity.spill_store)",
    ):
        assert reason in said
    assert "drill" not in said

    (tmp_path / "bulk").mkdir()
    control_keys.claim(world.catalog, world.stores["bulk"])
    by_name.take(world.catalog, world.stores, "bulk", accounts_for=[], actor="test")
    register(world, "bulk", root=str(tmp_path / "bulk"))
    world.promote()
    write_to(world, "local")
    for sequence in (3, 4):
        world.commit(sequence)
    with world.catalog.transaction() as tx:
        findings.explain(tx, finding, reason="known", actor="ann", at=world.now())
    world.mark()
    world.sweep()
    assert "1 copy of vision is quarantined" in refusal(world)
    world.advance(timedelta(hours=2))
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=2))
    cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    only = "for it is needed: 1 inventory of store bulk kept in it."
    assert refusal(world).endswith(only)
    assert end(world, "bulk").inventories == 1
    by_name.take(world.catalog, world.stores, "old", accounts_for=[PROJECT], actor="test")
    (tmp_path / "old" / "notes").write_text("of somebody else")
    now = world.now()
    with world.catalog.transaction() as tx:
        report = reports.add(
            tx,
            project=PROJECT,
            store="old",
            window=(now - timedelta(days=1), now),
            document={"checks": []},
            passed=False,
            recorded_at=now,
        )
    events = world.row("SELECT last_event FROM lastgood.stages WHERE project = 'vision'")[0]

    gone = end(world)

    assert (gone.store, gone.inventories, gone.left) == ("old", 1, ())
    left = [one.key for one in FileStore("old", tmp_path / "old").list(Prefix(""))]
    assert left == ["notes"]
    with pytest.raises(NotFound):
        end(world)
    world.stores = stores_of(world.catalog)
    with pytest.raises(NotFound):
        world.stores["old"]
    with world.catalog.transaction() as tx:
        assert [one.name for one in projects.stores(tx)] == ["local"]
        assert projects.stores_of(tx, PROJECT) == ["local"]
        assert projects.names(tx) == [PROJECT]
        assert findings.current(tx, store="old") == []
        ended = store_registrations.unregistered(tx)[0]
        assert (ended.store, ended.because, ended.actor) == ("old", "sold", "operator:ann")
        assert measurements.explained(tx) == []  # no alert grows with a report's age
        assert reports.get(tx, report).store == "old"
        assert "old" in [one.store for one in operator_records.tombstones(tx, PROJECT)]
    assert world.copy(copy).store == "old"
    shown = overview(world.catalog, world.stores)
    assert {one.store for one in shown.stores} == {"local"}
    assert not [alert for alert in shown.alerts if "old" in alert]
    control_keys.guard(world.catalog, world.stores)
    world.mark()
    world.sweep()
    cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    found = audit.run(world.catalog)
    assert (found.projects, found.breaks) == (2, [])

    folder = tmp_path / "config"
    (folder / "stores").mkdir(parents=True)
    (folder / "stores" / "old.yaml").write_text(OLD.format(root=tmp_path / "old"))
    first, *_ = apply(world.catalog, folder, actor="operator:eve")
    assert (first.name, first.how) == ("old", "added")
    assert apply(world.catalog, folder, actor="operator:eve") == []
    control_keys.guard(world.catalog, stores_of(world.catalog))
    # What a dump from before would be told by: all that happened while nobody wrote here.
    newest = layout.event_key(world.stage_name(), events)
    assert stores_of(world.catalog)["old"].stat(Key(newest)) is not None
    with world.catalog.transaction() as tx:
        assert [one.store for one in store_registrations.unregistered(tx)] == ["bulk"]
        assert projects.stores_of(tx, PROJECT) == ["local", "old"]
    assert end(world).left == ()


def test_a_store_that_is_gone_for_good_ends_and_what_is_left_there_is_told(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "old").rename(tmp_path / "sold")
    world.stores = stores_of(world.catalog)
    gone = end(world)
    assert len(gone.left) == 1
    assert gone.left[0].startswith("its control keys, for it does not answer: Store old")

    register(world, "other", root=str(tmp_path / "other"))
    (tmp_path / "other" / "control").mkdir(parents=True)
    foreign = b'{"catalog_id": "another", "facts": {}}'
    (tmp_path / "other" / "control" / "catalog.json").write_bytes(foreign)
    assert end(world, "other").left == ("its control keys, which are those of catalog another",)
    assert (tmp_path / "other" / "control" / "catalog.json").read_bytes() == foreign


def test_a_catalog_that_still_believes_in_the_store_refuses_to_work(world: World) -> None:
    end(world)
    with world.catalog.transaction() as tx:
        world.owner.execute("UPDATE lastgood.stores SET unregistered_at = NULL")  # an older dump
        assert projects.find_store(tx, "old") is not None
    with pytest.raises(Unavailable, match="it is not the place that was claimed"):
        control_keys.guard(world.catalog, stores_of(world.catalog))


def test_a_reference_that_comes_first_is_seen_and_one_that_comes_later_is_refused(
    world: World,
) -> None:
    move = Project("second", "team", "old", "short", {}, None)
    with world.catalog.transaction() as tx:
        projects.put(tx, move)
        ending = Session(lambda: end(world))
        wait_until_blocked(world.owner)
    with pytest.raises(StoreInUse, match="project second writes to it"):
        ending.result()
    with world.catalog.transaction() as tx:
        projects.put(tx, Project("second", "team", "local", "short", {}, None))
    end(world)
    for write in (
        lambda: write_to(world, "old"),
        lambda: see(world, Sighting("untracked", "notes", 3, 1, ())),
    ):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="store old is not registered"):
            write()
