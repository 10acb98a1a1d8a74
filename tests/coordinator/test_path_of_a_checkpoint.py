"""A checkpoint's way through the runner API: acquire, prepare, send, commit, read."""

from __future__ import annotations

import json
from pathlib import Path

from tests.coordinator.api import RUNNER, Api, bearer, ok, refused, sha256

FILES = {"model/weights.bin": b"w" * 3000, "empty": b"", "optimizer state+%.bin": b"o" * 70_000}


def test_what_was_committed_is_read_back_byte_for_byte(api: Api) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    committed = ok(writer.commit(saved.attempt, saved.manifest))
    assert committed["state"] == "committed"
    assert committed["checkpoint"] == "vision/resnet/pretrain/1.1"
    assert committed["latest"]["id"] == committed["checkpoint"]

    latest = api.latest()
    assert latest["manifest"] == saved.manifest
    assert latest["manifest_digest"] == committed["manifest_digest"]

    reading = ok(api.reader(), 201)
    assert reading["how"] == "endpoint"
    assert [item["path"] for item in reading["objects"]] == sorted(FILES)
    for item in reading["objects"]:
        got = api.client.get(item["url"], headers=bearer(reading["token"]))
        assert (got.status_code, got.content) == (200, FILES[item["path"]])


def test_a_part_answers_its_digest(api: Api) -> None:
    writer = api.writer()
    prepared = ok(writer.prepare(1, FILES), 201)
    sent = ok(writer.put(prepared["attempt"], "model/weights.bin", FILES["model/weights.bin"]))
    assert sent == {
        "path": "model/weights.bin",
        "part": 1,
        "bytes": 3000,
        "sha256": sha256(FILES["model/weights.bin"]),
    }
    status = ok(api.get(f"checkpoints/{prepared['attempt']}", parts=True))
    held = {item["path"]: item["held"] for item in status["parts"]}
    assert held["model/weights.bin"] == [
        {"number": 1, "bytes": 3000, "sha256": sha256(FILES["model/weights.bin"])}
    ]
    assert held["empty"] == []


def test_the_store_tells_by_itself_what_was_committed(api: Api, store_root: Path) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    committed = ok(writer.commit(saved.attempt, saved.manifest))
    prefix = (
        store_root / f"checkpoints/vision/resnet/pretrain/00000001.000000000001/{saved.attempt}"
    )
    content = (prefix / "manifest.json").read_bytes()
    assert sha256(content) == committed["manifest_digest"]
    assert json.loads((prefix / "COMMITTED").read_bytes())["manifest"] == sha256(content)
    control = store_root / "control/stages/vision/resnet/pretrain"
    assert [path.name for path in (control / "generation").iterdir()] == [f"{1:020d}"]
    assert (control / "event").iterdir()


def test_a_range_of_an_object_is_read(api: Api) -> None:
    api.writer().save(1, {"a.bin": bytes(range(256))})
    reading = ok(api.reader(), 201)
    url = reading["objects"][0]["url"]

    def ask(range_: str) -> tuple[int, bytes]:
        got = api.client.get(url, headers={**bearer(reading["token"]), "Range": range_})
        return got.status_code, got.content

    assert ask("bytes=10-19") == (206, bytes(range(10, 20)))
    assert ask("bytes=250-") == (206, bytes(range(250, 256)))
    assert ask("bytes=-3") == (206, bytes(range(253, 256)))
    assert ask("bytes=256-")[0] == 416


def test_the_same_commit_again_gives_the_same_answer_and_another_manifest_none(api: Api) -> None:
    writer = api.writer()
    saved = writer.upload(1, FILES)
    first = ok(writer.commit(saved.attempt, saved.manifest))
    assert ok(writer.commit(saved.attempt, saved.manifest)) == first
    other = {**saved.manifest, "metrics": {"eval/loss": 0.0}}
    refused(writer.commit(saved.attempt, other), 409, "manifest-conflict")


def test_latest_is_an_explicit_none_with_reasons(api: Api) -> None:
    assert api.latest() == {
        "checkpoint": None,
        "reasons": ["nobody has acquired resnet/pretrain yet"],
    }
    api.writer()
    assert api.latest()["reasons"] == ["nothing was committed in vision/resnet/pretrain yet"]


def test_a_new_generation_resumes_from_the_latest(api: Api) -> None:
    first = api.writer()
    assert first.answer["resume"] is None
    first.save(1)
    first.save(2)
    second = api.writer(after=1)
    assert second.answer["resume"]["id"] == "vision/resnet/pretrain/1.2"


def test_a_release_ends_a_generation_and_its_next_is_acquired_after_it(api: Api) -> None:
    writer = api.writer()
    assert ok(api.get("generations", workload="resnet", stage="pretrain"))["active"] is True
    for _ in range(2):
        gone = api.client.delete(f"{RUNNER}/generations/current", headers=bearer(writer.token))
        assert gone.status_code == 204
    assert ok(api.get("generations", workload="resnet", stage="pretrain"))["active"] is False
    refused(writer.post("heartbeats", {}), 409, "fenced-generation")
    assert api.writer(after=1).generation == 2


def test_a_preemption_is_stored_before_the_acquire_that_it_causes(api: Api) -> None:
    api.writer()
    notice = {"supplier": "cloud-a", "grace_seconds": 30}
    body = {
        "workload": "resnet",
        "stage": "pretrain",
        "idempotency_key": "notice-1",
        "notice": notice,
    }
    stored = ok(api.post("preemptions", body), 201)
    assert ok(api.post("preemptions", body), 201) == stored
    refused(api.post("preemptions", {**body, "notice": {}}), 409, "idempotency-conflict")
    assert api.writer(after=1, preemption=stored["preemption"]).generation == 2


def test_health_and_openapi_answer(api: Api) -> None:
    health = ok(api.client.get("/lastgood/health"))
    assert health["status"] == "ok"
    paths = ok(api.client.get("/lastgood/openapi.json"))["paths"]
    assert "/v1/runner/checkpoints/commit" in paths
