"""Writing into the attempt's own folder, on the file system that everybody shares."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lastgood.runner import FolderUnreachable, ObjectRecord
from lastgood.runner.disk.files import measured
from lastgood.runner.sending.direct import write_direct
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.stopping import Stop
from tests.factories import direct_ticket


def write(source: Path, folder: Path) -> ObjectRecord:
    return write_direct(direct_ticket(folder), measured(source)[0], 3, Progress(0), Stop())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "er" / "model").write_bytes(b"weights" * 300_000)
    return tmp_path / "source"


def test_the_object_lies_under_its_path_and_its_record_says_what_it_is(
    source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "attempt"
    folder.mkdir()

    record = write(source, folder)

    content = b"weights" * 300_000
    assert (folder / "deep/er/model").read_bytes() == content
    sha256 = hashlib.sha256(content).hexdigest()
    assert record == ObjectRecord("deep/er/model", len(content), sha256, 3)


def test_what_an_earlier_try_left_is_overwritten(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "model").write_bytes(b"longer than the weights" * 200_000)

    write(source, folder)

    assert (folder / "deep/er/model").read_bytes() == b"weights" * 300_000


def test_a_link_in_the_place_of_an_object_is_not_followed(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    (folder / "deep" / "er").mkdir(parents=True)
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (folder / "deep" / "er" / "model").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic links"):
        write(source, folder)
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_a_store_that_is_not_mounted_here_is_named_and_not_made(
    source: Path, tmp_path: Path
) -> None:
    with pytest.raises(FolderUnreachable, match="nowhere"):
        write(source, tmp_path / "nowhere")

    assert not (tmp_path / "nowhere").exists()
