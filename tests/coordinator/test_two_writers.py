"""Two writers of one stage: only the newest writes, and the pointer only moves forward."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import copies, copy_transitions
from lastgood.catalog.jobs.generations import Writer as WriterToken
from lastgood.flows.jobs import commit, sealing
from lastgood.flows.services import Services
from lastgood.rules.manifest import Manifest
from tests.coordinator.api import RUNNER, Api, bearer, ok, refused

FILES = {"a.bin": b"a" * 100}


def test_after_a_generation_is_fenced_nothing_that_it_sends_does_anything(api: Api) -> None:
    old = api.writer()
    old.save(1)
    saved = old.upload(2, FILES)
    new = api.writer(after=1)

    refused(old.prepare(3, FILES), 409, "fenced-generation")
    grants = f"checkpoints/{saved.attempt}/grants"
    refused(old.post(grants, {}), 409, "fenced-generation")
    refused(old.post(grants, {}, saved.fencing_token), 409, "fenced-generation")
    refused(old.post("heartbeats", {}), 409, "fenced-generation")
    refused(old.post("heartbeats", {"attempt": saved.attempt}), 409, "fenced-generation")
    refused(old.put(saved.attempt, "a.bin", FILES["a.bin"]), 409, "fenced-generation")
    late = old.put(saved.attempt, "a.bin", FILES["a.bin"], token=saved.fencing_token)
    refused(late, 409, "fenced-generation")
    problem = refused(old.commit(saved.attempt, saved.manifest), 409, "fenced-generation")
    assert problem["generation"] == 1
    assert "generation 2 was acquired by node-1" in problem["reason"]
    gone = api.client.delete(f"{RUNNER}/generations/current", headers=bearer(old.token))
    refused(gone, 409, "fenced-generation")

    assert api.latest()["checkpoint"]["id"] == "vision/resnet/pretrain/1.1"
    new.save(1)
    assert api.latest()["checkpoint"]["id"] == "vision/resnet/pretrain/2.1"


def test_a_generation_fenced_after_sealing_does_not_commit(api: Api, services: Services) -> None:
    old = api.writer()
    saved = old.upload(1, FILES)
    with services.catalog.transaction() as tx:
        row = tx.execute("SELECT stage_id FROM stages").fetchone()
    assert row is not None
    token = WriterToken("vision", row["stage_id"], 1)
    manifest = Manifest.parse(saved.manifest)
    sealing.seal(services.catalog, token, UUID(saved.attempt), manifest)
    api.writer(after=1)

    outcome = commit.finish(services.catalog, services.stores, UUID(saved.attempt))

    assert (outcome["state"], outcome["error"]) == ("failed", "fenced-generation")
    assert api.latest()["checkpoint"] is None
    refused(old.commit(saved.attempt, saved.manifest), 409, "fenced-generation")


def test_a_timed_out_acquire_that_is_retried_does_not_fence_itself(api: Api) -> None:
    first = api.writer(key="mine")
    again = api.writer(key="mine")
    assert again.generation == first.generation == 1
    assert again.token != first.token
    ok(first.post("heartbeats", {}))
    ok(again.post("heartbeats", {}))
    refused(api.acquire(0, key="mine", holder="somebody-else"), 409, "idempotency-conflict")
    api.writer(after=1, key="theirs")
    refused(api.acquire(0, key="mine"), 409, "fenced-generation")


def test_two_supervisors_cannot_take_turns(api: Api) -> None:
    def acquire(name: str) -> httpx.Response:
        return api.acquire(0, key=name, holder=name)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(acquire, [f"supervisor-{n}" for n in range(8)]))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    lost = next(answer for answer in answers if answer.status_code == 409)
    assert refused(lost, 409, "stale-acquire")["current"] == 1


def test_a_stage_with_commits_never_begins_at_nothing_unless_told(
    api: Api, catalog: Catalog
) -> None:
    api.writer().save(1)
    with catalog.transaction() as tx:
        locks.project_shared(tx, "vision")
        copy = copies.in_state(tx, "vision", copies.State.PRESENT)[0]
        locks.stages(tx, [copy.stage_id])
        copy_transitions.transition(tx, copy, copies.State.QUARANTINED, actor="test", reason="test")
    refused(api.acquire(1), 409, "fresh-start-refused")
    problem = refused(api.reader("resnet/pretrain/1.1"), 409, "copy-state")
    assert problem["state"] == "quarantined"
    refused(api.reader(), 404, "not-found")
    none = api.latest()
    assert none["checkpoint"] is None
    assert "quarantined in local" in none["reasons"][0]
    fresh = api.writer(after=1, fresh=True, key="fresh")
    assert fresh.answer["resume"] is None


def test_a_class_or_kind_that_the_stage_does_not_have_is_refused(api: Api) -> None:
    api.writer(kind="checkpointed", **{"class": "large"})
    refused(api.acquire(1, **{"class": "small"}), 409, "conflict")
    refused(api.acquire(1, kind="ephemeral"), 409, "conflict")
    assert api.writer(after=1).generation == 2


def test_fifty_concurrent_commits_leave_a_pointer_that_only_moved_forward(
    api: Api, catalog: Catalog
) -> None:
    writer = api.writer()
    saves = [writer.upload(sequence, FILES) for sequence in range(1, 51)]
    random.Random(7).shuffle(saves)

    def finish(saved: Any) -> httpx.Response:
        return writer.commit(saved.attempt, saved.manifest)

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(finish, saves))

    committed = set()
    for saved, answer in zip(saves, answers, strict=True):
        if answer.status_code == 200:
            committed.add(saved.manifest["sequence"])
        else:
            refused(answer, 409, "stale-sequence")
    with catalog.transaction() as tx:
        moves = tx.execute(
            "SELECT facts->'to' AS to, recorded_at FROM events WHERE kind = 'pointer-moved'"
            " ORDER BY number"
        ).fetchall()
        known = {row["sequence"] for row in tx.execute("SELECT sequence FROM checkpoints")}
    sequences = [row["to"][1] for row in moves]
    assert sequences == sorted(set(sequences))
    instants = [row["recorded_at"] for row in moves]
    assert instants == sorted(set(instants))
    assert set(sequences) == committed == known
    assert 50 in committed
    assert api.latest()["checkpoint"]["sequence"] == 50


def test_a_heartbeat_keeps_a_lease_and_a_recorded_lapse_ends_it(
    api: Api, catalog: Catalog, move_clock: Any
) -> None:
    from datetime import datetime, timedelta

    from lastgood.catalog.jobs import lapses

    writer = api.writer()
    saved = writer.upload(1, FILES)
    before = ok(writer.post("heartbeats", {"attempt": saved.attempt}))
    move_clock(timedelta(seconds=40))
    after = ok(writer.post("heartbeats", {"attempt": saved.attempt, "progress": {"bytes": 10}}))
    for lease in ("lease_expires_at", "attempt_lease_expires_at"):
        moved = datetime.fromisoformat(after[lease]) - datetime.fromisoformat(before[lease])
        assert moved >= timedelta(seconds=40)
    move_clock(timedelta(seconds=61))
    with catalog.transaction() as tx:
        [stage_id] = lapses.stages(tx, "vision")
        lapses.observe(tx, "vision", stage_id)
    refused(writer.post("heartbeats", {}), 409, "lease-expired")
    refused(writer.prepare(2, FILES), 409, "lease-expired")
    assert api.writer(after=1).generation == 2


def test_an_expired_grant_receives_nothing_until_it_is_renewed(api: Api, move_clock: Any) -> None:
    from datetime import timedelta

    writer = api.writer()
    prepared = ok(writer.prepare(1, FILES), 201)
    move_clock(timedelta(seconds=31))
    sent = writer.put(prepared["attempt"], "a.bin", FILES["a.bin"])
    refused(sent, 403, "grant-expired")
    ok(writer.post(f"checkpoints/{prepared['attempt']}/grants", {"parts": []}))
    ok(writer.put(prepared["attempt"], "a.bin", FILES["a.bin"]))


@pytest.mark.parametrize("ended", ["released", "lapsed"])
def test_a_reader_whose_lease_ended_reads_nothing(api: Api, move_clock: Any, ended: str) -> None:
    from datetime import timedelta

    api.writer().save(1, FILES)
    reading = ok(api.reader(ttl_seconds=60), 201)
    lease = f"readers/{reading['lease']}"
    ok(api.post(f"{lease}/renew", {}, reading["token"]))
    if ended == "released":
        for _ in range(2):
            gone = api.client.delete(f"{RUNNER}/{lease}", headers=bearer(reading["token"]))
            assert gone.status_code == 204
    else:
        move_clock(timedelta(minutes=6))
    got = api.client.get(reading["objects"][0]["url"], headers=bearer(reading["token"]))
    refused(got, 409, "lease-expired")
    refused(api.post(f"{lease}/renew", {}, reading["token"]), 409, "lease-expired")
