"""A reconciliation writes its report first, follows its findings, and only then says what
failed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import findings, quality_results, reports
from lastgood.errors import NotFound
from lastgood.flows.inventories.explanation import ListingUnusable
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.overview import overview
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.services import stores_of
from lastgood.stores.base import EVERYTHING, Prefix, Usage
from lastgood.stores.file import FileStore
from lastgood.stores.open import StoreConfig, Stores
from tests.reconcile.prepared import Prepared
from tests.reconcile.taking import take

OBJECTS = {"model.bin": b"m" * 4000, "rng.bin": b"r" * 7}
END = datetime(2026, 3, 2, 2, tzinfo=UTC)
WINDOW = (END - timedelta(days=1), END)


def _run(catalog: Catalog, folder: Path, project: str = "vision") -> dict[str, Any]:
    return reconcile.run(
        catalog,
        stores_of(catalog),
        project,
        window=WINDOW,
        report_dir=folder,
        actor="dag:reconcile_inventory",
    )


def _document(result: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(result["json"]).read_text())
    return document


def test_a_store_that_agrees_passes_and_its_equation_closes_to_the_byte(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    present = [prepared.commit(OBJECTS) for _ in range(3)]
    held = prepared.commit(OBJECTS, state="quarantined")
    prepared.attempt({"a": b"i" * 19}, lease="-1 hour")
    prepared.attempt({"a": b"f" * 17}, state="failed")
    prepared.attempt({"a": b"s" * 13}, state="sealed")

    result = _run(catalog, tmp_path)
    document = _document(result)

    assert result["passed"]
    reconcile.raise_if_failed(result)
    assert document["counts"] == {
        "committed": 3,
        "validating": 1,
        "failed": 1,
        "quarantined": 1,
        "incomplete": 1,
    }
    assert (
        document["bytes"]
        == document["catalog_bytes"]
        == {
            "committed": sum(one.stored_bytes for one in present),
            "validating": 13,
            "failed": 17,
            "quarantined": held.stored_bytes,
            "incomplete": 19,
        }
    )
    for scope in ("equation", "store_equation"):
        assert document[scope]["closes"]
        assert sum(document[scope]["lines"].values()) == document[scope]["backend_bytes"]
    assert all(check["passed"] for check in document["checks"])
    with catalog.transaction() as tx:
        assert reports.get(tx, result["report_id"]).document == document


def test_the_backends_total_is_kept_for_admission(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)

    document = _document(_run(catalog, tmp_path))

    row = prepared.owner.execute(
        "SELECT backend_bytes, backend_total, backend_at IS NOT NULL FROM capacity_counters"
        " WHERE project = 'vision'"
    ).fetchone()
    usage = prepared.store.usage(Prefix(""))
    assert row == (document["store_equation"]["backend_bytes"], usage.total_bytes, True)


def test_a_finding_is_opened_once_followed_and_closed_when_its_bytes_are_gone(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    stray = prepared.put("checkpoints/vision/old/weights.bin", b"w" * 123)

    first = _document(_run(catalog, tmp_path))
    second = _document(_run(catalog, tmp_path))
    with catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=["vision"])
    (prepared.root / stray).unlink()
    third = _document(_run(catalog, tmp_path))

    assert [one["bytes"] for one in first["findings"]] == [123]
    assert first["findings"][0]["finding"] == second["findings"][0]["finding"]
    assert second["findings"][0]["deadline"] == first["findings"][0]["deadline"]
    assert first["equation"]["lines"]["unexplained"] == 123
    assert (finding.owner, finding.state, finding.events) == ("storage-oncall", "open", 2)
    assert finding.deadline - finding.opened_at == timedelta(days=3)
    assert third["findings"] == []
    assert third["equation"]["lines"]["unexplained"] == 0
    with catalog.transaction() as tx:
        (closed,) = findings.current(tx, projects=["vision"], closed=True)
    assert (closed.state, closed.events) == ("closed", 3)


def test_an_explained_finding_opens_again_when_it_grows(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.put("checkpoints/vision/old/a", b"a" * 10)
    _run(catalog, tmp_path)
    with catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=["vision"])
        findings.explain(
            tx, finding.finding_id, reason="moved by hand", actor="operator:ann", at=END
        )
    same = _document(_run(catalog, tmp_path))
    prepared.put("checkpoints/vision/old/b", b"b" * 10)
    grown = _document(_run(catalog, tmp_path))

    assert same["findings"][0]["state"] == "explained"
    assert same["findings"][0]["note"] == "moved by hand"
    assert grown["findings"][0]["state"] == "open"
    assert grown["findings"][0]["bytes"] == 20


def test_a_missing_committed_object_fails_the_run_after_the_report_is_written(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    kept = prepared.commit(OBJECTS)
    (prepared.root / kept.key_of("model.bin")).unlink()

    result = _run(catalog, tmp_path)

    assert not result["passed"]
    assert result["failed"] == ["nothing-committed-absent"]
    assert Path(result["html"]).is_file()
    assert _document(result)["differences"][0]["samples"][0]["key"] == kept.key_of("model.bin")
    with pytest.raises(reconcile.ChecksFailed, match="nothing-committed-absent"):
        reconcile.raise_if_failed(result)


def test_damage_fails_its_own_project_and_a_stores_totals_fail_once(
    catalog: Catalog, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = prepared.commit(OBJECTS)
    prepared.commit(OBJECTS, project="speech")
    (prepared.root / damaged.key_of("model.bin")).unlink()
    prepared.put("lost+found/block", b"b" * 77)
    prepared.add_project("drill-local")  # nobody's, although the first by name
    prepared.owner.execute(
        "UPDATE projects SET owner = 'drill', config = '{}' WHERE project = 'drill-local';"
        "INSERT INTO scratch_projects VALUES ('drill-local', 'local', catalog_clock())"
    )
    prepared.owner.execute(
        "UPDATE projects SET owner = 'their-team', config = config ||"
        " '{\"finding_owner\": \"their-team\"}' WHERE project = 'vision'"
    )

    ours, theirs = (_run(catalog, tmp_path, project) for project in ("speech", "vision"))

    assert (ours["failed"], theirs["failed"]) == ([], ["nothing-committed-absent"])
    reconcile.raise_if_store_failed([ours, theirs])
    with catalog.transaction() as tx:
        (found,) = findings.current(tx, projects=[SHARED])
    assert (found.key_range, found.owner) == ("lost+found/", "storage-oncall")

    # a backend that has less than was listed, which no project's part shows
    usage = FileStore.usage

    def short(self: FileStore, prefix: Prefix = EVERYTHING) -> Usage:
        told = usage(self, prefix)
        return replace(told, used_bytes=told.used_bytes - (5 if prefix == "" else 0))

    monkeypatch.setattr(FileStore, "usage", short)
    prepared.owner.execute('UPDATE stores SET config = config || \'{"owner": "storage"}\'')
    told = [_run(catalog, tmp_path, project) for project in ("speech", "vision")]

    assert [one["passed"] for one in told] == [True, False]
    assert _document(told[0])["verdict"]["failed_of_store"] == ["store-equation-closes"]
    assert "The totals of the whole store do not agree" in Path(told[0]["html"]).read_text()
    with pytest.raises(reconcile.StoreChecksFailed) as failed:
        reconcile.raise_if_store_failed(told)
    assert str(failed.value).count("local, which storage answers for") == 1
    with catalog.transaction() as tx:
        assert quality_results.of_stores(tx, "store") == {"local": False}
    alerts = overview(catalog, stores_of(catalog)).alerts
    assert sum("local: the totals of the whole store" in one for one in alerts) == 1


def test_an_overdue_finding_fails_the_run(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.put("checkpoints/vision/old/a", b"a" * 10)
    assert _run(catalog, tmp_path)["passed"]
    with catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=["vision"])
        findings.assign(
            tx,
            finding.finding_id,
            owner="ann",
            deadline=finding.opened_at,
            actor="operator:ann",
            at=finding.opened_at,
        )

    result = _run(catalog, tmp_path)

    assert result["failed"] == ["no-finding-overdue"]
    assert _document(result)["findings"][0]["overdue"]


def test_a_report_shows_no_key_of_another_project(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    prepared.commit({"secret-name.bin": b"s" * 55}, project="speech")
    prepared.put("checkpoints/speech/private/notes", b"p" * 66)
    prepared.put("lost+found/block", b"b" * 77)

    result = _run(catalog, tmp_path)
    document = _document(result)

    content = Path(result["json"]).read_text() + Path(result["html"]).read_text()
    assert "speech" not in content
    assert document["equation"]["lines"]["unexplained"] == 0
    assert document["store_equation"]["lines"]["unexplained"] == 66 + 77
    assert [one["project"] for one in document["findings"]] == [SHARED]
    assert document["store_equation"]["closes"]


def test_a_listing_that_fails_feeds_no_report_and_closes_no_finding(
    catalog: Catalog, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.put("checkpoints/vision/old/a", b"a" * 10)
    _run(catalog, tmp_path)
    stores = stores_of(catalog)
    listing = type(stores["local"].list(Prefix("")))
    monkeypatch.setattr(listing, "__iter__", lambda self: iter(self._entries()))

    with pytest.raises(ListingUnusable):
        reconcile.run(
            catalog, stores, "vision", window=WINDOW, report_dir=tmp_path, actor="dag:test"
        )

    with catalog.transaction() as tx:
        assert len(reports.summaries(tx)) == 1
        (finding,) = findings.current(tx, projects=["vision"])
    assert finding.state == "open"


def test_a_report_whose_files_cannot_be_written_is_kept_for_every_store_and_says_the_way_out(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    (tmp_path / "cold").mkdir()
    prepared.owner.execute(
        "INSERT INTO stores (store, kind, config, failure_domain, tier)"
        f" VALUES ('cold', 'file', '{{\"root\": \"{tmp_path}/cold\"}}', 'rack-2', 'cold');"
        "UPDATE projects SET store = 'cold' WHERE project = 'vision'"
    )
    folder = tmp_path / "no-folder"
    folder.write_text("a file")

    with pytest.raises(reconcile.FilesUnwritten, match=r"`lastgood reports write \d+`"):
        _run(catalog, folder)

    with catalog.transaction() as tx:
        assert {one.store for one in reports.summaries(tx)} == {"local", "cold"}


def test_a_store_that_is_not_there_does_not_hide_the_reports_of_the_others(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    prepared.owner.execute(
        "INSERT INTO stores (store, kind, config, failure_domain, tier)"
        " VALUES ('cold', 'file', '{\"root\": \"/nowhere/at/all\"}', 'rack-2', 'cold');"
        "UPDATE projects SET store = 'cold' WHERE project = 'vision'"
    )

    with pytest.raises(Exception, match="cold"):
        _run(catalog, tmp_path)

    with catalog.transaction() as tx:
        (summary,) = reports.summaries(tx)
        document = reports.get(tx, summary.report_id).document
    assert summary.store == "local"
    assert not summary.passed
    failed = [check["name"] for check in document["checks"] if not check["passed"]]
    assert failed == ["every-store-listed"]


def test_an_unknown_project_is_named(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'ghost'"):
        reconcile.run(
            catalog,
            Stores(lambda name: StoreConfig(name, "file", "x")),
            "ghost",
            window=WINDOW,
            report_dir=tmp_path,
            actor="t",
        )


def test_an_older_listing_changes_no_finding(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    stray = prepared.put("checkpoints/vision/old/a", b"a" * 10)
    nobodys = prepared.put("nobodys", b"n" * 5)
    stores = stores_of(catalog)
    older = take(catalog, stores["local"], accounts_for=["vision"], projects=["vision"])
    (prepared.root / stray).unlink()
    (prepared.root / nobodys).unlink()
    _run(catalog, tmp_path)

    with catalog.transaction() as tx:
        reconcile.carry_on(tx, "vision", older, "dag:test")
        reconcile.carry_on(tx, "speech", older, "dag:test")  # its first, but not the store's

    with catalog.transaction() as tx:
        assert findings.current(tx, closed=True) == []


def test_two_reconciliations_at_once_open_each_finding_once(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.put("checkpoints/vision/old/a", b"a" * 10)
    prepared.put("nobodys", b"n" * 5)

    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(_run, catalog, tmp_path / str(number), project)
            for number, project in enumerate(("vision", "speech", "vision", "speech"))
        ]
        assert all(run.result()["passed"] for run in runs)

    opened = prepared.owner.execute(
        "SELECT f.project, count(*) FILTER (WHERE kind = 'opened') FROM findings AS f"
        " JOIN finding_events USING (finding_id) GROUP BY f.project ORDER BY 1"
    ).fetchall()
    assert opened == [("-", 1), ("vision", 1)]
