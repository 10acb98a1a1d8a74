"""A snapshot holds the files of a checkpoint while the trainer goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.runner.disk.files import SNAPSHOT_FOLDERS, SourceFile, measured, new_buffer
from lastgood.runner.disk.snapshot import Snapshot, snapshot_of
from lastgood.runner.problems import FileChanged
from lastgood.runner.working.stopping import Stop


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "deep").mkdir(parents=True)
    (folder / "model").write_bytes(b"weights")
    (folder / "deep" / "rng").write_bytes(b"state")
    return folder


def contents(files: list[SourceFile]) -> dict[str, bytes]:
    read = {}
    for file in files:
        with file.reading() as fd:
            chunks = file.chunks(fd, 0, file.size_bytes, new_buffer(), Stop())
            read[file.path] = b"".join(bytes(chunk) for chunk in chunks)
    return read


@pytest.mark.parametrize("how", ["link", "copy"])
def test_files_may_be_replaced_and_removed_meanwhile(folder: Path, how: Snapshot) -> None:
    with snapshot_of(measured(folder), how) as held:
        (folder / "new").write_bytes(b"later weights")
        (folder / "new").rename(folder / "model")
        (folder / "deep" / "rng").unlink()

        assert contents(held) == {"model": b"weights", "deep/rng": b"state"}


def test_a_copy_is_safe_from_rewriting_in_place(folder: Path) -> None:
    with snapshot_of(measured(folder), "copy") as held:
        (folder / "model").write_bytes(b"WEIGHTS")

        assert contents(held)["model"] == b"weights"


@pytest.mark.parametrize("how", ["link", "none"])
def test_rewriting_in_place_is_noticed(folder: Path, how: Snapshot) -> None:
    with snapshot_of(measured(folder), how) as held:
        (folder / "model").write_bytes(b"WEIGHTS")
        os.utime(folder / "model", ns=(1, 1))

        with pytest.raises(FileChanged, match="model"):
            contents(held)


@pytest.mark.parametrize("how", ["link", "copy", "none"])
def test_nothing_is_left_behind(folder: Path, how: Snapshot) -> None:
    with snapshot_of(measured(folder), how):
        pass

    assert list(folder.parent.iterdir()) == [folder]
    assert sorted(path.name for path in folder.rglob("*")) == ["deep", "model", "rng"]


def test_what_a_killed_process_left_is_cleared_and_a_live_one_is_not(folder: Path) -> None:
    abandoned = folder.parent / f"{SNAPSHOT_FOLDERS}abandoned"
    abandoned.mkdir()
    (abandoned / "owner.lock").touch()
    (abandoned / "0").write_bytes(b"old")

    with snapshot_of(measured(folder), "link") as first:
        with snapshot_of(measured(folder), "link") as second:
            assert contents(first) == contents(second)
        assert contents(first)["model"] == b"weights"
        assert not abandoned.exists()


def test_a_snapshot_inside_a_folder_is_no_part_of_the_checkpoint(folder: Path) -> None:
    (folder / f"{SNAPSHOT_FOLDERS}x").mkdir()
    (folder / f"{SNAPSHOT_FOLDERS}x" / "0").write_bytes(b"old")

    assert {file.path for file in measured(folder)} == {"model", "deep/rng"}
