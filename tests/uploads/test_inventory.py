"""The inventory of incomplete uploads: what it takes in, how each goes on, and how each ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lastgood.catalog import history
from lastgood.catalog.jobs import attempt_objects
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.reconciliation import findings
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project
from lastgood.rules import layout
from lastgood.rules.copy_locks import ASK_AGAIN_AFTER
from lastgood.stores.base import Key, Prefix, UploadGone
from lastgood.stores.s3 import S3Store
from tests.factories import upload_object
from tests.retention.world import PROJECT, World, opened
from tests.uploads.writers import ABORT_AFTER, attempt_id, begin, clean, inventory
from tests.uploads.writers import history as history_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LEASE = timedelta(minutes=15)
DEADLINE = timedelta(days=3)
NOBODYS = Key("checkpoints/vision/someone/else.bin")


def left(world: World) -> list[str]:
    return [one.key for one in world.store.uploads(Prefix(""))]


def test_an_upload_is_an_entry_with_all_that_is_known_of_it(world: World) -> None:
    begun = begin(world).send("a.bin")
    extra = world.store.create_upload(begun.key("b.bin"), 32)
    world.advance(LEASE)
    clean(world)
    found = {one.upload_id: one for one in inventory(world)}
    assert set(found) == {*begun.uploads.values(), extra}
    one = found[begun.uploads["a.bin"]]
    assert (one.project, one.store, one.key) == (PROJECT, "local", begun.key("a.bin"))
    assert (one.attempt_id, one.owner) == (begun.attempt.attempt_id, "trainer")
    assert (one.parts, one.part_bytes, one.tries) == (1, 64, 0)
    assert one.initiated_at is not None
    assert one.listed_at == one.first_seen_at
    assert one.lease_expires_at == begun.attempt.lease_expires_at
    assert (one.state, one.proof) == ("waiting", None)
    assert "no live lease since" in one.reason


def test_what_only_the_coordinator_recorded_is_an_entry_too(world: World) -> None:
    begun = begin(world)
    with world.catalog.transaction() as tx:
        tx.execute("UPDATE attempt_objects SET upload_id = %s WHERE path = 'b.bin'", ("f" * 32,))
    world.store.abort_upload(begun.key("b.bin"), begun.uploads["b.bin"])
    world.advance(LEASE)
    clean(world)
    found = {one.upload_id: one for one in inventory(world)}
    assert (found["f" * 32].source, found["f" * 32].part_bytes) == ("recorded", None)
    assert found[begun.uploads["a.bin"]].source == "listed"
    world.advance(ABORT_AFTER)
    clean(world)
    assert {one.state for one in inventory(world)} == {"gone"}


def test_files_that_a_job_wrote_itself_are_an_entry_where_there_are_no_uploads(
    direct_world: World,
) -> None:
    begun = begin(direct_world)
    folder = Path(
        direct_world.store.direct_path(Prefix(f"{begun.attempt.prefix}{layout.OBJECTS_NAME}"))
    )
    (folder / "a.bin").write_bytes(b"a" * 64)
    (folder / "core.1234").write_bytes(b"x" * 1000)
    direct_world.advance(LEASE)
    clean(direct_world)
    (entry,) = begun.entries()
    assert (entry.upload_id, entry.key) == ("", begun.attempt.prefix)
    assert (entry.parts, entry.part_bytes, entry.state) == (2, 1064, "waiting")
    direct_world.advance(ABORT_AFTER)
    assert clean(direct_world)["closed"] == 1
    (entry,) = begun.entries()
    assert (entry.state, entry.part_bytes) == ("gone", 0)
    assert not folder.exists()


def test_each_step_is_a_row_up_to_the_proof(world: World) -> None:
    begun = begin(world).send()
    world.advance(LEASE)
    clean(world)
    world.advance(ABORT_AFTER)
    told = clean(world)
    assert (told["closed"], told["freed_bytes"], told["incomplete_uploads"]) == (1, 96, 0)
    for entry in begun.entries():
        assert history_of(world, entry) == [
            ("state", "waiting"),
            ("state", "fenced"),
            ("state", "aborting"),
            ("try", "gone"),
            ("state", "gone"),
        ]
        assert entry.proof is not None
        assert entry.proof["uploads_left"] == 0
        assert entry.proof["listed_at"] > begun.attempt.grant_expires_at.isoformat()
    assert left(world) == []


def test_a_writer_that_comes_back_leaves_the_inventory(world: World) -> None:
    begun = begin(world).send()
    world.advance(LEASE)
    clean(world)
    world.owner.execute(
        "UPDATE lastgood.attempts SET lease_expires_at = lastgood.catalog_clock() + '1 hour'"
    )
    clean(world)
    assert {one.state for one in begun.entries()} == {"continued"}
    begun.commit()
    world.advance(timedelta(days=2))
    clean(world)
    assert [history_of(world, one) for one in begun.entries()] == [
        [("state", "waiting"), ("state", "continued")]
    ] * 2
    assert world.row("SELECT count(*) FROM lastgood.copies WHERE state = 'present'") == (1,)


@pytest.mark.parametrize("passed", [timedelta(0), timedelta(hours=5), timedelta(days=3)])
def test_a_live_writer_lease_keeps_everything_at_any_age(world: World, passed: timedelta) -> None:
    begun = begin(world).send()
    world.advance(passed)
    world.owner.execute(
        "UPDATE lastgood.attempts SET lease_expires_at = lastgood.catalog_clock() + '1 minute'"
    )
    told = clean(world)
    assert begun.state == "open"
    assert "lease lasts until" in str(told["waiting"])
    assert (inventory(world), len(left(world))) == ([], 2)


def test_the_attempt_is_fenced_first_and_aborted_when_its_last_grant_has_ended(
    world: World,
) -> None:
    begun = begin(world).send("a.bin")
    world.owner.execute(
        "UPDATE lastgood.attempts SET grant_expires_at = lastgood.catalog_clock() + '3 hours'"
    )
    world.advance(timedelta(hours=2))
    told = clean(world)
    assert "last upload grant lasts until" in str(told["waiting"])
    assert (begun.state, told["aborting"], told["closed"]) == ("aborting", 1, 0)
    assert {one.state for one in begun.entries()} == {"fenced"}
    assert {one.tries for one in begun.entries()} == {0}
    begun.send("b.bin")  # it was granted, and may still come
    world.advance(timedelta(hours=1, minutes=1))
    assert clean(world)["closed"] == 1
    assert (begun.state, left(world)) == ("closed", [])


def test_an_upload_of_nobody_has_an_owner_and_a_deadline_before_it_is_aborted(
    world: World,
) -> None:
    world.commit(1)
    upload = world.store.create_upload(NOBODYS, 10)
    world.store.write_part(NOBODYS, upload, 1, 10, [b"0123456789"])
    world.advance(timedelta(days=30))
    told = clean(world)
    assert told["unknown_uploads"] == [f"local: {NOBODYS} (upload {upload})"]
    with world.catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=[PROJECT])
    assert (finding.cause, finding.owner, finding.size_bytes) == ("unknown-upload", "team", 10)
    world.advance(DEADLINE - timedelta(minutes=1))
    assert clean(world)["stray_uploads_aborted"] == 0
    assert left(world) == [NOBODYS]
    world.advance(timedelta(minutes=2))
    told = clean(world)
    assert (told["stray_uploads_aborted"], told["freed_bytes"]) == (1, 10)
    (entry,) = inventory(world)
    assert history_of(world, entry) == [
        ("state", "waiting"),
        ("state", "reported"),
        ("state", "aborting"),
        ("try", "gone"),
        ("state", "gone"),
    ]
    assert (entry.owner, entry.attempt_id) == ("team", None)
    assert left(world) == []


def test_a_second_upload_of_nobody_has_its_own_time_beside_an_overdue_finding(
    world: World,
) -> None:
    world.commit(1)
    world.store.create_upload(NOBODYS, 10)
    clean(world)
    world.advance(DEADLINE + timedelta(hours=1))
    second = world.store.create_upload(NOBODYS, 10)
    assert clean(world)["stray_uploads_aborted"] == 1
    assert [one.upload_id for one in world.store.uploads(Prefix(""))] == [second]
    world.advance(DEADLINE + timedelta(hours=1))
    assert clean(world)["stray_uploads_aborted"] == 1
    assert left(world) == []


def test_an_explained_upload_of_nobody_stays(world: World) -> None:
    world.commit(1)
    world.store.create_upload(NOBODYS, 10)
    clean(world)
    with world.catalog.transaction() as tx:
        (finding,) = findings.current(tx, projects=[PROJECT])
        now = history.now(tx)
        findings.explain(
            tx, finding.finding_id, reason="a probe of ours", actor="operator:ann", at=now
        )
    world.advance(timedelta(days=30))
    assert clean(world)["stray_uploads_aborted"] == 0
    assert left(world) == [NOBODYS]


def test_nothing_of_nobody_is_aborted_while_a_rebuild_waits_for_somebody_to_look(
    world: World,
) -> None:
    world.commit(1)
    world.store.create_upload(NOBODYS, 10)
    clean(world)
    world.owner.execute(
        """
        INSERT INTO lastgood.holds (hold_id, project, kind, owner, reason, placed_by, recorded_at)
        VALUES (gen_random_uuid(), %s, 'incident', 'team', 'rebuilt', %s, now())
        """,
        (PROJECT, rebuilds.ACTOR),
    )
    world.advance(timedelta(days=30))
    told = clean(world)
    assert (told["stray_uploads_aborted"], len(told["unknown_uploads"])) == (0, 1)
    assert left(world) == [NOBODYS]


def test_uploads_of_others_are_counted_and_never_taken_in(world: World) -> None:
    with world.catalog.transaction() as tx:
        projects.put(tx, Project("audio", "team", "local", "short", {}, None))
    for key in ("elsewhere/x.bin", "checkpoints/ghost/y.bin", "checkpoints/audio/z.bin"):
        world.store.create_upload(Key(key), 10)
    world.advance(timedelta(days=30))
    for _ in range(2):
        told = clean(world)
        world.advance(timedelta(days=30))
    assert told["foreign_uploads"] == {"local": 2}
    assert told["unknown_uploads"] == []
    assert (inventory(world), len(left(world))) == ([], 3)


def test_the_upload_of_a_committed_object_is_never_aborted_though_it_be_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(world).send()
    begun.commit()
    # A server was seen that still lists a completed upload, and an abort of it takes the bytes.
    extra = world.store.create_upload(begun.key("a.bin"), 64)
    with world.catalog.transaction() as tx:
        tx.execute("UPDATE attempt_objects SET upload_id = %s WHERE path = 'a.bin'", (extra,))
    leftover = world.store.create_upload(begun.key("b.bin"), 32)
    world.advance(timedelta(days=1))
    told = clean(world)
    assert told["stray_uploads_aborted"] == 1
    assert [one.upload_id for one in world.store.uploads(Prefix(""))] == [extra]
    with pytest.raises(UploadGone):
        world.store.parts(begun.key("b.bin"), leftover)


class _Whole:
    """A store whose listing of uploads ends as told."""

    def __init__(self, store: Any, complete: bool, hides: bool) -> None:
        self._store, self._complete, self._hides = store, complete, hides

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def uploads(self, prefix: Prefix) -> Any:
        return _Listing([] if self._hides else self._store.uploads(prefix), self._complete)


class _Listing:
    def __init__(self, entries: Any, complete: bool) -> None:
        self._entries, self.complete = entries, complete

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)


@pytest.mark.parametrize(
    ("complete", "hides", "said"), [(False, True, "not whole"), (True, True, "")]
)
def test_what_a_listing_does_not_show_is_not_gone(
    world: World, complete: bool, hides: bool, said: str
) -> None:
    """Neither if it was cut off, nor if the server lies: each upload is asked for."""
    world.commit(1)
    world.store.create_upload(NOBODYS, 10)
    clean(world)
    world.stores["local"] = _Whole(world.store, complete, hides)
    told = clean(world)
    assert said in str(told["failed"])
    assert [one.state for one in inventory(world)] == ["reported"]
    world.stores["local"] = world.store
    (upload,) = world.store.uploads(Prefix(""))
    world.store.abort_upload(upload.key, upload.upload_id)
    clean(world)
    (entry,) = inventory(world)
    assert (entry.state, entry.proof and entry.proof["asked"]) == ("gone", "no such upload")


def test_two_clean_ups_at_once_do_it_once(world: World) -> None:
    begun = [begin(world, number).send() for number in range(1, 5)]
    for number in range(6):
        world.store.create_upload(Key(f"checkpoints/vision/stray/{number}.bin"), 10)
    clean(world)
    world.advance(DEADLINE + timedelta(hours=1))
    gate = threading.Barrier(2)

    def at_once() -> dict[str, Any]:
        gate.wait(60)
        return clean(world)

    with ThreadPoolExecutor(2) as threads:
        told = [one.result() for one in [threads.submit(at_once), threads.submit(at_once)]]
    clean(world)
    assert sum(one["closed"] for one in told) == 4
    assert sum(one["stray_uploads_aborted"] for one in told) == 6
    assert sum(one["freed_bytes"] for one in told) == 4 * 96
    assert [one["failed"] for one in told] == [{}, {}]
    assert left(world) == []
    assert {one.state for one in inventory(world)} == {"gone"}
    assert {one.tries for one in inventory(world)} == {1}
    assert [one.state for one in begun] == ["closed"] * 4


def test_an_object_beside_its_upload_is_no_upload(world: World) -> None:
    """Published objects of an attempt that never committed are an entry of their own."""
    begun = begin(world).send("b.bin")
    upload_object(world.store, begun.key("c.bin"), b"c" * 8)
    world.advance(LEASE)
    clean(world)
    sizes = {one.upload_id: one.part_bytes for one in begun.entries()}
    assert sizes == {"": 8, begun.uploads["a.bin"]: 0, begun.uploads["b.bin"]: 32}


def test_a_stage_of_its_own_rules_waits_as_they_say(world: World) -> None:
    world.promote(
        {
            "overrides": [
                {"workloads": "gpt", "stages": "pretrain", "uploads": {"abort_after": "6h"}}
            ]
        }
    )
    begun = begin(world)
    world.advance(timedelta(hours=5))
    assert "younger than 6:00:00 (abort_after; no upload of class" in str(clean(world)["waiting"])
    world.advance(timedelta(hours=2))
    assert clean(world)["closed"] == 1
    assert begun.state == "closed"


def test_recorded_ids_are_those_of_the_coordinator(world: World) -> None:
    begun = begin(world)
    with world.catalog.transaction() as tx:
        recorded = {one.path: one.upload_id for one in attempt_objects.of(tx, begun.attempt)}
    assert recorded == begun.uploads


def test_an_upload_costs_three_requests_beside_the_listings(s3_world: World) -> None:
    for sequence in (1, 2):
        begin(s3_world, sequence).send()
    s3_world.advance(LEASE + ABORT_AFTER)
    asked: Counter[str] = Counter()
    s3_world.store.client.meta.events.register(  # type: ignore[attr-defined]
        "before-send.s3", lambda event_name, **_: asked.update([event_name.rpartition(".")[2]])
    )
    told = clean(s3_world)
    assert (told["closed"], told["freed_bytes"]) == (2, 2 * 96)
    assert left(s3_world) == []
    # Their parts for the inventory, the abort, and whether the store still knows them.
    assert (asked["ListParts"], asked["AbortMultipartUpload"]) == (4 + 4, 4)


def test_what_a_lock_keeps_of_an_attempt_is_waited_for_and_not_asked_about_each_time(
    ceph_client: S3Client,
    ceph_locked_bucket: str,
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
) -> None:
    store = S3Store("cloud", ceph_client, ceph_locked_bucket)
    asked: Counter[str] = Counter()
    store.client.meta.events.register(
        "before-send.s3.GetObjectLegalHold", lambda **_: asked.update(["hold"])
    )
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as world:
        begun = begin(world).send()
        part = store.parts(begun.key("a.bin"), begun.uploads["a.bin"])
        written = store.complete_upload(begun.key("a.bin"), begun.uploads["a.bin"], part)
        where: Any = {"Bucket": store.bucket, "Key": written.key, "VersionId": written.version_id}
        store.client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
        world.advance(LEASE + ABORT_AFTER)
        for again in range(2):
            told = clean(world)
            assert "locked: under legal hold" in told["waiting"][str(attempt_id(begun))]
            assert (told["failed"], told["freed_bytes"]) == ({}, 0 if again else 32)
        assert asked["hold"] == 1
        store.client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
        assert clean(world)["closed"] == 0
        world.advance(ASK_AGAIN_AFTER)
        assert (clean(world)["closed"], begun.state) == (1, "closed")
