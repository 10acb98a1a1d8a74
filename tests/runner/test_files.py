"""Files are saved exactly as they were found, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.errors import PathDuplicate, PathTraversal
from lastgood.runner.disk.files import SourceFile, measured, new_buffer
from lastgood.runner.problems import FileChanged, UnusableFiles
from lastgood.runner.working.stopping import Stop


def read(file: SourceFile) -> bytes:
    with file.reading() as fd:
        return b"".join(
            bytes(chunk) for chunk in file.chunks(fd, 0, file.size_bytes, new_buffer(1000), Stop())
        )


def test_a_folder_is_everything_below_it(tmp_path: Path) -> None:
    for path, size in {"a": 3, "deep/er/b": 5, ".hidden": 0}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(bytes(size))

    files = measured(tmp_path)

    assert [(file.path, file.size_bytes) for file in files] == [
        ("deep/er/b", 5),
        ("a", 3),
        (".hidden", 0),
    ]


def test_bytes_come_in_order_through_one_buffer(tmp_path: Path) -> None:
    content = os.urandom(12_345)
    (tmp_path / "a").write_bytes(content)

    assert read(measured(tmp_path)[0]) == content


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "model").symlink_to(tmp_path / "blob")

    assert read(measured(folder)[0]) == b"weights"


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UnusableFiles, match=r"pipe: not a regular file"):
        measured(tmp_path)
    with pytest.raises(UnusableFiles, match="no file to save"):
        measured({})
    with pytest.raises(UnusableFiles, match="not a folder"):
        measured(tmp_path / "nowhere")


def test_paths_that_no_checkpoint_can_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises(PathTraversal):
        measured({"../a": tmp_path / "a"})
    with pytest.raises(PathDuplicate):
        measured({"a": tmp_path / "a", "a/b": tmp_path / "a"})


def rewritten(file: Path) -> None:
    file.write_bytes(b"other bytes!")
    os.utime(file, ns=(1, 1))


def shortened(file: Path) -> None:
    os.truncate(file, 2)


def replaced(file: Path) -> None:
    new = file.with_name("new")
    new.write_bytes(b"twelve bytes")
    new.rename(file)


@pytest.mark.parametrize("change", [rewritten, shortened, replaced])
def test_a_file_that_changed_since_it_was_measured_is_named(tmp_path: Path, change: object) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"twelve bytes")
    source = measured(tmp_path)[0]

    assert callable(change)
    change(file)

    with pytest.raises(FileChanged, match="model"):
        read(source)


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(bytes(3000))
    source = measured(tmp_path)[0]

    def read_while_it_changes() -> None:
        with source.reading() as fd:
            for _ in source.chunks(fd, 0, 3000, new_buffer(1000), Stop()):
                shortened(file)

    with pytest.raises(FileChanged, match="it ends at byte 1000"):
        read_while_it_changes()
