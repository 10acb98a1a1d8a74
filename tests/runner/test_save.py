"""Saving: what is committed is what the trainer wrote, whatever happens on the way."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.errors import (
    BadManifest,
    FencedGeneration,
    IntegrityFailure,
    LastgoodError,
    StaleAcquire,
)
from lastgood.flows.jobs import commit, verify
from lastgood.flows.services import stores_of
from lastgood.runner import (
    FileChanged,
    NoCheckpoint,
    RestoreContract,
    Retry,
    RuntimeFact,
    RuntimeIdentity,
    StageBusy,
    Unreachable,
)
from tests.runner.conftest import (
    RunningCoordinator,
    contents,
    wait_for,
    write_checkpoint,
)
from tests.runner.faults import PAGE, BreakOff, Hold, LoseAnswer, Refuse

EVERY_WAY = pytest.mark.parametrize("how", ["endpoint", "direct", "presigned"], indirect=True)


@EVERY_WAY
def test_a_saved_checkpoint_is_what_the_next_generation_resumes_from(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        assert not run.resume
        saved = run.save(checkpoint, step=7, metrics={"eval/loss": 0.25})

    with coordinator.workload().acquire() as later:
        assert later.number == 2
        assert later.resume == saved
        assert saved.step == 7
        assert saved.metrics == {"eval/loss": 0.25}
        downloaded = later.download(tmp_path / "restored")

    assert contents(tmp_path / "restored") == contents(checkpoint)
    assert downloaded.checkpoint == saved


def test_the_manifest_says_what_the_script_said(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    workload = coordinator.workload()
    with workload.acquire() as run:
        first = run.save(checkpoint, step=1)
    with workload.acquire() as run:
        run.save(
            checkpoint,
            step=2,
            ranks={"model/rank0.safetensors": 0, "model/rank1.safetensors": 1},
            runtime=RuntimeIdentity(rng_state=RuntimeFact("path", "rng (copy) 100%.bin")),
            runtime_contract_version="3",
            restore=RestoreContract("mlp", {"world": 2}),
            sharding={"model": ["rank"]},
            outputs=["loss curve"],
            final=True,
        )

    manifest = workload.download("latest", tmp_path / "restored").manifest

    assert manifest.world_size == 2
    assert {item.path: item.rank for item in manifest.objects} == {
        "model/rank0.safetensors": 0,
        "model/rank1.safetensors": 1,
        "rng (copy) 100%.bin": None,
        "empty": None,
    }
    assert manifest.runtime.rng_state == RuntimeFact("path", "rng (copy) 100%.bin")
    assert manifest.restore == RestoreContract("mlp", {"world": 2})
    assert manifest.resumed_from == first.as_resumed_from()
    assert manifest.final


class ReadBytes:
    """Counts what is read of some files with `os.preadv`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
        self.count = 0
        self._inodes = {file.stat().st_ino for file in files}
        self._preadv = os.preadv
        monkeypatch.setattr(os, "preadv", self._read)

    def _read(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        got = self._preadv(fd, buffers, offset)
        if os.fstat(fd).st_ino in self._inodes:
            self.count += got
        return got


def test_an_object_of_several_parts_is_resumed_by_part(
    coordinator: RunningCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        for number in range(130):  # two whole parts and a short one
            file.write(bytes([number]) * (1 << 20))
    read = ReadBytes(monkeypatch, big)
    impatient = Retry(timedelta(milliseconds=1))
    with coordinator.workload(retry=impatient).acquire() as run:
        coordinator.faults.on("PUT", "part=3", BreakOff(), times=100)
        with pytest.raises(Unreachable):
            run.save({"big": big}, step=1, workers=1)
        coordinator.faults.end()
        read.count = 0
        saved = run.save({"big": big}, step=1)

    assert coordinator.faults.count("PUT", "part=1") == 1
    assert coordinator.faults.count("PUT", "part=2") == 1
    assert saved.sequence == 1
    assert saved.size_bytes == big.stat().st_size
    # Several workers share the file: what is sent is read behind the hash once more.
    assert read.count == big.stat().st_size + (2 << 20)


@EVERY_WAY
def test_each_file_is_read_once(
    coordinator: RunningCoordinator, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ReadBytes(monkeypatch, *(checkpoint / path for path in contents(checkpoint)))

    with coordinator.workload().acquire() as run:
        saved = run.save(checkpoint, step=1)

    assert read.count == saved.size_bytes


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/generations"),
        ("POST", "/checkpoints/prepare"),
        ("PUT", "/objects/"),
        ("POST", "/checkpoints/commit"),
    ],
)
@pytest.mark.parametrize(
    "fault", [LoseAnswer(), BreakOff(), Refuse(503, {"Retry-After": "0"}), PAGE]
)
def test_a_request_that_is_tried_again_is_the_same_request(
    coordinator: RunningCoordinator,
    checkpoint: Path,
    method: str,
    path: str,
    fault: LoseAnswer | BreakOff | Refuse,
) -> None:
    coordinator.faults.on(method, path, fault)

    with coordinator.workload().acquire() as run:
        saved = run.save(checkpoint, step=1)
        assert (run.number, saved.sequence) == (1, 1)

    assert coordinator.workload().latest() == saved


def test_a_refusal_is_not_tried_again(coordinator: RunningCoordinator, checkpoint: Path) -> None:
    with coordinator.workload().acquire() as run:
        coordinator.faults.on("POST", "/checkpoints/prepare", Refuse(403), times=9)
        with pytest.raises(LastgoodError):
            run.save(checkpoint, step=1)

    assert coordinator.faults.count("POST", "/checkpoints/prepare") == 1


def test_a_save_outlives_a_restart_of_the_coordinator(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    arrived = threading.Event()

    def restart() -> None:
        arrived.wait()
        coordinator.stop()
        coordinator.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    with coordinator.workload().acquire() as run:
        saved = run.save(checkpoint, step=1, workers=1, progress=lambda *_: arrived.set())
    restarting.join()

    assert coordinator.workload().latest() == saved


def test_an_expired_grant_is_renewed(coordinator: RunningCoordinator, checkpoint: Path) -> None:
    refusal = Refuse(
        403,
        {"Content-Type": "application/problem+json"},
        b'{"type": "grant-expired", "detail": "it ended"}',
    )
    coordinator.faults.on("PUT", "/objects/", refusal, times=2)

    with coordinator.workload().acquire() as run:
        run.save(checkpoint, step=1)

    assert coordinator.faults.count("POST", "/grants") >= 2


@EVERY_WAY
def test_a_file_that_changes_while_it_is_saved_fails_the_save_and_not_the_next(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    victim = checkpoint / "model/rank1.safetensors"

    def rewrite(bytes_done: int, bytes_total: int) -> None:
        if bytes_done and victim.stat().st_size != 5:
            victim.write_bytes(b"torn!")

    with coordinator.workload().acquire() as run:
        with pytest.raises(FileChanged, match=r"model/rank1\.safetensors"):
            run.save(checkpoint, step=1, workers=1, progress=rewrite)
        assert not coordinator.workload().latest()
        write_checkpoint(checkpoint)
        saved = run.save(checkpoint, step=2)

    assert coordinator.workload().latest() == saved


@pytest.mark.parametrize("how", ["direct"], indirect=True)
def test_damage_in_the_store_is_an_integrity_failure_and_the_next_save_works(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    def damage(bytes_done: int, bytes_total: int) -> None:
        if bytes_done == bytes_total:
            victim = coordinator.stored("rank1.safetensors")
            victim.write_bytes(b"damaged" + victim.read_bytes()[7:])

    with coordinator.workload().acquire() as run:
        with pytest.raises(IntegrityFailure):
            run.save(checkpoint, step=1, progress=damage)
        saved = run.save(checkpoint, step=1)

    assert coordinator.workload().latest() == saved


def test_what_the_manifest_cannot_say_is_refused_before_a_byte_is_sent(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run, pytest.raises(BadManifest, match="eval/loss"):
        run.save(checkpoint, step=1, metrics={"eval/loss": float("nan")})

    assert coordinator.faults.count("POST", "/checkpoints/prepare") == 0


def test_progress_only_grows_and_ends_at_the_total(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    told: list[tuple[int, int]] = []

    with coordinator.workload().acquire() as run:
        saved = run.save(checkpoint, step=1, progress=lambda *now: told.append(now))

    assert told == sorted(told)
    assert told[-1] == (saved.size_bytes, saved.size_bytes)


def test_an_error_of_the_progress_callback_ends_the_save(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    def fail(bytes_done: int, bytes_total: int) -> None:
        raise ZeroDivisionError

    with coordinator.workload().acquire() as run, pytest.raises(ZeroDivisionError):
        run.save(checkpoint, step=1, progress=fail)


def test_a_fenced_generation_notices_and_cannot_save(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    old = coordinator.workload().acquire()
    with coordinator.workload().acquire(after=old.number) as new:
        with pytest.raises(FencedGeneration):
            old.save(checkpoint, step=1)
        assert old.fenced.is_set()
        with pytest.raises(FencedGeneration):
            old.check()
        with pytest.raises(FencedGeneration):
            old.close()
        saved = new.save(checkpoint, step=2)

    assert coordinator.workload().latest() == saved


def test_being_fenced_ends_an_upload_under_way(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    released = threading.Event()
    coordinator.faults.on("PUT", "/objects/", Hold(released), times=100)
    old = coordinator.workload().acquire()
    saving = old.save_in_background(checkpoint, step=1)
    assert saving is not None
    with coordinator.workload().acquire(after=old.number):
        assert old.fenced.wait(60)
        released.set()

        with pytest.raises(FencedGeneration):
            saving.result(timedelta(seconds=60))
    with pytest.raises(FencedGeneration):
        old.close()
    assert not coordinator.workload().latest()


def test_a_second_writer_is_refused_until_the_first_ends(
    coordinator: RunningCoordinator,
) -> None:
    first = coordinator.workload(holder="first").acquire()
    second = coordinator.workload(holder="second")

    with pytest.raises(StageBusy, match="first"):
        second.acquire()
    threading.Timer(0.3, first.close).start()
    with second.acquire(wait=timedelta(seconds=60)) as run:
        assert run.number == 2


def test_whoever_looked_too_early_is_refused(coordinator: RunningCoordinator) -> None:
    with coordinator.workload().acquire(), pytest.raises(StaleAcquire):
        coordinator.workload().acquire(after=0)


def test_the_lease_outlives_a_long_step(coordinator: RunningCoordinator) -> None:
    workload = coordinator.workload()
    with workload.acquire() as run:
        first = workload.writer().lease_expires_at
        assert first is not None
        wait_for(lambda: (workload.writer().lease_expires_at or first) > first)
        assert not run.fenced.is_set()
        assert workload.writer().active
    assert not workload.writer().active


def test_none_comes_with_reasons(coordinator: RunningCoordinator) -> None:
    latest = coordinator.workload().latest()

    assert isinstance(latest, NoCheckpoint)
    assert latest.reasons
    with coordinator.workload().acquire() as run:
        assert isinstance(run.resume, NoCheckpoint)
        assert run.resume.reasons


def test_a_restarted_process_of_the_same_generation_goes_on_behind_its_own_checkpoints(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    workload = coordinator.workload()
    first = workload.acquire(after=0, idempotency_key="job-17")
    first.save(checkpoint, step=1)
    first.save(checkpoint, step=2)

    with workload.acquire(after=0, idempotency_key="job-17") as second:
        assert second.number == first.number
        saved = second.save(checkpoint, step=3)

    assert saved.sequence == 3


def test_a_preemption_is_recorded_for_the_next_generation(
    coordinator: RunningCoordinator,
) -> None:
    workload = coordinator.workload()
    run = workload.acquire()
    preemption = workload.preempted({"supplier": "spot", "seconds": 30})

    with workload.acquire(after=run.number, preemption=preemption) as later:
        assert later.number == 2


@pytest.mark.parametrize("how", ["direct"], indirect=True)
def test_a_commit_that_takes_long_to_verify_is_waited_for(
    coordinator: RunningCoordinator,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(verify, "INLINE_BYTES", 1_000)
    monkeypatch.setattr("lastgood.runner.attempts._SAY_EVERY", timedelta(0))
    caplog.set_level(logging.WARNING, logger="lastgood.runner")
    done = threading.Event()

    def work_as_the_scheduler_does() -> None:
        with Catalog(coordinator.dsn) as catalog:
            stores = stores_of(catalog)
            while not done.wait(0.1):
                for attempt in verify.pending(catalog):
                    commit.finish(catalog, stores, attempt)

    worker = threading.Thread(target=work_as_the_scheduler_does)
    worker.start()
    try:
        with coordinator.workload().acquire() as run:
            saving = run.save_in_background(checkpoint, step=1)
            assert saving is not None
            wait_for(lambda: saving.progress.phase == "commit" or saving.done)
            saved = saving.result(timedelta(seconds=60))
    finally:
        done.set()
        worker.join()

    assert coordinator.faults.count("POST", "/checkpoints/commit") == 2
    assert coordinator.workload().latest() == saved
    assert "is being verified" in caplog.text
    assert "verify_commits" in caplog.text
