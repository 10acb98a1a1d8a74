"""The pages show what the catalog has, link relatively, and change it by small forms."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from lastgood.catalog.jobs import copy_transitions, stages
from lastgood.catalog.views import operator_views
from lastgood.coordinator import operator_routes
from lastgood.coordinator.operators.auth import Operator, TokenGuard
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.retention import stage_timeline
from tests.retention.world import World

PAGES = [
    "",
    "reports",
    "reports/1",
    "checkpoints",
    "checkpoints/vision/gpt/pretrain",
    "why/vision/gpt/pretrain/1.4",
    "holds",
    "quarantine",
    "uploads",
    "capacity",
    "policies",
    "findings",
    "drills",
]


@pytest.fixture
def lived_in(world: World, tmp_path: Path) -> World:
    """A project in which everything has happened that a page shows."""
    for sequence in (1, 2, 3, 4):
        world.commit(sequence, metrics={"loss": 1 / 3})
    world.mark()
    world.sweep()
    world.prepare(7, {"a": b"1"})
    (tmp_path / "store" / "<b>stray&\x1b[2J\u202e").write_bytes(b"12345")
    end = world.now()
    reconcile.run(
        world.catalog,
        world.stores,
        "vision",
        window=(end - timedelta(days=1), end),
        report_dir=tmp_path / "reports",
        actor="dag:test",
    )
    return world


def test_every_page_links_relatively_and_runs_no_script(
    browser: httpx.Client, lived_in: World
) -> None:
    followed: set[httpx.URL] = set()
    for path in PAGES:
        answer = browser.get(f"/pages/{path}")

        assert answer.status_code == 200, (path, answer.text)
        links = re.findall(r'(?:href|src|action)="([^"]*)"', answer.text)
        assert [link for link in links if link.startswith(("/", "http"))] == [], path
        assert "<script" not in answer.text, path
        assert "<b>stray" not in answer.text, path
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", answer.text), path
        if path in ("findings", "reports/1"):
            assert r"&lt;b&gt;stray&amp;\x1b[2J\u202e" in answer.text, path
        for link in {one for one in links if one and not one.startswith(("#", "data:", "?"))}:
            url = answer.url.join(link)
            if url in followed:
                continue
            followed.add(url)
            is_form = link.endswith(("release", "undo", "explain", "assign", "close"))
            assert browser.get(str(url)).status_code == (404 if is_form else 200), (path, link)
    assert len(followed) > len(PAGES)


def test_the_page_of_a_stage_tells_roles_receipts_holds_and_the_reason_of_each_decision(
    browser: httpx.Client, lived_in: World
) -> None:
    form = {"checkpoint": "vision/gpt/pretrain/1.1", "kind": "incident", "reason": "look <closely>"}
    browser.post("/pages/holds", data=form)

    page = browser.get("/pages/checkpoints/vision/gpt/pretrain").text
    entries = dict(re.findall(r'<li class="[a-z]+" id="([0-9.]+)">(.*?</ul>)', page, re.DOTALL))

    assert list(entries) == ["1.4", "1.3", "1.2", "1.1"]
    assert "0.333333" in entries["1.4"]
    assert re.findall(r'aria-label="([^"]*)"><rect', page) == [
        "all: 1.4, 1.3, 1.2, 1.1",
        "hot: 1.4, 1.3",
        "newest: 1.4",
        "active: 1.4",
        "floor: 1.4",
        "hold: 1.1",
        "leaving: 1.2",
    ]
    newest, left, held = (_words(entries[name]) for name in ("1.4", "1.2", "1.1"))
    assert "the newest committed" in newest
    assert "receipt pass" in newest
    assert "Leaves: others took the slots of hot" in left
    assert "candidate of mark 1: others took the slots of hot (leaves hot)" in left
    assert "Kept: by a hold alone" in held
    assert "Held: incident look &lt;closely&gt; ann, until released" in held
    assert "operator:ann" in held


def test_a_timeline_asks_the_catalog_as_often_for_many_checkpoints_as_for_few(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[object] = []
    execute = psycopg.Cursor.execute

    def counted(cursor: Any, query: Any, *values: Any, **options: Any) -> Any:
        statements.append(query)
        return execute(cursor, query, *values, **options)

    def asked() -> int:
        with world.catalog.transaction() as tx:
            stage = operator_views.stages(tx, "vision")[0]
        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", counted)
            statements.clear()
            found = stage_timeline.newest(world.catalog, stage, limit=100)
        assert len(found) == stage.present
        return len(statements)

    world.commit(1)
    few = asked()
    for sequence in range(2, 12):
        world.commit(sequence)

    assert few > 0
    assert asked() == few
    with world.catalog.transaction() as tx:
        stage = operator_views.stages(tx, "vision")[0]
    older = stage_timeline.newest(world.catalog, stage, limit=3, skip=2)
    assert [one.checkpoint.sequence for one in older] == [9, 8, 7]


def test_a_deleted_checkpoint_stays_on_the_timeline_with_its_tombstone_and_certificate(
    browser: httpx.Client, world: World
) -> None:
    for sequence in (1, 2, 3):
        world.commit(sequence)
    for _ in range(2):
        world.mark()
        world.sweep()
        world.advance(timedelta(days=4))
    tombstone, certificate = world.row(
        "SELECT tombstone_id, certificate FROM lastgood.certificates"
    )

    page = browser.get("/pages/checkpoints/vision/gpt/pretrain").text
    entries = dict(re.findall(r'<li class="([a-z]+)" id="([0-9.]+)">', page))

    assert entries["deleted"] == "1.1"
    gone = _words(page[page.index('id="1.1"') :])
    assert "Every copy is deleted" in gone
    assert re.search(rf"Deletion in local by mark 2 intended .*, proven gone .* {tombstone}", gone)
    assert f'title="{certificate}"' in page


def test_a_long_table_is_paged(browser: httpx.Client, world: World) -> None:
    world.owner.execute(
        "INSERT INTO lastgood.findings SELECT gen_random_uuid(), 'vision', 'local', 'untracked',"
        " to_char(i, 'FM000'), 'o', now() + interval '1 day', now() FROM generate_series(1, 101) i"
    )
    world.owner.execute(
        "INSERT INTO lastgood.finding_events (finding_id, number, project, kind, bytes, objects,"
        " actor, facts, recorded_at) SELECT finding_id, 1, project, 'opened', 5, 1, 'a', '{}',"
        " now() FROM lastgood.findings"
    )

    first = browser.get("/pages/findings?closed=true").text
    (following,) = re.findall(r'href="([^"]*)">Rows after', first)
    last = browser.get(f"/pages/findings{following.replace('&amp;', '&')}").text

    assert [first.count("/history"), last.count("/history")] == [100, 1]
    assert '<span class="mono">101</span>' in last
    assert "Rows after" not in last
    assert 'href="?skip=0&amp;closed=true">Rows before' in last
    for path in ("reports", "checkpoints", "holds", "quarantine", "uploads"):
        beyond = browser.get(f"/pages/{path}?skip=100")
        assert (beyond.status_code, "None beyond this." in beyond.text) == (200, True), path


def test_of_many_events_the_newest_are_told_and_the_others_counted(
    browser: httpx.Client, world: World
) -> None:
    copy = world.commit(1)
    for _ in range(stage_timeline.NEWEST_EVENTS + 1):
        world.receipt(copy, "pass")
    world.receipt(copy, "fail")

    page = browser.get("/pages/checkpoints/vision/gpt/pretrain").text

    assert '<li class="corrupt" id="1.1">' in page
    assert page.count('<li><span class="when') == stage_timeline.NEWEST_EVENTS
    assert ">4 earlier</a>" in page


def _words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_a_hold_by_form_stands_and_says_so(browser: httpx.Client, lived_in: World) -> None:
    form = {
        "checkpoint": "vision/gpt/pretrain/1.1",
        "kind": "incident",
        "reason": "look <closely>",
        "expires_on": "2099-05-06",
    }

    answer = browser.post("/pages/holds", data=form)
    page = browser.get(str(answer.url.join(answer.headers["location"])))

    assert answer.status_code == 303
    assert "The hold stands." in page.text
    assert "look &lt;closely&gt;" in page.text
    assert "2099-05-06 23:59:59" in page.text
    assert lived_in.row("SELECT placed_by, owner FROM lastgood.holds") == ("operator:ann", "ann")


def test_quarantine_is_undone_by_form(browser: httpx.Client, lived_in: World) -> None:
    form = {"checkpoint": "vision/gpt/pretrain/1.1", "because": "needed"}

    answer = browser.post("/pages/quarantine/undo", data=form)

    assert answer.status_code == 303
    assert lived_in.row("SELECT state FROM lastgood.copies ORDER BY copy_id LIMIT 1") == (
        "present",
    )


def test_a_finding_is_explained_and_assigned_by_form(
    browser: httpx.Client, lived_in: World
) -> None:
    finding = re.findall(r'name="finding" value="([^"]*)"', browser.get("/pages/findings").text)[0]

    assigned = browser.post(
        "/pages/findings/assign",
        data={"finding": finding, "owner": "bob", "deadline": "2099-01-01"},
    )
    explained = browser.post(
        "/pages/findings/explain", data={"finding": finding, "reason": "a probe"}
    )
    page = browser.get("/pages/findings").text
    refused = browser.post("/pages/findings/close", data={"finding": finding})
    history = browser.get(f"/pages/findings/{finding}/history").text

    assert (assigned.status_code, explained.status_code) == (303, 303)
    assert refused.status_code == 409
    assert "stray" in refused.text
    assert re.findall(r'<th scope="row">(\w+)</th>', history) == [
        "opened",
        "assigned",
        "explained",
        "seen",
    ]
    assert "bob" in page
    assert "a probe" in page


def test_a_hold_is_released_by_form(browser: httpx.Client, lived_in: World) -> None:
    form = {"checkpoint": "vision/gpt/pretrain/1.4", "kind": "research", "reason": "r"}
    browser.post("/pages/holds", data=form)
    hold = re.findall(r'name="hold" value="([^"]*)"', browser.get("/pages/holds").text)[0]

    answer = browser.post(
        "/pages/holds/release", data={"project": "vision", "hold": hold, "because": "done"}
    )

    assert answer.status_code == 303
    assert "No hold stands." in browser.get("/pages/holds").text


async def _may_read(*_: object) -> Operator:
    return Operator("eve", may_change=False)


def test_who_may_only_read_is_offered_no_form_and_refused_every_change(
    browser: httpx.Client, lived_in: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenGuard, "identify", _may_read)
    app = FastAPI()
    operator_routes.include(app, TokenGuard("0" * 64))
    changes = {
        route.path
        for route in app.routes
        if isinstance(route, APIRoute) and route.path.startswith("/pages/")
        if not {"GET", "HEAD"} >= (route.methods or set())
    }

    assert {"/pages/holds", "/pages/quarantine/undo", "/pages/findings/assign"} < changes
    for path in PAGES:
        page = browser.get(f"/pages/{path}")
        assert (page.status_code, "<form" in page.text, "eve (may read)" in page.text) == (
            200,
            False,
            True,
        ), path
    for path in changes:
        refused = browser.post(path, data={})
        assert (refused.status_code, "eve" in refused.text) == (403, True), path


def test_whatever_was_asked_for_the_answer_is_a_page(browser: httpx.Client, world: World) -> None:
    for path, status, says in (
        ("nonsense/x", 404, "no page &#39;nonsense/x&#39;"),
        ("reports/999", 404, "no report"),
        ("reports?project=ghost", 404, "ghost"),
        ("reports?project=%00", 422, "NUL"),
        ("findings?skip=-1", 422, "skip"),
        ("findings/nonsense/history", 422, "finding"),
        ("findings", 200, "No store was looked at yet"),
        ("reports", 200, "lastgood reconcile PROJECT"),
        ("checkpoints", 200, "lastgood project-key create"),
    ):
        answer = browser.get(f"/pages/{path}")

        assert answer.status_code == status, path
        assert "text/html" in answer.headers["content-type"], path
        assert says in answer.text, path


def test_a_refused_change_is_a_page_that_says_why(browser: httpx.Client, world: World) -> None:
    there, not_there = (f"vision/gpt/pretrain/{number}" for number in ("1.1", "9.9"))
    world.commit(1)
    for path, form, status, says in (
        ("holds", {"checkpoint": "nonsense", "kind": "incident", "reason": "r"}, 422, "nonsense"),
        ("holds", {"kind": "incident"}, 422, "checkpoint"),
        ("holds", {"checkpoint": there, "kind": "incident", "reason": "  "}, 422, "reason"),
        ("quarantine/undo", {"checkpoint": there, "because": "x"}, 409, "present"),
        ("quarantine/undo", {"checkpoint": not_there, "because": "x"}, 404, "no checkpoint"),
    ):
        answer = browser.post(f"/pages/{path}", data=form)

        assert answer.status_code == status, form
        assert "text/html" in answer.headers["content-type"], form
        assert says in answer.text, form
        assert "Back to the overview" in answer.text, form


def test_a_lost_checkpoint_is_shown_as_lost(browser: httpx.Client, world: World) -> None:
    lost = world.commit(1)
    with world.catalog.transaction() as tx:
        stages.locked(tx, "vision", lost.stage_id)
        copy_transitions.lose(
            tx, lost, actor="operator:ann", reason="store local was given up as lost"
        )

    page = browser.get("/pages/checkpoints/vision/gpt/pretrain").text

    assert dict(re.findall(r'<li class="([a-z]+)" id="([0-9.]+)">', page)) == {"lost": "1.1"}
    assert "Lost with its store" in page
    why = browser.get("/pages/why/vision/gpt/pretrain/1.1").text
    assert '<span class="badge bad">lost<' in why
    assert browser.get("/pages/quarantine").status_code == 200
