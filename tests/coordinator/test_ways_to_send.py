"""The ways in which bytes reach a store: presigned parts, the job's own folder, the endpoint."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import httpx
import pytest

from lastgood.catalog.db import Catalog
from lastgood.flows import overview
from lastgood.flows.jobs import commit, verify
from lastgood.flows.services import Services
from lastgood.rules.manifest_room import manifest_room
from lastgood.stack.ceph import Ceph
from lastgood.stores import hashing, parts
from lastgood.stores.base import Store
from lastgood.stores.hashing import ExpectedObject, VerifiedObject
from lastgood.stores.postgres_database import create_tables
from tests.ceph.attesting import AttestingServer
from tests.ceph.fixtures import environment_of
from tests.conftest import APP_ROLE
from tests.coordinator.api import Api, Writer, bearer, ok, refused, sha256
from tests.coordinator.conftest import CONFIG
from tests.waiting import wait_for

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Config = dict[str, str]
MIB = 1 << 20
WAIT_SECONDS = 60


class TestPresigned:
    """An S3 store: parts go straight to it, and only the coordinator completes an upload."""

    @pytest.fixture
    def bucket(
        self, ceph: Ceph, ceph_bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[str]:
        monkeypatch.setattr(parts, "PART_BYTES", 5 * MIB)
        with environment_of(ceph):
            yield ceph_bucket

    @pytest.fixture
    def config(self, bucket: str) -> dict[str, str]:
        store = f"""\
            name: local
            kind: s3
            bucket: {bucket}
            prefix: jobs
            failure_domain: region-1
            tier: fast
            """
        return {**CONFIG, "stores/local.yaml": store}

    def send(self, writer: Writer, attempt: str, path: str, data: bytes) -> list[str]:
        """Send an object by its presigned parts; answers their digests."""
        pieces = [data[at : at + 5 * MIB] for at in range(0, max(1, len(data)), 5 * MIB)]
        digests = [sha256(piece) for piece in pieces]
        asked: dict[str, Any] = {"path": path, "numbers": list(range(1, len(pieces) + 1))}
        asked["sha256"] = digests  # where nobody needs them, they do no harm
        granted = ok(writer.post(f"checkpoints/{attempt}/grants", {"parts": [asked]}))
        for url in granted["urls"]:
            piece = pieces[url["number"] - 1]
            sent = httpx.put(url["url"], headers=url["headers"], content=piece, timeout=60)
            assert sent.status_code == 200, sent.text
        return digests

    def test_presigned_parts_become_a_checkpoint_that_is_read_by_presigned_urls(
        self, api: Api
    ) -> None:
        files = {"big.bin": os.urandom(11 * MIB), "small.bin": b"s", "none.bin": b""}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        assert prepared["how"] == "presigned"
        slots = {item["path"]: item["parts"] for item in prepared["objects"]}
        assert slots == {"big.bin": 3, "small.bin": 1, "none.bin": 1}
        for path, data in files.items():
            self.send(writer, prepared["attempt"], path, data)
        status = ok(api.get(f"checkpoints/{prepared['attempt']}", parts=True))
        held = {item["path"]: [part["bytes"] for part in item["held"]] for item in status["parts"]}
        assert held["big.bin"] == [5 * MIB, 5 * MIB, 1 * MIB]
        one = ok(api.get(f"checkpoints/{prepared['attempt']}", parts=True, path="small.bin"))
        assert [item["path"] for item in one["parts"]] == ["small.bin"]

        committed = ok(writer.commit(prepared["attempt"], writer.manifest(1, files)))
        assert committed["state"] == "committed"
        reading = ok(api.reader(), 201)
        for item in reading["objects"]:
            assert httpx.get(item["url"], timeout=60).content == files[item["path"]]
        by_way_of_us = api.client.get(
            f"/lastgood/v1/runner/objects/{prepared['attempt']}/small.bin",
            headers=bearer(reading["token"]),
        )
        assert by_way_of_us.status_code == 307
        assert httpx.get(by_way_of_us.headers["location"], timeout=60).content == b"s"

    def test_a_part_that_is_replayed_after_the_commit_changes_nothing(self, api: Api) -> None:
        files = {"a.bin": b"a" * 100}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        asked = [{"path": "a.bin", "numbers": [1]}]
        grants = f"checkpoints/{prepared['attempt']}/grants"
        [url] = ok(writer.post(grants, {"parts": asked}))["urls"]
        assert httpx.put(url["url"], content=files["a.bin"], timeout=60).status_code == 200
        ok(writer.commit(prepared["attempt"], writer.manifest(1, files)))
        assert httpx.put(url["url"], content=b"b" * 100, timeout=60).is_error
        reading = ok(api.reader(), 201)
        assert httpx.get(reading["objects"][0]["url"], timeout=60).content == files["a.bin"]

    def test_wrong_bytes_and_missing_parts_are_named(self, api: Api) -> None:
        files = {"bad.bin": b"a" * 100, "gone.bin": b"b", "short.bin": bytes(6 * MIB)}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        self.send(writer, prepared["attempt"], "bad.bin", b"A" * 100)
        self.send(writer, prepared["attempt"], "short.bin", bytes(5 * MIB))
        answer = writer.commit(prepared["attempt"], writer.manifest(1, files))
        problem = refused(answer, 422, "integrity-failure")
        told = {item["path"]: item["problem"] for item in problem["objects"]}
        assert told == {
            "bad.bin": "digest-mismatch",
            "gone.bin": "missing-object",
            "short.bin": "size-mismatch",
        }

    def test_more_than_a_thousand_parts_and_parts_that_are_not_there_are_refused(
        self, api: Api
    ) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"a.bin": b"a"}), 201)
        grants = f"checkpoints/{prepared['attempt']}/grants"

        def ask(path: str, numbers: list[int]) -> httpx.Response:
            return writer.post(grants, {"parts": [{"path": path, "numbers": numbers}]})

        refused(ask("a.bin", list(range(1001))), 422, "invalid-input")
        refused(ask("a.bin", [2]), 422, "invalid-input")
        refused(ask("b.bin", [1]), 404, "not-found")


class TestVersioned:
    """A bucket with versions: what was committed is one version of each object."""

    config = TestPresigned.config
    send = TestPresigned.send

    @pytest.fixture
    def bucket(self, ceph: Ceph, ceph_versioned_bucket: str) -> Iterator[str]:
        with environment_of(ceph):
            yield ceph_versioned_bucket

    def test_a_later_version_is_neither_verified_nor_read(
        self, api: Api, bucket: str, ceph_client: S3Client
    ) -> None:
        files = {"a.bin": b"a" * 100}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        self.send(writer, prepared["attempt"], "a.bin", files["a.bin"])
        ok(writer.commit(prepared["attempt"], writer.manifest(1, files)))
        [url] = [item["url"] for item in ok(api.reader(), 201)["objects"]]
        key = unquote(urlsplit(url).path).removeprefix(f"/{bucket}/")
        ceph_client.put_object(Bucket=bucket, Key=key, Body=b"something else")
        for reading in (url, *(item["url"] for item in ok(api.reader(), 201)["objects"])):
            assert "versionId=" in reading
            assert httpx.get(reading, timeout=60).content == files["a.bin"]


class TestAttested:
    """An S3 store that was seen to check digests: a part is granted for its own, and the commit
    reads nothing."""

    config = TestPresigned.config
    send = TestPresigned.send

    @pytest.fixture
    def bucket(
        self,
        ceph: Ceph,
        ceph_bucket: str,
        attesting: AttestingServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[str]:
        monkeypatch.setattr(parts, "PART_BYTES", 5 * MIB)
        with environment_of(ceph, attesting.endpoint):
            yield ceph_bucket

    def test_a_part_is_granted_for_its_digest_alone(self, api: Api) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"a.bin": b"right"}), 201)
        assert prepared["part_sha256"]
        grants = f"checkpoints/{prepared['attempt']}/grants"

        def ask(**more: Any) -> httpx.Response:
            return writer.post(grants, {"parts": [{"path": "a.bin", "numbers": [1], **more}]})

        assert "sha256" in refused(ask(), 422, "invalid-input")["detail"]
        refused(ask(sha256=[]), 422, "invalid-input")
        refused(ask(sha256=["no digest"]), 422, "invalid-input")
        (url,) = ok(ask(sha256=[sha256(b"right")]))["urls"]
        assert httpx.put(url["url"], headers=url["headers"], content=b"wrong", timeout=60).is_error
        assert httpx.put(
            url["url"], headers=url["headers"], content=b"right", timeout=60
        ).is_success

    def test_a_commit_reads_nothing_where_it_would_otherwise_leave_that_to_workers(
        self, api: Api, attesting: AttestingServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verify, "INLINE_BYTES", 0)
        files = {"big.bin": os.urandom(11 * MIB), "small.bin": b"s", "none.bin": b""}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        digests = {
            path: self.send(writer, prepared["attempt"], path, data) for path, data in files.items()
        }
        manifest = writer.manifest(1, files)
        for item in manifest["objects"]:
            item |= {"part_bytes": 5 * MIB, "part_sha256": digests[item["path"]]}
        attesting.read_bytes = 0
        assert ok(writer.commit(prepared["attempt"], manifest))["state"] == "committed"
        assert attesting.read_bytes < 20_000  # control keys, and the last byte of each object

    def test_wrong_bytes_and_missing_parts_are_named(self, api: Api) -> None:
        """Wrong bytes do not even arrive; others than the manifest names are told by digest."""
        files = {"bad.bin": b"a" * 100, "gone.bin": b"b"}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        self.send(writer, prepared["attempt"], "bad.bin", b"A" * 100)
        answer = writer.commit(prepared["attempt"], writer.manifest(1, files))
        problem = refused(answer, 422, "integrity-failure")
        told = {item["path"]: item["problem"] for item in problem["objects"]}
        assert told == {"bad.bin": "digest-mismatch", "gone.bin": "missing-object"}


class TestDirect:
    """A file system that jobs and workers share: written in place, verified by reading."""

    FILES = {"rank-0/a.bin": b"a" * 1000, "b.bin": b"b" * 10}  # noqa: RUF012

    @pytest.fixture
    def config(self) -> dict[str, str]:
        store = CONFIG["stores/local.yaml"] + "direct: true\n"
        return {**CONFIG, "stores/local.yaml": store}

    def write(self, prepared: dict[str, Any], files: dict[str, bytes]) -> Path:
        folder = Path(prepared["direct_path"])
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return folder

    def test_what_a_job_wrote_in_place_is_committed_and_made_read_only(self, api: Api) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, self.FILES), 201)
        assert prepared["how"] == "direct"
        assert [item["part_bytes"] for item in prepared["objects"]] == [None, None]
        folder = self.write(prepared, self.FILES)
        ok(writer.commit(prepared["attempt"], writer.manifest(1, self.FILES)))
        modes = {file.stat().st_mode & 0o222 for file in folder.rglob("*")}
        assert modes == {0}
        reading = ok(api.reader(), 201)
        assert reading["direct_path"] == str(folder)

    @pytest.mark.parametrize(
        ("written", "kind", "path"),
        [
            ({"b.bin": b"b" * 9 + b"X"}, "digest-mismatch", "b.bin"),
            ({"b.bin": b"b" * 9}, "size-mismatch", "b.bin"),
            ({"stray.tmp": b"left behind"}, "integrity-failure", "stray.tmp"),
            ({"../COMMITTED": b"{}"}, "integrity-failure", "../COMMITTED"),
            ({"../manifest.json": b"{}"}, "integrity-failure", "../manifest.json"),
        ],
    )
    def test_what_a_job_wrote_wrong_is_named(
        self, api: Api, written: dict[str, bytes], kind: str, path: str
    ) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, self.FILES), 201)
        self.write(prepared, {**self.FILES, **written})
        manifest = writer.manifest(1, self.FILES)
        for _ in range(2):
            problem = refused(writer.commit(prepared["attempt"], manifest), 422, kind)
            assert [item["path"] for item in problem["objects"]] == [path]

    def test_a_link_to_elsewhere_is_no_object(self, api: Api, tmp_path: Path) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"b.bin": b"secret"}), 201)
        (tmp_path / "outside").write_bytes(b"secret")
        (Path(prepared["direct_path"]) / "b.bin").symlink_to(tmp_path / "outside")
        answer = writer.commit(prepared["attempt"], writer.manifest(1, {"b.bin": b"secret"}))
        refused(answer, 422, "missing-object")

    @pytest.mark.parametrize("up", [0, 1])
    def test_a_link_in_the_place_of_a_folder_fails_the_attempt_for_good(
        self, api: Api, catalog: Catalog, tmp_path: Path, up: int
    ) -> None:
        """Or it would stay sealed, and be tried again, for ever."""
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"a.bin": b"a"}), 201)
        folder = self.write(prepared, {"a.bin": b"a"})
        place = [folder, folder.parent][up]
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        commit = writer.commit(prepared["attempt"], writer.manifest(1, {"a.bin": b"a"}))
        [problem] = refused(commit, 422, "integrity-failure")["objects"]
        assert (problem["path"], problem["found"]) == (f"../{place.name}", "a symbolic link")
        assert ok(api.get(f"checkpoints/{prepared['attempt']}"))["state"] == "failed"
        assert verify.pending(catalog) == []

    def test_who_is_woken_while_a_commit_reads_waits_and_reads_nothing_again(
        self, api: Api, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reading, goes_on = threading.Event(), threading.Event()
        read: list[str] = []
        really = hashing._by_reading

        def by_reading(store: Store, one: ExpectedObject, *rest: Any) -> VerifiedObject:
            read.append(one.key)
            reading.set()
            assert goes_on.wait(WAIT_SECONDS)
            return really(store, one, *rest)

        def one_waits() -> bool:
            with services.catalog.transaction() as tx:
                waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                return tx.execute(waits).fetchone() is not None

        monkeypatch.setattr(hashing, "_by_reading", by_reading)
        writer = api.writer()
        prepared = ok(writer.prepare(1, self.FILES), 201)
        self.write(prepared, self.FILES)
        attempt = UUID(prepared["attempt"])
        with ThreadPoolExecutor() as threads:
            inline = threads.submit(
                writer.commit, prepared["attempt"], writer.manifest(1, self.FILES)
            )
            assert reading.wait(WAIT_SECONDS)
            worker = threads.submit(commit.finish, services.catalog, services.stores, attempt)
            wait_for(one_waits, seconds=WAIT_SECONDS)
            goes_on.set()
            assert ok(inline.result())["state"] == worker.result()["state"] == "committed"
        assert len(read) == len(self.FILES)

    def test_what_takes_long_to_read_is_left_to_the_workers(
        self, api: Api, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verify, "INLINE_BYTES", 100)
        writer = api.writer()
        prepared = ok(writer.prepare(1, self.FILES), 201)
        self.write(prepared, self.FILES)
        manifest = writer.manifest(1, self.FILES)
        waiting = ok(writer.commit(prepared["attempt"], manifest), 202)
        assert waiting["state"] == "sealed"
        assert waiting["retry_after_seconds"] == 1
        polled = ok(api.client.get(waiting["poll"], headers=bearer(writer.token)))
        assert (polled["state"], polled["verification"]["objects_verified"]) == ("sealed", 0)
        assert polled["retry_after_seconds"] == 1
        assert api.latest()["checkpoint"] is None
        # The writer may end cleanly: what it sealed is committed all the same.
        attempt = UUID(prepared["attempt"])
        assert verify.pending(services.catalog) == [attempt]
        done = commit.finish(services.catalog, services.stores, attempt)
        assert done["state"] == "committed"
        assert verify.pending(services.catalog) == []
        assert ok(writer.commit(prepared["attempt"], manifest))["state"] == "committed"
        polled = ok(api.client.get(waiting["poll"], headers=bearer(writer.token)))
        assert polled["verification"]["objects_verified"] == 2


class TestEndpoint:
    """A file store behind the coordinator: parts are hashed as they come."""

    def test_an_object_of_several_parts_is_sent_in_any_order(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parts, "PART_BYTES", 3 * MIB)
        data = os.urandom(8 * MIB)
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"big.bin": data}), 201)
        assert prepared["objects"] == [{"path": "big.bin", "part_bytes": 3 * MIB, "parts": 3}]
        pieces = {n: data[(n - 1) * 3 * MIB : n * 3 * MIB] for n in (1, 2, 3)}
        for number in (3, 1, 2, 1):
            ok(writer.put(prepared["attempt"], "big.bin", pieces[number], part=number))
        manifest = writer.manifest(1, {"big.bin": data})
        manifest["objects"][0] |= {
            "part_bytes": 3 * MIB,
            "part_sha256": [sha256(piece) for piece in pieces.values()],
        }
        ok(writer.commit(prepared["attempt"], manifest))
        reading = ok(api.reader(), 201)
        got = api.client.get(reading["objects"][0]["url"], headers=bearer(reading["token"]))
        assert got.content == data

    def test_a_body_that_breaks_off_leaves_no_part(self, api: Api) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"a.bin": bytes(2 * MIB)}), 201)

        def half() -> Iterator[bytes]:
            yield bytes(MIB)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            api.client.put(
                f"/lastgood/v1/runner/objects/{prepared['attempt']}/a.bin?part=1",
                content=half(),
                headers={**bearer(writer.token), "Content-Length": str(2 * MIB)},
            )
        status = ok(api.get(f"checkpoints/{prepared['attempt']}", parts=True))
        assert status["parts"] == [{"path": "a.bin", "held": []}]
        again = writer.put(prepared["attempt"], "a.bin", bytes(2 * MIB))
        for _ in range(50):  # until the server has seen the first one break off
            if again.status_code != 503:
                break
            again = writer.put(prepared["attempt"], "a.bin", bytes(2 * MIB))
        ok(again)


class TestDatabase:
    """A schema of a database: reached through the endpoint, as a file store is."""

    @pytest.fixture
    def config(self, owner_dsn: str, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Config:
        create_tables(owner_dsn, "small_jobs", role=APP_ROLE)
        monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
        store = """\
            name: local
            kind: postgres
            schema: small_jobs
            failure_domain: db-1
            tier: fast
            """
        return {**CONFIG, "stores/local.yaml": store}

    def test_what_was_sent_is_committed_and_read_and_its_place_warned_of(
        self, api: Api, services: Services
    ) -> None:
        files = {"big.bin": os.urandom(3 * MIB), "none.bin": b""}
        writer = api.writer()
        prepared = ok(writer.prepare(1, files), 201)
        assert prepared["how"] == "endpoint"
        for path, data in files.items():
            ok(writer.put(prepared["attempt"], path, data))
        committed = ok(writer.commit(prepared["attempt"], writer.manifest(1, files)))
        assert committed["state"] == "committed"
        reading = ok(api.reader(), 201)
        for item in reading["objects"]:
            got = api.client.get(item["url"], headers=bearer(reading["token"]))
            assert got.content == files[item["path"]]
        assert any(
            "same disk" in alert
            for alert in overview.overview(services.catalog, services.stores).alerts
        )

    def test_wrong_bytes_are_named(self, api: Api) -> None:
        writer = api.writer()
        prepared = ok(writer.prepare(1, {"a.bin": b"a" * 100}), 201)
        ok(writer.put(prepared["attempt"], "a.bin", b"A" * 100))
        answer = writer.commit(prepared["attempt"], writer.manifest(1, {"a.bin": b"a" * 100}))
        refused(answer, 422, "digest-mismatch")


class TestRoom:
    """Admission: an attempt owns its room from prepare on."""

    @pytest.fixture
    def config(self) -> dict[str, str]:
        policy = CONFIG["policies/small.yaml"] + "capacity: {soft: 5kB, hard: 10kB}\n"
        return {**CONFIG, "policies/small.yaml": policy}

    def test_two_jobs_cannot_both_take_the_last_room(self, api: Api, catalog: Catalog) -> None:
        from concurrent.futures import ThreadPoolExecutor

        writers = [api.writer(workload=f"job-{n}") for n in range(4)]
        with ThreadPoolExecutor(4) as threads:
            answers = list(
                threads.map(lambda writer: writer.prepare(1, {"a": bytes(6000)}), writers)
            )
        assert sorted(answer.status_code for answer in answers) == [201, 507, 507, 507]
        full = next(answer for answer in answers if answer.status_code == 507)
        problem = refused(full, 507, "no-room")
        numbers = (problem["asked_bytes"], problem["usage_bytes"], problem["hard_bytes"])
        claimed = 6000 + manifest_room([("a", 1)])
        assert numbers == (claimed, claimed, 10_000)
        assert int(full.headers["retry-after"]) == problem["retry_after_seconds"] > 0
        with catalog.transaction() as tx:
            assert len(tx.execute("SELECT 1 FROM attempts").fetchall()) == 1

    def test_above_hard_an_attempt_goes_to_the_approved_spill_store(
        self, api: Api, catalog: Catalog, tmp_path: Path
    ) -> None:
        from lastgood.flows.settings.apply import apply
        from tests.coordinator.conftest import write_config

        spill = CONFIG["stores/local.yaml"].replace("local", "spill")
        policy = CONFIG["policies/small.yaml"] + "capacity: {hard: 10kB, spill_store: spill}\n"
        policy = policy.replace("hard: 10kB", "soft: 5kB, hard: 10kB")
        changed = {**CONFIG, "stores/spill.yaml": spill, "policies/small.yaml": policy}
        apply(catalog, write_config(tmp_path / "config", changed), actor="operator:test")

        writer = api.writer()
        assert writer.upload(1, {"a": bytes(6000)}).answer["store"] == "local"
        spilled = writer.upload(2, {"a": bytes(6000)})
        assert spilled.answer["store"] == "spill"
        refused(writer.prepare(3, {"a": bytes(6000)}), 507, "no-room")
        ok(writer.commit(spilled.attempt, spilled.manifest))
        reading = ok(api.reader(), 201)
        got = api.client.get(reading["objects"][0]["url"], headers=bearer(reading["token"]))
        assert got.content == bytes(6000)

    def test_what_was_committed_takes_room_instead(self, api: Api, catalog: Catalog) -> None:
        writer = api.writer()
        writer.save(1, {"a": bytes(8000)})
        with catalog.transaction() as tx:
            [row] = tx.execute(
                "SELECT committed_bytes, in_flight_bytes FROM capacity_counters"
                " WHERE project = 'vision'"
            ).fetchall()
        assert row["in_flight_bytes"] == 0
        assert row["committed_bytes"] > 8500  # the manifest takes room, too
        refused(writer.prepare(2, {"a": b"1"}), 507, "no-room")
