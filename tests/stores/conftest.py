"""A file store of its own for each test, and the means to break it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.stores.file import FileStore

NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    root = tmp_path / "root"
    root.mkdir()
    return FileStore("local", root)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of one's own, and no right to more than the file modes give."""
    folder = Path(tempfile.mkdtemp(prefix="lastgood-unprivileged-"))
    privileged = os.geteuid() == 0
    if privileged:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if privileged:
            os.seteuid(0)
        folder.chmod(0o700)
        for path, below, _ in os.walk(folder):
            for name in below:  # before it is entered
                if not Path(path, name).is_symlink():
                    Path(path, name).chmod(0o700)
        shutil.rmtree(folder)
