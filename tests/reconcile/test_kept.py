"""Inventories are kept whole or are unusable; they can be taken in shards, compared, and reported
again; old ones go, and their bytes are counted as long as they are there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import findings, inventories, quality_results
from lastgood.catalog.views import measurements
from lastgood.flows import scheduled_inventories
from lastgood.flows.inventories import by_name as flow
from lastgood.flows.inventories import retention
from lastgood.flows.inventories.kept import InventoryUnusable
from lastgood.flows.inventories.rows import rows_of
from lastgood.flows.inventories.taking import ListingUnusable
from lastgood.flows.overview import overview
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.services import stores_of
from lastgood.reports.checks import STORE
from lastgood.rules import layout
from lastgood.rules.byte_equation import Line
from lastgood.stack.demo.disk import Disk
from lastgood.stores.base import (
    EVERYTHING,
    Key,
    KeyOutcome,
    Outcome,
    Prefix,
    StoredObject,
)
from lastgood.stores.file import FileStore
from tests.conftest import MoveClock
from tests.reconcile.prepared import Prepared
from tests.reconcile.taking import take

PROJECTS = ("speech", "vision")
OBJECTS = {"model/0.bin": b"m" * 1000, "rng.bin": b"r" * 7}


def _take(catalog: Catalog, prepared: Prepared) -> str:
    return take(catalog, prepared.store, accounts_for=PROJECTS, projects=PROJECTS).inventory


def _kept_bytes(prepared: Prepared, inventory: str) -> int:
    below = Prefix(f"control/inventories/local/{inventory}/")
    return sum(one.size_bytes for one in prepared.store.list(below))


def _json(value: Any) -> Any:
    """As it goes from one task to another."""
    return json.loads(json.dumps(value))


@pytest.fixture
def as_a_task(catalog_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    monkeypatch.setenv("LASTGOOD_REPORTS", str(tmp_path / "reports"))


@pytest.mark.usefixtures("as_a_task")
def test_shards_listed_by_many_tasks_give_the_inventory_of_one(
    catalog: Catalog, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        prepared.commit(OBJECTS, state="quarantined" if number == 2 else "present")
    prepared.commit(OBJECTS, project="speech")
    prepared.put("checkpoints/vision/left/a%20b", b"u" * 11)
    prepared.owner.execute(
        "UPDATE stores SET config = config || %s",
        (Jsonb({"inventories": {"objects_per_shard": 8}}),),
    )
    whole = take(catalog, prepared.store, accounts_for=PROJECTS, projects=PROJECTS)

    begun = _json(scheduled_inventories.begin_all())
    shards = _json(scheduled_inventories.shards_of(begun))
    listed = [_json(scheduled_inventories.list_one(**one)) for one in reversed(shards)]
    again = _json(scheduled_inventories.list_one(**shards[1]))  # its first answer was lost
    listed = [again if one["file"]["after"] == again["file"]["after"] else one for one in listed]
    (done,) = [_json(scheduled_inventories.complete_one(one, listed)) for one in begun]
    end = history_now(catalog)
    report = scheduled_inventories.report_project("vision", end - timedelta(days=1), end, [done])

    assert len(shards) >= 3
    taken = flow.read(catalog, stores_of(catalog), "local", done["inventory"])
    assert taken.differences.keys() == whole.differences.keys()
    for name in PROJECTS:
        ours, theirs = (one.by_project[name].equation.totals for one in (taken, whole))
        assert ours == theirs
    assert taken.whole.equation.closes()
    assert report["passed"]
    scheduled_inventories.fail_if_checks_failed(report)

    second = _json(scheduled_inventories.begin_all())
    some = [
        _json(scheduled_inventories.list_one(**one))
        for one in _json(scheduled_inventories.shards_of(second))[:-1]
    ]
    with pytest.raises(ListingUnusable, match="no shard holds the keys after"):
        scheduled_inventories.complete_one(second[0], some)
    with pytest.raises(InventoryUnusable, match="it is unusable"):
        flow.read(catalog, stores_of(catalog), "local", second[0]["inventory"])
    with pytest.raises(Exception, match="no inventory of it was completed"):
        scheduled_inventories.report_project("vision", end - timedelta(days=1), end, [])


def history_now(catalog: Catalog) -> Any:
    with catalog.transaction() as tx:
        return history.now(tx)


def test_an_inventory_whose_files_are_not_as_written_is_unusable(
    catalog: Catalog, prepared: Prepared
) -> None:
    prepared.commit(OBJECTS)
    stores = stores_of(catalog)

    for role, reason in (("listed", "not the file that"), ("manifest", "not the one that was")):
        name = _take(catalog, prepared)
        folder = prepared.root / f"control/inventories/local/{name}"
        (path,) = folder.glob(f"{role}*")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)
        with pytest.raises(InventoryUnusable, match=reason):
            flow.read(catalog, stores, "local", name)
        path.unlink()
        with pytest.raises(InventoryUnusable, match=r"No such file|has no"):
            flow.read(catalog, stores, "local", name)


def test_two_inventories_show_what_is_new_gone_and_changed(
    catalog: Catalog, prepared: Prepared
) -> None:
    prepared.commit(OBJECTS)
    going = prepared.put("checkpoints/vision/old/gone", b"g" * 100)
    grows = prepared.put("checkpoints/vision/old/grows", b"a" * 10)
    before = _take(catalog, prepared)
    (prepared.root / going).unlink()
    with (prepared.root / grows).open("ab") as file:
        file.write(b"b" * 32)
    later = prepared.commit(OBJECTS)
    after = _take(catalog, prepared)

    found = flow.difference(catalog, stores_of(catalog), before, after)

    by_prefix = {one.prefix: one for one in found.by_prefix}
    train = by_prefix["checkpoints/vision/resnet/train"]
    assert (train.new, train.new_bytes, train.gone) == (4, later.stored_bytes, 0)
    assert by_prefix["checkpoints/vision/old/gone"].gone_bytes == 100
    assert by_prefix["checkpoints/vision/old/grows"].changed_bytes == 32
    changes = sum(one.new_bytes - one.gone_bytes + one.changed_bytes for one in found.by_prefix)
    assert found.grown_bytes == changes
    same = flow.difference(catalog, stores_of(catalog), after, after)
    assert (same.grown_bytes, list(same.by_prefix)) == (0, [])


def _another_store(prepared: Prepared, folder: Path) -> FileStore:
    folder.mkdir()
    prepared.owner.execute(
        "INSERT INTO stores (store, kind, config, failure_domain, tier)"
        " VALUES ('kept', 'file', '{}', 'rack-2', 'cold')"
    )
    return FileStore("kept", folder)


def test_kept_inventories_are_control_bytes_until_their_time_is_over(
    catalog: Catalog, prepared: Prepared, move_clock: MoveClock, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    first = _take(catalog, prepared)
    kept = _kept_bytes(prepared, first)
    control = sum(
        one.size_bytes
        for one in prepared.store.list(Prefix("control/"))
        if "inventories" not in one.key
    )
    records = prepared.store.usage().causes["store-records"]
    elsewhere = _another_store(prepared, tmp_path / "kept")
    second = take(
        catalog, prepared.store, accounts_for=PROJECTS, projects=PROJECTS, place=elsewhere
    )
    assert second.whole.equation.totals[Line.CONTROL].size_bytes == control + kept + records
    assert not second.differences

    with catalog.transaction() as tx:
        inventories.record(
            tx, "local", "given-up", "started", place="local", facts={}, actor="test"
        )
    move_clock(timedelta(days=15))
    listed = sum(one.size_bytes for one in prepared.store.list(EVERYTHING))
    freed = _kept_bytes(prepared, first)
    dropped = retention.drop_old(catalog, stores_of(catalog).__getitem__, "local", actor="test")

    assert (dropped.inventories, dropped.size_bytes) == (2, freed)
    assert sum(one.size_bytes for one in prepared.store.list(EVERYTHING)) == listed - freed
    with catalog.transaction() as tx:
        assert [one.inventory for one in inventories.of_store(tx, "local")] == [second.inventory]


def test_the_disk_seen_from_outside_held_what_an_inventory_accounted(
    catalog: Catalog, prepared: Prepared
) -> None:
    prepared.commit(OBJECTS)
    taken = flow.take(catalog, stores_of(catalog), "local", accounts_for=["vision"], actor="test")
    found = flow.read(catalog, stores_of(catalog), "local", taken.inventory)
    prefix = layout.inventory_prefix("local", taken.inventory)
    written = [prepared.root / prefix / one.name for one in taken.files]
    written += [one for one in (prepared.root / ".attested").rglob("*") if one.is_file()]
    for one in written:  # as the kernel dates what is written within a tick of an instant
        os.utime(one, (found.finished_at.timestamp() - 0.001,) * 2)
    later = prepared.root / prepared.put("checkpoints/vision/later", b"n" * 99)
    os.utime(later, (found.finished_at.timestamp() + 1,) * 2)

    held = Disk(prepared.root).bytes_held(found.finished_at, prefix)

    assert held == found.whole.backend_bytes


def _begin_to_send(prepared: Prepared, prefix: str, content: bytes) -> None:
    key = Key(f"{prefix}listed-0001-aaaaaaaa.parquet")
    upload = prepared.store.create_upload(key, len(content))
    prepared.store.write_part(key, upload, 1, len(content), [content])


def test_what_a_killed_or_a_lost_inventory_left_is_known_and_goes_once_in_its_time(
    catalog: Catalog, prepared: Prepared, move_clock: MoveClock
) -> None:
    prepared.commit(OBJECTS)
    stores = stores_of(catalog)
    killed = flow.start(catalog, stores, "local", actor="test").inventory
    _begin_to_send(prepared, f"control/inventories/local/{killed}/", b"k" * 1000)
    lost = "control/inventories/local/20260101T000000Z-aaaaaaaa/"
    prepared.put(f"{lost}listed-0000-bbbbbbbb.parquet", b"l" * 50)
    _begin_to_send(prepared, lost, b"l" * 70)
    flow.take(catalog, stores, "local", accounts_for=PROJECTS, actor="test")
    move_clock(timedelta(hours=25))

    with ThreadPoolExecutor(3) as pool:
        dropped = list(
            pool.map(
                lambda _: retention.drop_old(catalog, stores.__getitem__, "local", actor="t"),
                range(3),
            )
        )
    name = flow.take(catalog, stores, "local", accounts_for=PROJECTS, actor="test").inventory
    taken = flow.read(catalog, stores, "local", name)

    assert sorted((one.inventories, one.size_bytes) for one in dropped) == [
        (0, 0),
        (0, 0),
        (1, 1000),
    ]
    assert [one.part_bytes_held for one in prepared.store.uploads(EVERYTHING)] == [70]
    assert not taken.differences
    move_clock(timedelta(days=14))
    _begin_to_send(prepared, f"control/inventories/local/{killed}/", b"late")
    flow.start(catalog, stores, "local", actor="test")
    retention.drop_old(catalog, stores.__getitem__, "local", actor="test")
    assert list(prepared.store.uploads(EVERYTHING)) == []
    assert list(prepared.store.list(Prefix(lost))) == []


def test_an_old_inventory_that_cannot_be_deleted_is_told_and_the_report_is_written(
    catalog: Catalog,
    prepared: Prepared,
    move_clock: MoveClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared.commit(OBJECTS)
    old = _take(catalog, prepared)
    move_clock(timedelta(days=15))

    def refuse(self: FileStore, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        yield from (KeyOutcome(one.key, None, Outcome.REFUSED, "locked") for one in objects)

    monkeypatch.setattr(FileStore, "delete", refuse)
    end = history_now(catalog)
    told = reconcile.run(
        catalog,
        stores_of(catalog),
        "vision",
        window=(end - timedelta(days=1), end),
        report_dir=tmp_path,
        actor="test",
    )

    assert told["passed"]
    (reason,) = told["not_deleted"]
    assert old in reason
    assert "locked" in reason


def test_a_past_report_is_made_again_from_what_is_kept_or_says_that_nothing_is(
    catalog: Catalog,
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    move_clock: MoveClock,
) -> None:
    prepared.commit(OBJECTS)
    stray = prepared.put("checkpoints/vision/old/a", b"a" * 10)
    end = history_now(catalog)
    window = (end - timedelta(days=1), end)
    stores = stores_of(catalog)
    how: dict[str, Any] = {"report_dir": tmp_path, "actor": "dag:test"}
    first = reconcile.run(catalog, stores, "vision", window=window, **how)
    usage = FileStore.usage
    with monkeypatch.context() as patched:
        patched.setattr(
            FileStore, "usage", lambda self, *of: replace(usage(self, *of), used_bytes=5)
        )
        now = history_now(catalog)
        red = reconcile.run(catalog, stores, "vision", window=(window[1], now), **how)
    (prepared.root / stray).unlink()
    prepared.commit(OBJECTS)

    listed_until = history_now(catalog)
    past = timedelta(days=3)
    move_clock(past)
    again = reconcile.again(catalog, stores, "vision", window=window, **how)
    assert "every-store-fresh" not in again["failed"]  # it was then
    with catalog.transaction() as tx:  # a report of the past says nothing of now
        listed = inventories.listed_at(tx, ["local", "other"], history_now(catalog))
        assert listed["local"] is not None
        assert listed["local"] < listed_until
        assert listed["other"] is inventories.listed_at(tx, ["local"], end)["local"] is None
        [told] = measurements.explained(tx)
        assert told.age_seconds > past.total_seconds()
        assert quality_results.of_stores(tx, STORE) == {"local": False}
        assert [one.passed for one in measurements.explained(tx)] == [False]
    [shown] = overview(catalog, stores, "vision").stores
    assert shown.report is not None
    assert shown.report.report_id == red["report_id"]
    earlier = (window[0] - timedelta(days=30), window[1] - timedelta(days=30))
    absent = reconcile.again(catalog, stores, "vision", window=earlier, **how)

    old, new = (json.loads(Path(one["json"]).read_text()) for one in (first, again))
    for same in ("equation", "store_equation", "counts", "bytes", "listing", "causes"):
        assert new[same] == old[same], same
    assert again["absent"] == []
    assert absent["absent"] == ["local"]
    assert "No inventory of store local is kept" in absent["skipped"]
    with catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=["vision"])
    assert (finding.state, finding.events) == ("open", 2)


def test_the_bytes_of_a_name_that_is_no_text_are_kept_exactly(
    catalog: Catalog, prepared: Prepared
) -> None:
    folder = os.fsencode(prepared.root) + b"/d\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/x\xfe")).write_bytes(b"12345")

    place, manifest = flow.opened(catalog, stores_of(catalog), "local", _take(catalog, prepared))

    with place.opened(manifest) as paths:
        (file,) = manifest.of("listed")
        found = {
            row["raw_key"]: (row["key"], row["size"], row["is_foreign"])
            for row in rows_of(paths[file.name])
            if row["raw_key"] is not None
        }
    assert found == {b"d\xff/x\xfe": (b"d\\xff/x\\xfe", 5, "name-not-utf8")}
