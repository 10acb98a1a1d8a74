"""A report says what failed first and is complete all the same; it keeps to its published schema,
and two of them are compared."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest

from lastgood.catalog.reconciliation import quality_results, reports
from lastgood.errors import InvalidInput
from lastgood.flows.reconciliation import reconcile
from lastgood.reports import html, schema
from lastgood.reports.diff import compare
from lastgood.rules import layout
from lastgood.rules.byte_equation import Line
from tests.retention.world import PROJECT, World, opened

OBJECTS = {"model.bin": b"m" * 4000, "rng.bin": b"r" * 7}
VALIDATOR = jsonschema.Draft202012Validator(
    schema.document(), format_checker=jsonschema.FormatChecker()
)


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def _reconciled(world: World, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    end = world.now()
    result = reconcile.run(
        world.catalog,
        world.stores,
        PROJECT,
        window=(end - timedelta(days=3), end),
        report_dir=folder,
        actor="dag:test",
    )
    return result, json.loads(Path(result["json"]).read_text())


def _shape(value: Any) -> Any:
    """The keys of a document, all the way down; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(value[0])] if isinstance(value, list) and value else None


def test_the_report_of_a_day_with_failed_checks_is_complete_and_begins_with_what_failed_first(
    world: World, tmp_path: Path
) -> None:
    for sequence in (1, 2, 3, 4):
        world.commit(sequence, OBJECTS)
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=2))
    world.mark()
    world.sweep()
    world.prepare(7, {"a": b"1"}, grant=timedelta(seconds=1))
    stray = tmp_path / "store" / "checkpoints" / PROJECT / "a,\n'stray' \"<b>"
    stray.write_bytes(b"12345")
    world.advance(timedelta(days=2))
    good, before = _reconciled(world, tmp_path / "reports")
    assert good["passed"], good["failed"]

    lost = world.commit(9, OBJECTS)
    (tmp_path / "store" / layout.object_key(lost.prefix, "model.bin")).unlink()
    world.advance(timedelta(days=4))  # past the deadline of the stray file's finding
    bad, after = _reconciled(world, tmp_path / "reports")

    assert bad["failed"] == ["nothing-committed-absent", "no-finding-overdue"]
    with pytest.raises(reconcile.ChecksFailed, match="first nothing-committed-absent, which team"):
        reconcile.raise_if_failed(bad)
    assert list(after)[:3] == ["format_version", "report", "verdict"]
    first = after["verdict"]["first_failed"]
    assert (first["name"], first["suite"], first["failed_before"]) == (
        "nothing-committed-absent",
        "keys",
        0,
    )
    assert first["owner"] == after["owner"]
    page = Path(bad["html"]).read_text()
    body = page[page.index("<body>") :]
    assert 0 < body.index("Failed first") < body.index("nothing-committed-absent")
    assert body.index("nothing-committed-absent") < body.index("Byte equation of")
    assert first["observed"] in body
    whole, also = _shape(before), _shape(after)
    del whole["verdict"], also["verdict"], whole["oldest_incomplete"], also["oldest_incomplete"]
    assert {*whole} == {*also}
    assert whole["equation"] == also["equation"]
    for document in (before, after):
        VALIDATOR.validate(document)
    assert "http" not in re.sub(r"urn:|http-equiv", "", page)
    assert not re.search(r"<script|<link[^>]+href=\"(?!data:)|@import|url\((?!#)", page)

    assert next((one["role"], one["is_role"]) for one in before["roles"]) == ("hot", True)
    assert before["freed"]["deletions"] == 2
    assert [(one["left"], one["deletions"]) for one in before["freed"]["by_reason"]] == [("hot", 2)]
    assert before["freed"]["bytes"] > 2 * 4007
    assert before["oldest_incomplete"]["attempt"]["stage"] == "gpt/pretrain"
    assert before["oldest_incomplete"]["attempt"]["age_seconds"] > 86400
    (of_class,) = before["objectives"]
    assert of_class["rpo"]["measured"] == 3
    assert of_class["rto"]["met"] is None
    assert [one["stage"] for one in of_class["stages"]] == ["gpt/pretrain"]
    assert before["growth"]["outlook"] == "not-enough-days"
    (owed,) = before["findings_by_owner"]
    assert (owed["findings"], owed["overdue"], owed["bytes"]) == (1, 0, 5)
    assert {one["overdue"] for one in after["findings_by_owner"]} == {1}
    lines = list(csv.DictReader(io.StringIO(Path(bad["csv"]).read_text())))
    shown = {(row["scope"], row["line"]): row["bytes"] for row in lines}
    for scope, equation in (("project", "equation"), ("store", "store_equation")):
        assert [shown[scope, line.value] for line in Line] == [
            str(after[equation]["lines"][line.value]) for line in Line
        ]

    strip = {one["name"]: [past["passed"] for past in one["past"]] for one in after["checks"]}
    assert strip["nothing-committed-absent"] == [True, False]
    assert strip["equation-closes"] == [True, True]
    assert page.count('class="chart strip"') == len(after["checks"])
    with world.catalog.transaction() as tx:
        kept = quality_results.past(tx, PROJECT, "local", reports=30)
        assert reports.summaries(tx)[0].first_failed == "nothing-committed-absent"
    assert [one.passed for one in kept["no-finding-overdue"]] == [True, False]
    for change in (
        "UPDATE lastgood.quality_results SET passed = true",
        "DELETE FROM lastgood.quality_results",
    ):
        with pytest.raises(psycopg.Error), world.catalog.transaction() as tx:
            tx.execute(change)

    changed = compare(before, after)
    assert {one.line: one.change_bytes for one in changed.lines if one.change_bytes} == {
        line: after["equation"]["lines"][line] - size
        for line, size in before["equation"]["lines"].items()
        if after["equation"]["lines"][line] != size
    }
    assert [(one.how, one.cause) for one in changed.findings] == [("opened", "missing")]
    assert [(one.name, one.before, one.after) for one in changed.checks] == [
        ("nothing-committed-absent", True, False),
        ("no-finding-overdue", True, False),
    ]
    back = compare(after, before)
    assert [one.how for one in back.findings] == ["closed"]
    with pytest.raises(InvalidInput, match="of one project in one store"):
        compare(before, {**after, "project": "speech"})


def test_days_make_a_trend_a_forecast_and_a_history_of_checks(world: World, tmp_path: Path) -> None:
    world.promote({"capacity": {"soft": "90kB", "hard": "100kB"}}, name="small")
    world.commit(1, OBJECTS)
    result, document = _reconciled(world, tmp_path / "reports")
    end = datetime.fromisoformat(document["window"]["end"])
    with world.catalog.transaction() as tx:
        for ago in range(9, 0, -1):
            past = json.loads(json.dumps(document))
            past["equation"]["backend_bytes"] -= ago * 100
            at = end - timedelta(days=ago)
            number = reports.add(
                tx,
                project=PROJECT,
                store="local",
                window=(at - timedelta(days=1), at),
                document=past,
                passed=True,
                recorded_at=at,
            )
            assert number > result["report_id"]

    _, again = _reconciled(world, tmp_path / "reports")

    days = [point["at"][:10] for point in again["trend"]]
    assert days == sorted(set(days))
    assert len(days) == 10
    growth = again["growth"]
    assert (growth["measure"], growth["days"], growth["outlook"]) == ("project", 10, "expected")
    assert growth["per_day_bytes"] > 90
    left = growth["hard_bytes"] - again["equation"]["backend_bytes"]
    expected = end.date() + timedelta(days=-(-left // growth["per_day_bytes"]))
    assert growth["hard_reached_on"] == expected.isoformat()
    shown = html.render(again)
    assert f"{growth['hard_reached_on']}, if it grows as over the last 10 days" in shown
    assert shown.count('class="line-committed"') >= len(days)
    VALIDATOR.validate(again)

    assert again["lost"] == []
    again["lost"] = [{"store": "old", "copies": 7, "bytes": 12_000}]
    assert "with store old: 7 copies, 12.0 kB" in html.render(again)
    VALIDATOR.validate(again)
    for later in ("lost", "damaged"):  # a report of before says nothing of them
        del again[later]
    assert html.render(again)
