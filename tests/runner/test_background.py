"""Saving while training goes on: short to begin, one at a time, and no failure is lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.errors import LastgoodError
from lastgood.runner import Cancelled, FileChanged, SaveHandle
from tests.runner.conftest import RunningCoordinator, contents, write_checkpoint
from tests.runner.faults import Hold, Refuse
from tests.waiting import wait_for

SOON = timedelta(seconds=60)


@pytest.fixture
def gate(coordinator: RunningCoordinator) -> threading.Event:
    """No byte arrives before it is set."""
    released = threading.Event()
    coordinator.faults.on("PUT", "/objects/", Hold(released), times=1_000)
    return released


def test_training_goes_on_while_the_checkpoint_is_sent(
    coordinator: RunningCoordinator, checkpoint: Path, gate: threading.Event, tmp_path: Path
) -> None:
    before = contents(checkpoint)
    with coordinator.workload().acquire() as run:
        saving = run.save_in_background(checkpoint, step=1)
        assert saving is not None
        assert not saving.done
        for file in before:
            (checkpoint / file).unlink()
        gate.set()
        saved = saving.result(SOON)

    assert saving.progress.phase == "over"
    assert saving.progress.bytes_done == saving.progress.bytes_total == saved.size_bytes
    coordinator.workload().download("latest", tmp_path / "restored")
    assert contents(tmp_path / "restored") == before


def test_nothing_is_left_beside_the_checkpoint(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    beside = set(checkpoint.parent.iterdir())
    with coordinator.workload().acquire() as run:
        run.save_in_background(checkpoint, step=1)

    assert set(checkpoint.parent.iterdir()) == beside


def test_leaving_the_generation_waits_for_the_save(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        saving = run.save_in_background(checkpoint, step=1)

    assert saving is not None
    assert coordinator.workload().latest() == saving.result(SOON)


def test_an_interrupted_wait_does_not_forget_the_save_that_it_waited_for(
    coordinator: RunningCoordinator,
    checkpoint: Path,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[SaveHandle | None] = []
    wait = SaveHandle.raise_unasked

    def interrupted(handle: SaveHandle) -> None:
        monkeypatch.setattr(SaveHandle, "raise_unasked", wait)
        gate.set()
        raise KeyboardInterrupt

    def train() -> None:
        with coordinator.workload().acquire() as run:
            begun.append(run.save_in_background(checkpoint, step=1))
            monkeypatch.setattr(SaveHandle, "raise_unasked", interrupted)
            run.save(checkpoint, step=2)

    with pytest.raises(KeyboardInterrupt):
        train()
    assert begun[0] is not None
    assert begun[0].done  # before the generation was given back
    assert coordinator.workload().latest() == begun[0].result(SOON)


def test_one_save_at_a_time_the_next_waits_or_is_skipped(
    coordinator: RunningCoordinator, checkpoint: Path, gate: threading.Event
) -> None:
    with coordinator.workload().acquire() as run:
        first = run.save_in_background(checkpoint, step=1)
        assert run.save_in_background(checkpoint, step=2, busy="skip") is None
        threading.Timer(0.2, gate.set).start()
        third = run.save_in_background(checkpoint, step=3, busy="wait")
        assert first is not None
        assert third is not None
        assert first.done
        assert (first.result(SOON).sequence, third.result(SOON).sequence) == (1, 2)


def test_a_failure_that_nobody_asked_for_is_raised_by_the_next_save(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        coordinator.faults.on("POST", "/checkpoints/prepare", Refuse(403))
        failing = run.save_in_background(checkpoint, step=1)
        assert failing is not None
        wait_for(lambda: failing.done)
        with pytest.raises(LastgoodError, match="403"):
            run.save(checkpoint, step=2)
        run.save(checkpoint, step=2)


def test_a_failure_of_the_last_save_is_raised_at_the_end(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    def train() -> None:
        with coordinator.workload().acquire() as run:
            coordinator.faults.on("POST", "/checkpoints/prepare", Refuse(403))
            run.save_in_background(checkpoint, step=1)

    with pytest.raises(LastgoodError, match="403"):
        train()
    assert not coordinator.workload().writer().active


def test_an_error_of_the_script_is_not_hidden_by_one_of_the_save(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    def train() -> None:
        with coordinator.workload().acquire() as run:
            coordinator.faults.on("POST", "/checkpoints/prepare", Refuse(403))
            run.save_in_background(checkpoint, step=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


def test_a_failure_that_was_asked_for_is_not_raised_again(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        coordinator.faults.on("POST", "/checkpoints/prepare", Refuse(403), times=2)
        for step in (1, 2):
            failing = run.save_in_background(checkpoint, step=step)
            assert failing is not None
            with pytest.raises(LastgoodError, match="403"):
                failing.result(SOON)
        run.save(checkpoint, step=3)


def test_a_cancelled_save_commits_nothing(
    coordinator: RunningCoordinator, checkpoint: Path, gate: threading.Event
) -> None:
    with coordinator.workload().acquire() as run:
        saving = run.save_in_background(checkpoint, step=1)
        assert saving is not None
        wait_for(lambda: coordinator.faults.count("PUT", "/objects/") > 0)
        saving.cancel()
        try:
            with pytest.raises(Cancelled):
                saving.result(SOON)  # though no answer comes
        finally:
            gate.set()
        with Catalog(coordinator.dsn) as catalog, catalog.transaction() as tx:
            rows = tx.execute(
                "SELECT a.state FROM attempts a JOIN stages s USING (stage_id) WHERE s.stage = %s",
                (coordinator.stage,),
            ).fetchall()

    assert not coordinator.workload().latest()
    assert [row["state"] for row in rows] in ([], ["aborting"])


def test_a_linked_file_that_is_rewritten_in_place_fails_the_save(
    coordinator: RunningCoordinator, checkpoint: Path, gate: threading.Event
) -> None:
    with coordinator.workload().acquire() as run:
        saving = run.save_in_background(checkpoint, step=1, snapshot="link")
        assert saving is not None
        (checkpoint / "model/rank1.safetensors").write_bytes(b"torn")
        gate.set()
        with pytest.raises(FileChanged, match=r"model/rank1\.safetensors"):
            saving.result(SOON)


def test_a_copied_file_may_be_rewritten_in_place(
    coordinator: RunningCoordinator, checkpoint: Path, gate: threading.Event, tmp_path: Path
) -> None:
    before = contents(checkpoint)
    with coordinator.workload().acquire() as run:
        saving = run.save_in_background(checkpoint, step=1, snapshot="copy")
        write_checkpoint(checkpoint, seed=9)
        gate.set()

    assert saving is not None
    coordinator.workload().download("latest", tmp_path / "restored")
    assert contents(tmp_path / "restored") == before
