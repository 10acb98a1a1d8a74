"""What is wrong is refused with its own problem type, and nothing is committed or lost."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lastgood.catalog.db import Catalog
from lastgood.flows.settings.apply import apply
from lastgood.stack.postgres import EmbeddedPostgres
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.coordinator.api import RUNNER, Api, Writer, bearer, ok, refused
from tests.coordinator.conftest import CONFIG, Server, api_of, write_config

GOOD = {"a.bin": b"a" * 100, "b.bin": b"b" * 200}


@dataclass(frozen=True)
class Serving:
    """A coordinator that the tests share, each with a project of its own."""

    catalog: Catalog
    client: httpx.Client
    root: Path  # of its store


@pytest.fixture(scope="module")
def serving(
    postgres: EmbeddedPostgres, template_catalog: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    name, var = f"catalog_{secrets.token_hex(6)}", tmp_path_factory.mktemp("var")
    postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
    dsn = postgres.dsn(name, APP_ROLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LASTGOOD_VAR", str(var))
        with (
            Catalog(dsn) as catalog,
            Server(dsn) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            yield Serving(catalog, client, var / "stores" / "local")
    postgres.drop_database(name)


@pytest.fixture
def api(serving: Serving, tmp_path: Path) -> Api:
    """A project of the test's own."""
    name = f"vision-{secrets.token_hex(4)}"
    of_project = CONFIG["projects/vision.yaml"].replace("vision", name)
    config = write_config(tmp_path, {**CONFIG, f"projects/{name}.yaml": of_project})
    apply(serving.catalog, config, actor="operator:test")
    return api_of(serving.catalog, serving.client, name)


@pytest.fixture
def other_api(serving: Serving, api: Api) -> Api:
    """The project `other`, which shares the store."""
    return api_of(serving.catalog, serving.client, "other")


@pytest.fixture
def client(serving: Serving) -> httpx.Client:
    return serving.client


@pytest.fixture
def writer(api: Api) -> Writer:
    """A generation with one good checkpoint, which has to survive whatever is tried."""
    writer = api.writer()
    writer.save(1, GOOD)
    return writer


@pytest.fixture(autouse=True)
def _nothing_is_committed_or_lost(writer: Writer, serving: Serving) -> Any:
    before, project = writer.api.latest(), writer.api.project
    yield
    assert writer.api.latest() == before
    with serving.catalog.transaction() as tx:
        committed = "SELECT count(*) FROM checkpoints WHERE project = %s"
        assert [row["count"] for row in tx.execute(committed, (project,))] == [1]
    markers = list(serving.root.glob(f"checkpoints/{project}/**/COMMITTED"))
    assert len(markers) == 1
    reading = ok(writer.api.reader(), 201)
    for item in reading["objects"]:
        got = writer.api.client.get(item["url"], headers=bearer(reading["token"]))
        assert got.content == GOOD[item["path"]]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("../escape", "path-traversal"),
        ("a/../../b", "path-traversal"),
        ("a//b", "path-traversal"),
        ("./a", "path-traversal"),
        ("/etc/passwd", "path-absolute"),
        ("nul\0byte", "path-control-character"),
        ("line\nbreak", "path-control-character"),
        ("n" * 2000, "path-too-long"),
        ("", "path-traversal"),
        (7, "invalid-path"),
    ],
)
def test_a_hostile_path_is_refused_at_prepare_and_in_the_manifest(
    writer: Writer, path: object, kind: str
) -> None:
    objects = [{"path": "good.bin", "bytes": 1}, {"path": path, "bytes": 1}]
    problem = refused(writer.prepare(2, {}, objects=objects), 422, kind)
    assert problem["where"] == "$.objects[1].path"

    saved = writer.upload(2, {"good.bin": b"1"}, idempotency_key="again")
    manifest = json.loads(json.dumps(saved.manifest))
    manifest["objects"][0]["path"] = path
    problem = refused(writer.commit(saved.attempt, manifest), 422, kind)
    assert problem["where"] == "$.objects[0].path"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("..%2Fescape", "path-traversal"),
        ("%2Fabsolute", "path-absolute"),
        ("n" * 2000, "path-too-long"),
    ],
)
def test_a_hostile_path_is_refused_in_a_url(writer: Writer, path: str, kind: str) -> None:
    saved = writer.upload(2, {"good.bin": b"1"})
    url = f"{writer.api.client.base_url}{RUNNER}/objects/{saved.attempt}/{path}?part=1"
    refused(writer.api.client.put(url, content=b"1", headers=bearer(writer.token)), 422, kind)


def test_a_path_named_twice_is_refused(writer: Writer) -> None:
    twice = [{"path": "a", "bytes": 1}, {"path": "a", "bytes": 2}]
    refused(writer.prepare(2, {}, objects=twice), 422, "path-duplicate")
    below = [{"path": "a", "bytes": 1}, {"path": "a/b", "bytes": 2}]
    refused(writer.prepare(2, {}, objects=below), 422, "path-duplicate")


@pytest.mark.parametrize("size", [-1, 1.5, "100", True, None, 2**63])
def test_a_size_that_is_none_is_refused(writer: Writer, size: object) -> None:
    objects = [{"path": "a", "bytes": size}]
    problem = refused(writer.prepare(2, {}, objects=objects), 422, "size-invalid")
    assert problem["where"] == "$.objects[0].bytes"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sequence": -1}, "$.sequence"),
        ({"sequence": "2"}, "$.sequence"),
        ({"step": 1.5}, "$.step"),
        ({"kind": "partial"}, "$.kind"),
        ({"colour": "red"}, "$.colour"),
        ({"objects": "all"}, "$.objects"),
        ({"objects": []}, "$.objects"),
        ({"objects": [{"path": "a", "bytes": 1, "mode": 7}]}, "$.objects[0].mode"),
        ({"objects": [{"path": "a", "bytes": 1, "sha256": "xyz"}]}, "$.objects[0].sha256"),
        ({"idempotency_key": ""}, "$.idempotency_key"),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_its_json_path(
    writer: Writer, change: dict[str, Any], where: str
) -> None:
    body = {
        "sequence": 2,
        "step": 2,
        "idempotency_key": "k",
        "objects": [{"path": "a", "bytes": 1}],
    }
    answer = writer.post("checkpoints/prepare", {**body, **change})
    problem = refused(answer, 422, "invalid-input")
    assert problem["where"] == where


def test_a_body_that_is_no_json_is_refused(writer: Writer) -> None:
    for path in ("checkpoints/prepare", "checkpoints/commit"):
        answer = writer.api.client.post(
            f"{RUNNER}/{path}",
            content=b"{not json",
            headers={**bearer(writer.token), "Content-Type": "application/json"},
        )
        refused(answer, 422, "invalid-input")


@pytest.mark.parametrize(
    ("change", "kind", "where"),
    [
        ({"format_version": 2}, "unknown-manifest-version", "$.format_version"),
        ({"project": "other"}, "bad-manifest", "$.project"),
        ({"stage": "sft"}, "bad-manifest", "$.stage"),
        ({"generation": 2}, "bad-manifest", "$.generation"),
        ({"sequence": 3}, "bad-manifest", "$.sequence"),
        ({"step": 3}, "bad-manifest", "$.step"),
        ({"objects": []}, "bad-manifest", "$.objects"),
        ({"final": "yes"}, "bad-manifest", "$.final"),
        ({"extra": 1}, "bad-manifest", "$"),
        ({"dependencies": ["0" * 64]}, "bad-manifest", "$.dependencies[0]"),
        (
            {"resumed_from": {"generation": 1, "sequence": 0, "manifest": "0" * 64}},
            "bad-manifest",
            "$.resumed_from",
        ),
    ],
)
def test_a_manifest_that_is_not_this_attempts_is_refused(
    writer: Writer, change: dict[str, Any], kind: str, where: str
) -> None:
    saved = writer.upload(2, GOOD)
    problem = refused(writer.commit(saved.attempt, {**saved.manifest, **change}), 422, kind)
    assert problem["where"] == where


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"a.bin": b"a" * 100}, "$.objects"),
        ({**GOOD, "c.bin": b""}, "$.objects[2].path"),
        ({"a.bin": b"a" * 99, "b.bin": b"b" * 200}, "$.objects[0].bytes"),
    ],
)
def test_a_manifest_with_other_objects_than_were_prepared_is_refused(
    writer: Writer, files: dict[str, bytes], where: str
) -> None:
    saved = writer.upload(2, GOOD)
    problem = refused(writer.commit(saved.attempt, writer.manifest(2, files)), 422, "bad-manifest")
    assert problem["where"] == where


def test_a_digest_that_was_declared_cannot_change(writer: Writer) -> None:
    objects = [{"path": "a", "bytes": 1, "sha256": "0" * 64}]
    saved = writer.upload(2, {"a": b"1"}, objects=objects)
    problem = refused(writer.commit(saved.attempt, saved.manifest), 422, "bad-manifest")
    assert problem["where"] == "$.objects[0].sha256"


def test_a_flipped_byte_fails_the_attempt_and_names_the_object(writer: Writer) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    ok(writer.put(prepared["attempt"], "a.bin", b"a" * 99 + b"A"))
    ok(writer.put(prepared["attempt"], "b.bin", GOOD["b.bin"]))
    manifest = writer.manifest(2, GOOD)
    problem = refused(writer.commit(prepared["attempt"], manifest), 422, "digest-mismatch")
    assert [item["path"] for item in problem["objects"]] == ["a.bin"]
    # Asked again, it says the same; and the bytes stay as evidence.
    again = refused(writer.commit(prepared["attempt"], manifest), 422, "digest-mismatch")
    assert again["objects"] == problem["objects"]
    status = ok(writer.api.get(f"checkpoints/{prepared['attempt']}"))
    assert (status["state"], status["reason"]) == ("failed", "integrity")


def test_a_missing_object_fails_the_attempt(writer: Writer) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    ok(writer.put(prepared["attempt"], "b.bin", GOOD["b.bin"]))
    manifest = writer.manifest(2, GOOD)
    problem = refused(writer.commit(prepared["attempt"], manifest), 422, "missing-object")
    assert [item["path"] for item in problem["objects"]] == ["a.bin"]


def test_an_object_cut_short_in_the_store_fails_the_attempt(
    writer: Writer, serving: Serving
) -> None:
    others = set(serving.root.glob(".uploads/*/data"))
    saved = writer.upload(2, GOOD)
    ours = set(serving.root.glob(".uploads/*/data")) - others
    data = max(ours, key=lambda file: file.stat().st_size)
    with data.open("r+b") as file:
        file.truncate(150)
    problem = refused(writer.commit(saved.attempt, saved.manifest), 422, "size-mismatch")
    assert [item["path"] for item in problem["objects"]] == ["b.bin"]


def test_every_bad_object_is_named_with_what_is_wrong(writer: Writer) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    ok(writer.put(prepared["attempt"], "a.bin", b"A" * 100))
    problem = refused(
        writer.commit(prepared["attempt"], writer.manifest(2, GOOD)), 422, "integrity-failure"
    )
    told = {item["path"]: item["problem"] for item in problem["objects"]}
    assert told == {"a.bin": "digest-mismatch", "b.bin": "missing-object"}


@pytest.mark.parametrize(
    ("part", "data", "status", "kind"),
    [
        (1, b"a" * 99, 422, "invalid-input"),
        (1, b"a" * 101, 422, "invalid-input"),
        (2, b"a" * 100, 422, "invalid-input"),
        (0, b"a" * 100, 422, "invalid-input"),
    ],
)
def test_a_part_of_another_size_or_number_is_refused(
    writer: Writer, part: int, data: bytes, status: int, kind: str
) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    refused(writer.put(prepared["attempt"], "a.bin", data, part=part), status, kind)


def test_a_part_without_a_length_is_refused(writer: Writer) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    answer = writer.api.client.put(
        f"{RUNNER}/objects/{prepared['attempt']}/a.bin",
        content=iter([b"a" * 100]),
        headers=bearer(writer.token),
    )
    refused(answer, 411, "length-required")


def test_a_stale_sequence_is_refused(writer: Writer) -> None:
    problem = refused(writer.prepare(1, GOOD, idempotency_key="other"), 409, "stale-sequence")
    assert (problem["current"], problem["asked"]) == ("1.1", "1.1")
    refused(writer.prepare(0, GOOD), 409, "stale-sequence")


def test_two_attempts_never_share_a_sequence(writer: Writer) -> None:
    ok(writer.prepare(2, GOOD, idempotency_key="one"), 201)
    refused(writer.prepare(2, GOOD, idempotency_key="two"), 409, "attempt-state")


def test_an_idempotency_key_means_one_request(writer: Writer) -> None:
    first = ok(writer.prepare(2, GOOD), 201)
    again = ok(writer.prepare(2, GOOD), 201)
    assert again["attempt"] == first["attempt"]
    assert again["fencing_token"] == first["fencing_token"]
    refused(writer.prepare(2, {"a.bin": b"1"}), 409, "idempotency-conflict")


def test_another_projects_token_finds_nothing(writer: Writer, other_api: Api) -> None:
    prepared = ok(writer.prepare(2, GOOD), 201)
    attempt = prepared["attempt"]
    stranger = other_api.writer()
    refused(other_api.get(f"checkpoints/{attempt}"), 404, "not-found")
    refused(stranger.put(attempt, "a.bin", GOOD["a.bin"]), 404, "not-found")
    refused(stranger.post(f"checkpoints/{attempt}/grants", {}), 404, "not-found")
    refused(stranger.commit(attempt, writer.manifest(2, GOOD)), 404, "not-found")
    refused(stranger.post("heartbeats", {"attempt": attempt}), 404, "not-found")
    other_latest = ok(other_api.get("checkpoints/latest", workload="resnet", stage="pretrain"))
    assert other_latest["checkpoint"] is None
    refused(other_api.reader(f"{writer.api.project}/resnet/pretrain/1.1"), 422, "invalid-input")
    refused(other_api.reader("resnet/pretrain/1.1"), 404, "not-found")


def test_each_token_opens_only_its_own_routes(writer: Writer) -> None:
    api = writer.api
    saved = writer.upload(2, GOOD)
    reading = ok(api.reader(), 201)
    for token in (saved.fencing_token, reading["token"], writer.token):
        refused(
            api.client.get(
                f"{RUNNER}/generations",
                params={"workload": "resnet", "stage": "pretrain"},
                headers=bearer(token),
            ),
            401,
            "unauthenticated",
        )
    for token in (api.key, saved.fencing_token, reading["token"]):
        refused(writer.post("heartbeats", {}, token), 401, "unauthenticated")
    other = ok(writer.prepare(3, GOOD), 201)
    refused(
        writer.put(other["attempt"], "a.bin", GOOD["a.bin"], token=saved.fencing_token),
        404,
        "not-found",
    )
    refused(
        api.client.get(reading["objects"][0]["url"], headers=bearer(api.key)),
        401,
        "unauthenticated",
    )


def test_no_token_and_an_unknown_token_are_refused(api: Api) -> None:
    bare = api.client.get(f"{RUNNER}/generations?workload=a&stage=b")
    problem = refused(bare, 401, "unauthenticated")
    assert bare.headers["www-authenticate"] == "Bearer"
    assert "Bearer" in problem["detail"]
    refused(
        api.get("generations", token="lg_guess", workload="a", stage="b"), 401, "unauthenticated"
    )


def test_an_unknown_place_and_method_are_problems_too(client: httpx.Client) -> None:
    refused(client.get("/lastgood/v1/runner/nowhere"), 404, "not-found")
    refused(client.patch("/lastgood/v1/runner/generations"), 405, "method-not-allowed")


def sent(writer: Writer, path: str, body: str, token: str) -> httpx.Response:
    """A body as it is, with what the client's own encoder would refuse."""
    headers = {**bearer(token), "Content-Type": "application/json"}
    return writer.api.client.post(f"{RUNNER}/{path}", content=body, headers=headers)


@pytest.mark.parametrize(
    ("path", "changes", "where"),
    [
        ("checkpoints/prepare", {"idempotency_key": "a\0b"}, "$.idempotency_key"),
        ("generations", {"idempotency_key": "a\0b"}, "$.idempotency_key"),
        ("generations", {"holder": "a\0b"}, "$.holder"),
        ("generations", {"class": "a\0b"}, "$.class"),
        ("generations", {"workload": "\ud800"}, "workload"),
        ("preemptions", {"notice": {"at": float("nan")}}, "$.notice.at"),
        ("preemptions", {"notice": {"at": "\ud800"}}, "$.notice.at"),
        ("preemptions", {"notice": {"at": "\0"}}, "the request"),
        ("preemptions", {"notice": {"at": "x" * 100_000}}, "$.notice.at"),
        ("readers", {"reader": "a\0b"}, "$.reader"),
    ],
)
def test_text_that_the_catalog_cannot_keep_is_refused(
    writer: Writer, path: str, changes: dict[str, Any], where: str
) -> None:
    stage: dict[str, Any] = {"workload": writer.workload, "stage": writer.stage}
    key: dict[str, Any] = {"idempotency_key": "k"}
    bodies = {
        "checkpoints/prepare": {**key, "sequence": 2, "step": 2, "objects": []},
        "generations": {**stage, **key, "after": 1, "holder": "h"},
        "preemptions": {**stage, **key, "notice": {}},
        "readers": {**stage, "reader": "r"},
    }
    token = writer.token if path == "checkpoints/prepare" else writer.api.key
    answer = sent(writer, path, json.dumps({**bodies[path], **changes}), token)
    assert answer.status_code == 422, answer.text
    assert answer.json()["where"] == where


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"metrics": {"a\0b": 1.0}}, "$.metrics['a\\x00b']"),
        ({"restore": {"contract": "a\0b", "parameters": {}}}, "$.restore.contract"),
        ({"outputs": ["a\0b"]}, "$.outputs[0]"),
    ],
)
def test_a_manifest_with_a_nul_is_refused_before_it_is_sealed(
    writer: Writer, changes: dict[str, Any], where: str
) -> None:
    saved = writer.upload(2, GOOD)
    bad = {**saved.manifest, **changes}
    assert refused(writer.commit(saved.attempt, bad), 422, "bad-manifest")["where"] == where
    assert ok(writer.api.get(f"checkpoints/{saved.attempt}"))["state"] == "open"


def test_sizes_whose_sum_no_counter_holds_are_refused(writer: Writer) -> None:
    objects = [{"path": f"{number}", "bytes": 2**53 - 1} for number in range(2000)]
    problem = refused(writer.prepare(2, {}, objects=objects), 422, "size-invalid")
    assert problem["where"] == "$.objects"


def test_a_lone_surrogate_in_a_path_is_refused(writer: Writer) -> None:
    objects = [{"path": "\ud800", "bytes": 1}]
    body = {"sequence": 2, "step": 2, "idempotency_key": "k", "objects": objects}
    answer = sent(writer, "checkpoints/prepare", json.dumps(body), writer.token)
    assert refused(answer, 422, "invalid-path")["path"] == "\\ud800"
