"""A download appears whole and verified, or not at all."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.errors import NotFound
from lastgood.runner import Checkpoint, CorruptObject, DestinationTaken, Retry, Unreachable
from tests.runner.conftest import RunningCoordinator, contents, write_checkpoint
from tests.runner.faults import PAGE, BreakOff, Hold, Refuse
from tests.waiting import wait_for

EVERY_WAY = pytest.mark.parametrize("how", ["endpoint", "direct", "presigned"], indirect=True)


@pytest.fixture
def saved(coordinator: RunningCoordinator, checkpoint: Path) -> Checkpoint:
    with coordinator.workload().acquire() as run:
        return run.save(checkpoint, step=1)


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


@EVERY_WAY
def test_a_checkpoint_is_fetched_by_name_or_as_the_latest(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    before = contents(checkpoint)
    with coordinator.workload().acquire() as run:
        later = run.save(write_checkpoint(checkpoint, seed=1), step=2)
    workload = coordinator.workload()

    by_name = workload.download(saved.position, tmp_path / "by-name")
    latest = workload.download("latest", tmp_path / "new" / "latest")

    assert (by_name.checkpoint, latest.checkpoint) == (saved, later)
    assert contents(tmp_path / "by-name") == before
    assert contents(tmp_path / "new" / "latest") == contents(checkpoint)
    assert not hidden(tmp_path)


def test_an_empty_folder_is_filled_and_another_one_is_refused(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    workload = coordinator.workload()

    workload.download("latest", tmp_path / "empty")
    with pytest.raises(DestinationTaken, match="not empty"):
        workload.download("latest", tmp_path / "full")
    with pytest.raises(DestinationTaken, match="no folder"):
        workload.download("latest", tmp_path / "file")

    assert contents(tmp_path / "empty") == contents(checkpoint)
    assert contents(tmp_path / "full") == {"notes": b"mine"}


@pytest.mark.parametrize("how", ["endpoint", "direct"], indirect=True)
def test_damage_in_the_store_is_found_and_nothing_appears(
    coordinator: RunningCoordinator, saved: Checkpoint, tmp_path: Path
) -> None:
    victim = coordinator.stored("rank1.safetensors")
    victim.chmod(0o644)
    content = bytearray(victim.read_bytes())
    content[1000] ^= 1
    victim.write_bytes(content)

    with pytest.raises(CorruptObject, match=r"model/rank1\.safetensors"):
        coordinator.workload().download("latest", tmp_path / "restored")

    assert not (tmp_path / "restored").exists()


def test_an_interrupted_download_goes_on(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    impatient = coordinator.workload(retry=Retry(timedelta(milliseconds=1)))
    coordinator.faults.on("GET", "rank1.safetensors", BreakOff(), times=100)
    with pytest.raises(Unreachable):
        impatient.download("latest", tmp_path / "restored", workers=1)
    assert not (tmp_path / "restored").exists()
    coordinator.faults.end()
    fetched = coordinator.faults.count("GET", "rank0.safetensors")

    impatient.download("latest", tmp_path / "restored")

    assert contents(tmp_path / "restored") == contents(checkpoint)
    assert coordinator.faults.count("GET", "rank0.safetensors") == fetched
    assert not hidden(tmp_path)


def test_what_an_interrupted_download_left_is_checked_not_trusted(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    left = tmp_path / f".restored.lastgood-{saved.manifest_digest[:16]}"
    (left / "model").mkdir(parents=True)
    (left / "model" / "rank0.safetensors").write_bytes(b"wrong from the first byte")
    (left / "empty").write_bytes(b"too long")

    coordinator.workload().download("latest", tmp_path / "restored")

    assert contents(tmp_path / "restored") == contents(checkpoint)


def test_a_broken_connection_is_continued_where_it_broke(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    coordinator.faults.on("GET", "/objects/", BreakOff(), times=2)
    coordinator.faults.on("GET", "/objects/", Refuse(503, {"Retry-After": "0"}), times=2)
    coordinator.faults.on("GET", "/objects/", PAGE, times=2)

    coordinator.workload().download("latest", tmp_path / "restored")

    assert contents(tmp_path / "restored") == contents(checkpoint)


def test_the_reader_lease_is_renewed_meanwhile_and_given_back(
    coordinator: RunningCoordinator, saved: Checkpoint, tmp_path: Path
) -> None:
    released = threading.Event()
    coordinator.faults.on("GET", "/objects/", Hold(released), times=100)
    downloading = threading.Thread(
        target=coordinator.workload().download, args=("latest", tmp_path / "restored")
    )
    downloading.start()
    wait_for(lambda: coordinator.faults.count("POST", "/renew") >= 2)
    released.set()
    downloading.join()

    assert (tmp_path / "restored").is_dir()
    assert coordinator.faults.count("DELETE", "/readers/") == 1


def test_two_downloads_to_one_place_do_not_mix(
    coordinator: RunningCoordinator, saved: Checkpoint, checkpoint: Path, tmp_path: Path
) -> None:
    released = threading.Event()
    coordinator.faults.on("GET", "/objects/", Hold(released), times=100)
    workload = coordinator.workload()
    first = threading.Thread(target=workload.download, args=("latest", tmp_path / "restored"))
    first.start()
    wait_for(lambda: coordinator.faults.count("GET", "/objects/") > 0)

    with pytest.raises(DestinationTaken, match="another process"):
        workload.download("latest", tmp_path / "restored")
    released.set()
    first.join()

    assert contents(tmp_path / "restored") == contents(checkpoint)


def test_there_is_nothing_to_download_where_nothing_was_committed(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        with pytest.raises(NotFound):
            run.download(tmp_path / "restored")
        with pytest.raises(NotFound):
            coordinator.workload().download("latest", tmp_path / "restored")

    assert not (tmp_path / "restored").exists()


def test_progress_counts_every_byte_once(
    coordinator: RunningCoordinator, saved: Checkpoint, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []

    coordinator.workload().download(
        "latest", tmp_path / "restored", progress=lambda *now: told.append(now)
    )

    assert told[-1] == (saved.size_bytes, saved.size_bytes)
