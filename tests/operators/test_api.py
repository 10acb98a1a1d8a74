"""What operators read and change through the API."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from lastgood.flows.reconciliation import reconcile
from lastgood.flows.validation import validate
from lastgood.rules import layout
from tests.retention.world import PROJECT, World


def _ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def _reconciled(world: World, folder: Any) -> dict[str, Any]:
    end = world.now()
    return reconcile.run(
        world.catalog,
        world.stores,
        "vision",
        window=(end - timedelta(days=1), end),
        report_dir=folder,
        actor="dag:test",
    )


def test_checkpoints_are_listed_shown_and_explained(api: httpx.Client, world: World) -> None:
    world.commit(1)
    world.commit(2)

    listed = _ok(api.get("/v1/checkpoints", params={"project": "vision"}))["checkpoints"]
    shown = _ok(api.get("/v1/checkpoints/vision/gpt/pretrain/1.2"))
    why = _ok(api.get("/v1/why/vision/gpt/pretrain/1.2"))
    manifest = _ok(api.get("/v1/checkpoints/vision/gpt/pretrain/1.2/manifest"))
    receipts = _ok(api.get("/v1/receipts", params={"checkpoint": "vision/gpt/pretrain/1.2"}))

    assert [one["sequence"] for one in listed] == [2, 1]
    assert shown["is_latest"]
    assert shown["objects_listed"][0]["path"] == "model.bin"
    assert {"no_hold", "floor_kept"} <= set(why["copies"][0]["gate"]["facts"])
    assert manifest["digest"] == shown["manifest"]
    assert [one["verdict"] for one in receipts["receipts"]] == ["pass"]


def test_pages_of_checkpoints_follow_each_other(api: httpx.Client, world: World) -> None:
    for sequence in range(1, 6):
        world.commit(sequence)

    first = _ok(api.get("/v1/checkpoints", params={"limit": 2}))["checkpoints"]
    second = _ok(api.get("/v1/checkpoints", params={"limit": 2, "skip": 2}))["checkpoints"]

    assert [one["sequence"] for one in first + second] == [5, 4, 3, 2]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/checkpoints/vision/gpt/pretrain/1.9",
        "/v1/checkpoints/vision/gpt/pretrain/one",
        "/v1/why/ghost/gpt/pretrain/1.1",
        "/v1/reports/9",
        "/v1/reports/9.html",
        "/v1/marks/9",
        "/v1/holds?project=ghost",
        "/v1/quarantine?project=ghost",
    ],
)
def test_what_is_not_there_is_404(api: httpx.Client, path: str) -> None:
    assert _ok(api.get(path), 404)["type"] == "not-found"


def test_a_hold_is_placed_and_released_under_the_operators_name(
    api: httpx.Client, world: World
) -> None:
    kept = world.commit(1)
    body = {
        "project": "vision",
        "kind": "milestone",
        "owner": "research",
        "reason": "paper",
        "checkpoint": str(kept.checkpoint),
    }

    placed = _ok(api.post("/v1/holds", json=body), 201)["hold"]
    standing = _ok(api.get("/v1/holds"))["holds"]
    path = f"/v1/holds/vision/{placed['hold_id']}"
    released = _ok(api.delete(path, params={"because": "done"}))["hold"]

    assert [one["hold_id"] for one in standing] == [placed["hold_id"]]
    assert placed["placed_by"] == "operator:token"
    assert released["released_by"] == "operator:token"
    assert _ok(api.delete(path, params={"because": "again"}), 409)["type"] == "conflict"
    assert _ok(api.get("/v1/holds"))["holds"] == []
    assert len(_ok(api.get("/v1/holds", params={"ended": True}))["holds"]) == 1


def test_a_hold_by_selector_takes_quarantined_copies_back(api: httpx.Client, world: World) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    assert world.state(copies[0]) == "quarantined"

    answer = _ok(
        api.post(
            "/v1/holds",
            json={
                "project": "vision",
                "kind": "incident",
                "owner": "oncall",
                "reason": "look at all",
                "selector": {"workload": "gpt"},
            },
        ),
        201,
    )

    assert answer["hold"]["checkpoints"] == 4
    assert len(answer["copies_taken_back"]) == 2
    assert world.state(copies[0]) == "present"


@pytest.mark.parametrize(
    "body",
    [
        {"project": "vision"},
        {"project": "vision", "kind": "whim", "owner": "o", "reason": "r", "checkpoint": "x"},
        {"project": "vision", "kind": "legal", "owner": "o", "reason": "r"},
        {
            "project": "vision",
            "kind": "legal",
            "owner": "o",
            "reason": "r",
            "checkpoint": "vision/gpt/pretrain/1.1",
            "colour": "red",
        },
        {
            "project": "vision",
            "kind": "research",
            "owner": "o",
            "reason": "r",
            "checkpoint": "other/gpt/pretrain/1.1",
        },
    ],
)
def test_a_hold_that_makes_no_sense_is_422(
    api: httpx.Client, world: World, body: dict[str, Any]
) -> None:
    world.commit(1)
    assert _ok(api.post("/v1/holds", json=body), 422)["status"] == 422


def test_quarantine_is_listed_and_undone_until_deletion_begins(
    api: httpx.Client, world: World
) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    world.mark()
    world.sweep()
    listed = _ok(api.get("/v1/quarantine"))["quarantine"]
    body = {"checkpoint": str(copies[0].checkpoint), "because": "needed"}

    undone = _ok(api.post("/v1/quarantine/undo", json=body))
    world.advance(timedelta(hours=2))
    world.mark()
    world.sweep()
    gone = api.post("/v1/quarantine/undo", json={**body, "checkpoint": str(copies[1].checkpoint)})

    assert [one["checkpoint"] for one in listed] == [str(one.checkpoint) for one in copies[:2]]
    assert undone["copies"][0]["state"] == "present"
    assert gone.status_code == 410
    (tombstone,) = _ok(api.get("/v1/tombstones"))["tombstones"]
    assert tombstone["checkpoint"] == str(copies[1].checkpoint)
    assert tombstone["proved_at"] is not None
    assert tombstone["facts"]


def test_marks_policies_stages_and_uploads_are_listed(api: httpx.Client, world: World) -> None:
    for sequence in (1, 2, 3):
        world.commit(sequence)
    world.prepare(9, {"a": b"1"})
    mark_id = world.mark()

    (mark,) = _ok(api.get("/v1/marks"))["marks"]
    shown = _ok(api.get(f"/v1/marks/{mark_id}"))
    (policy,) = _ok(api.get("/v1/policies"))["policies"]
    (stage,) = _ok(api.get("/v1/stages"))["stages"]
    (attempt,) = _ok(api.get("/v1/uploads"))["attempts"]

    assert (mark["mark_id"], mark["candidates"]) == (mark_id, 1)
    assert [one["checkpoint"] for one in shown["listed"]] == ["vision/gpt/pretrain/1.1"]
    assert policy["document"]["name"] == "short"
    assert (stage["present"], stage["proven"], stage["active"]) == (3, 3, True)
    assert (attempt["state"], attempt["incomplete"]) == ("open", False)


def test_reports_and_findings_are_read_and_findings_changed(
    api: httpx.Client, world: World, tmp_path: Any
) -> None:
    world.commit(1)
    (tmp_path / "store" / "stray").write_bytes(b"12345")
    (tmp_path / "store" / "notes").mkdir()
    (tmp_path / "store" / "notes/a").write_bytes(b"123")
    result = _reconciled(world, tmp_path / "reports")

    (summary,) = _ok(api.get("/v1/reports"))["reports"]
    document = _ok(api.get(f"/v1/reports/{summary['report_id']}"))
    page = api.get(f"/v1/reports/{summary['report_id']}.html")
    pages = [_ok(api.get("/v1/findings", params={"limit": 1, "skip": skip})) for skip in range(3)]
    (other,), (finding,), _ = (page["findings"] for page in pages)
    path = f"/v1/findings/{finding['finding']}"
    assigned = _ok(
        api.post(f"{path}/assign", json={"owner": "bob", "deadline": "2099-01-01T00:00:00Z"})
    )
    explained = _ok(api.post(f"{path}/explain", json={"reason": "a probe"}))
    refused = api.post(f"{path}/close")
    (tmp_path / "store" / "stray").unlink()
    closed = _ok(api.post(f"{path}/close"))
    followed = _ok(api.get(path))
    lines = api.get(f"/v1/reports/{summary['report_id']}.csv")
    number = _reconciled(world, tmp_path / "reports")["report_id"]
    changed = _ok(api.get(f"/v1/reports/{summary['report_id']}/diff/{number}"))

    assert summary["passed"] == result["passed"]
    assert document["equation"]["closes"]
    assert "script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert (finding["bytes"], finding["project"]) == (5, "-")
    assert (other["bytes"], [page["more"] for page in pages]) == (3, [True, False, False])
    assert (assigned["finding"]["owner"], assigned["finding"]["deadline"][:4]) == ("bob", "2099")
    assert explained["finding"]["state"] == "explained"
    assert (refused.status_code, refused.json()["type"]) == (409, "finding-stands")
    assert refused.json()["bytes"] == 5
    assert "stray" in refused.json()["detail"]
    assert closed["finding"]["state"] == "closed"
    kinds = [one["kind"] for one in followed["events"]]
    assert kinds == ["opened", "assigned", "explained", "seen", "closed"]
    assert lines.text.splitlines()[0].startswith("project,store,report,")
    assert [one["how"] for one in changed["findings"]] == ["closed"]
    assert next(iter(document)) == "format_version"
    assert _ok(api.get("/v1/reports/schema"))["title"] == "A report of lastgood"
    assert api.post(f"/v1/findings/{uuid4()}/explain", json={"reason": "x"}).status_code == 404


def test_a_stage_is_unblocked_by_a_proven_checkpoint_alone(api: httpx.Client, world: World) -> None:
    proven = world.commit(1)
    world.commit(2, receipt=None)
    world.owner.execute(
        "UPDATE lastgood.stages SET blocked_by = (SELECT receipt FROM lastgood.receipts)"
    )
    path = "/v1/stages/vision/gpt/pretrain/unblock"

    unproven = api.post(path, json={"position": "1.2", "because": "hope"})
    lifted = api.post(path, json={"position": "1.1", "because": "looked at it"})
    again = api.post(path, json={"position": "1.1", "because": "looked at it"})

    assert _ok(unproven, 409)["type"] == "conflict"
    assert _ok(lifted) == {"established": str(proven.checkpoint)} or lifted.status_code == 200
    assert again.status_code == 409
    (stage,) = _ok(api.get("/v1/stages"))["stages"]
    assert (stage["blocked_by"], stage["latest"]) == (None, str(proven.checkpoint))


def test_metrics_count_what_the_catalog_counts(
    api: httpx.Client, world: World, tmp_path: Any
) -> None:
    kept = world.commit(1)
    world.prepare(2, {"a": b"123"}, grant=timedelta(seconds=1))
    world.advance(timedelta(minutes=10))
    (tmp_path / "store" / layout.project_prefix("vision")).joinpath("stray").write_bytes(b"12345")  # type: ignore[arg-type]
    _reconciled(world, tmp_path / "reports")

    answer = api.get("/metrics")

    promtool = shutil.which("promtool")
    if promtool is not None:  # Debian: prometheus
        linted = subprocess.run(
            [promtool, "check", "metrics"],
            input=answer.text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (linted.returncode, linted.stderr) == (0, "")
    lines = dict(
        line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")
    )
    where = 'project="vision",state="{}",store="local"'

    def value(name: str, labels: str) -> float:
        return float(lines[f"lastgood_{name}{{{labels}}}"])

    assert answer.headers["content-type"].startswith("text/plain")
    assert value("checkpoints", where.format("committed")) == 1
    assert value("bytes", where.format("committed")) == kept.stored_bytes
    assert value("checkpoints", where.format("incomplete")) == 1
    assert value("oldest_incomplete_seconds", 'project="vision"') > 500
    assert value("unexplained_bytes", 'project="vision",store="local"') == 5
    assert value("report_passed", 'project="vision",store="local"') == 1
    exposed = 'project="vision",stage="pretrain",workload="gpt"'
    assert 600 <= value("rpo_age_seconds", exposed) < 700
    took = 'percentile="95",step="{}",where="vision"'
    (sealed,) = world.row(
        "SELECT extract(epoch FROM max(recorded_at) FILTER (WHERE to_state = 'committed')"
        " - max(recorded_at) FILTER (WHERE to_state = 'sealed'))::float"
        " FROM lastgood.attempt_transitions"
    )
    assert value("step_seconds", took.format("commit")) == pytest.approx(sealed)
    assert value("step_seconds", took.format("validate-checksum")) >= 0


def test_a_validation_is_asked_for_and_is_due_then(api: httpx.Client, world: World) -> None:
    copy = world.commit(1, receipt=None)
    world.promote({"validate": {"checksum": "never"}})
    path = f"/v1/checkpoints/{copy.checkpoint}/validations"

    asked = api.post(path, json={"level": "format"})

    assert asked.status_code == 202
    assert asked.json()["requested"] == [
        {
            "checkpoint": str(copy.checkpoint),
            "copy_id": copy.copy_id,
            "store": "local",
            "level": "format",
        }
    ]
    assert list(validate.due_levels(world.catalog, PROJECT)) == [copy.copy_id]
    assert api.post(path, json={"level": "thorough"}).status_code == 422
    assert api.post(path, json={"level": "restore"}).status_code == 422
