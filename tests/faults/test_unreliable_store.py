"""A store that refuses a key, answers slowly, fails halfway or lies about success: what became of
each key is recorded, counted, tried again and reported, and no tombstone closes on a lie."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from lastgood.catalog import locks
from lastgood.catalog.auditing import certificates
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.sweeping import tombstones
from lastgood.flows.auditing import audit
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.stores.file import FileStore
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from tests.faults.unreliable import Faults, UnreliableStore
from tests.retention.world import PROJECT, World, opened

GRACE = timedelta(hours=1)
KEYS = 5  # marker, three objects, manifest


@pytest.fixture
def store(tmp_path: Path) -> UnreliableStore:
    root = tmp_path / "store"
    root.mkdir()
    return UnreliableStore(FileStore("local", root))


@pytest.fixture
def world(
    catalog_dsn: str, owner_dsn: str, tmp_path: Path, store: UnreliableStore
) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path, store=store) as found:  # type: ignore[arg-type]
        yield found


def due(world: World) -> Copy:
    """A copy of three objects whose grace is over, under a fresh mark."""
    old = world.commit(1, {"a.bin": b"aaaa", "b.bin": b"bb", "deep/c.bin": b"c"})
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    world.advance(GRACE)
    world.mark()
    return old


def answers(world: World) -> dict[str, list[str]]:
    """Every recorded outcome of each key, in order, by the end of the key."""
    rows = world.owner.execute(
        "SELECT key, outcome FROM lastgood.tombstone_keys ORDER BY number"
    ).fetchall()
    found: dict[str, list[str]] = {}
    for key, outcome in rows:
        found.setdefault(key.rpartition("/")[2], []).append(outcome)
    return found


def certified(world: World, copy: Copy) -> bool:
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_copy(tx, PROJECT, copy.copy_id)
        assert tombstone is not None
        certificate = certificates.of_tombstone(tx, PROJECT, tombstone.tombstone_id)
        assert (certificate is None) == (tombstone.proof is None)
    return certificate is not None


FAULTS: dict[str, tuple[Faults, str, dict[str, list[str]]]] = {
    "it refuses the marker": (
        Faults(refuses="COMMITTED"),
        "access denied",
        {"COMMITTED": ["refused", "gone"], "b.bin": ["gone"]},
    ),
    "it refuses an object": (
        Faults(refuses="b.bin"),
        "access denied",
        {"b.bin": ["refused", "gone"], "c.bin": ["gone"]},
    ),
    "it refuses the manifest": (
        Faults(refuses="manifest.json"),
        "access denied",
        {"manifest.json": ["refused", "gone"]},
    ),
    "it fails before the first key": (
        Faults(breaks_after=0),
        "connection reset",
        {"COMMITTED": ["gone"], "manifest.json": ["gone"]},
    ),
    "it fails halfway": (
        Faults(breaks_after=3),
        "connection reset",
        {"b.bin": ["gone"], "c.bin": ["gone"]},
    ),
    "it says that an object is gone and has it": (
        Faults(keeps="b.bin"),
        "it is there after its deletion",
        {"b.bin": ["gone", "refused", "gone"], "a.bin": ["gone"]},
    ),
    "it says that the marker is gone and has it": (
        Faults(keeps="COMMITTED"),
        "it is there after its deletion",
        {"COMMITTED": ["gone", "refused", "gone"]},
    ),
    "its listing ends early": (
        Faults(cuts="/00000001.000000000001/"),
        "is not whole",
        {"b.bin": ["gone"]},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_proven_until_the_store_does_what_it_says(
    world: World, store: UnreliableStore, fault: str
) -> None:
    faults, told, outcomes = FAULTS[fault]
    old = due(world)
    before = world.row("SELECT committed_bytes FROM lastgood.capacity_counters")
    store.faults = faults

    summaries = [world.sweep(), world.sweep()]

    for summary in summaries:
        assert told in str(summary["failed"]), summary
        assert summary["deleted"] == 0
    assert world.state(old) == "deleting"
    assert not certified(world, old)
    assert world.row("SELECT committed_bytes FROM lastgood.capacity_counters") == before
    assert audit.run(world.catalog).breaks == []

    store.faults = Faults()
    assert world.sweep()["failed"] == {}
    assert world.state(old) == "deleted"
    assert certified(world, old)
    assert list(store.list(old.prefix)) == []
    found = answers(world)
    assert len(found) == KEYS
    for key, expected in outcomes.items():
        shortened = [one for at, one in enumerate(found[key]) if found[key][at - 1 : at] != [one]]
        if expected.count("gone") == 2:  # each try of a liar adds a pair
            assert shortened[:2] == ["gone", "refused"]
            assert shortened[-1] == "gone"
        else:
            assert shortened == expected, (key, found)
    with world.catalog.transaction() as tx:
        tombstone = tombstones.of_copy(tx, PROJECT, old.copy_id)
        assert tombstone is not None
        counted = tombstones.outcomes(tx, tombstone)
    assert (counted.refused, counted.freed_bytes) == (0, old.stored_bytes)
    assert audit.run(world.catalog).breaks == []


def test_what_a_listing_leaves_out_is_found_by_its_name(
    world: World, store: UnreliableStore
) -> None:
    """Only where the bytes can be seen by their name: what is hidden, only a listing shows."""
    store.faults.hides_nothing = True
    old = due(world)
    store.faults = Faults(omits="b.bin", keeps="b.bin")
    for _ in range(2):
        assert "b.bin" in str(world.sweep()["failed"])
        assert world.state(old) == "deleting"
        assert not certified(world, old)
    store.faults = Faults(omits="b.bin")
    world.sweep()
    assert world.state(old) == "deleted"
    root: Path = store.root
    assert not list(root.rglob("b.bin"))
    assert audit.run(world.catalog).breaks == []


def test_a_store_that_only_says_that_it_hid_a_copy_shows_it_to_nobody_and_deletes_it_in_time(
    world: World, store: UnreliableStore
) -> None:
    store.faults.hides_nothing = True
    old = due(world)
    assert set(world.keys(old).values()) == {False}
    assert world.sweep()["deleted"] == 1
    assert list(store.list(old.prefix)) == []


def test_a_newer_checkpoint_that_reads_otherwise_justifies_no_deletion(
    world: World, store: UnreliableStore
) -> None:
    old, between, newest = (world.commit(sequence) for sequence in (1, 2, 3))
    world.mark()
    store.faults.answers = {
        layout.manifest_key(copy.prefix): b'{"other": "bytes"}' for copy in (between, newest)
    }
    told = world.sweep()
    assert told["quarantined"] == 0
    assert "newer_present" in told["reasons"][str(old.checkpoint)]
    assert world.state(old) == "present"

    store.faults.answers = {layout.object_key(newest.prefix, "model.bin"): b"other bytes"}
    found = validate.run(world.catalog, world.stores, newest.copy_id)
    assert found["verdict"] == "fail"
    world.mark()
    assert world.sweep()["quarantined"] == 0
    assert world.state(old) == "present"


def test_a_slow_store_holds_up_neither_commits_nor_the_deletion_of_others(
    world: World, store: UnreliableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "CARRYING_OUT_SECONDS", 1)
    world.promote({"roles": {"hot": {"keep": "newest", "count": 1}}})
    slow = due(world)
    store.faults.slow = f"{slow.prefix}objects/b.bin"
    told: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: told.append(world.sweep()))
    waiting.start()
    assert store.reached.wait(60)

    newer = world.commit(4)
    beside = world.sweep()

    assert world.state(newer) == "present"
    assert any(str(slow.checkpoint) in what for what in beside["failed"]), beside
    assert world.state(slow) == "deleting"
    store.go_on.set()
    waiting.join(60)
    assert world.state(slow) == "deleted"
    assert certified(world, slow)
    with world.catalog.transaction() as tx:
        (stage_id,) = world.row("SELECT stage_id FROM lastgood.stages")
        chain = tombstones.of_stage(tx, PROJECT, stage_id)
    assert len(chain) == 2
    assert all(one.proof is not None for one in chain)


class _Refusing:
    """Lets S3 refuse to delete some keys, as a policy of the bucket would."""

    def __init__(self, client: Any) -> None:
        self.refused = ""
        self._client = client
        client.meta.events.register("before-call.s3.DeleteObjects", self._note)
        client.meta.events.register("before-send.s3.DeleteObjects", self._answer)
        self._asked: list[dict[str, str]] = []

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        from xml.etree import ElementTree

        root = ElementTree.fromstring(params["body"])
        space = root.tag.partition("}")[0] + "}" if "}" in root.tag else ""
        self._asked = [
            {child.tag.removeprefix(space): child.text or "" for child in one}
            for one in root.iter(f"{space}Object")
        ]

    def _answer(self, request: Any, **_: Any) -> AWSResponse | None:
        if not self.refused or not any(one["Key"].endswith(self.refused) for one in self._asked):
            return None
        told = []
        bucket = request.url.split("?")[0].rstrip("/").rpartition("/")[2]
        for one in self._asked:
            version = f"<VersionId>{one['VersionId']}</VersionId>" if "VersionId" in one else ""
            if one["Key"].endswith(self.refused):
                error = "<Code>AccessDenied</Code><Message>by policy</Message>"
                told.append(f"<Error><Key>{one['Key']}</Key>{version}{error}</Error>")
            else:
                named = {name: value for name, value in one.items() if name != "Quiet"}
                self._client.delete_object(Bucket=bucket, **named)
                told.append(f"<Deleted><Key>{one['Key']}</Key>{version}</Deleted>")
        body = f"<DeleteResult>{''.join(told)}</DeleteResult>".encode()
        return AWSResponse(request.url, 200, {}, _Raw(body))


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body

    def read(self, *_: object) -> bytes:
        return self._body


@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_a_key_that_s3_refuses_to_delete_stays_counted_until_it_does_not(
    moto_s3: str, catalog_dsn: str, owner_dsn: str, tmp_path: Path, versioned: bool
) -> None:
    client = prepared(boto3.client("s3", endpoint_url=moto_s3, config=CONFIG))
    bucket = f"refusing-{'v' if versioned else 'u'}"
    client.create_bucket(Bucket=bucket)
    if versioned:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    policy = _Refusing(client)
    with opened(catalog_dsn, owner_dsn, tmp_path, S3Store("local", client, bucket, "at")) as world:
        old = due(world)
        policy.refused = "b.bin"
        for _ in range(2):
            assert "by policy" in str(world.sweep()["failed"])
        assert world.state(old) == "deleting"
        assert not certified(world, old)
        left = world.store.list(old.prefix, versions=versioned)  # type: ignore[arg-type]
        assert {one.key.rpartition("/")[2] for one in left} == {"b.bin"}
        policy.refused = ""
        assert world.sweep()["failed"] == {}
        assert world.state(old) == "deleted"
        assert certified(world, old)
        assert answers(world)["b.bin"][-1] == "gone"
        assert "refused" in answers(world)["b.bin"]
        assert audit.run(world.catalog).breaks == []
