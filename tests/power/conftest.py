"""A disk for each test, and its power cut."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.power.disk import Disk, mounted, new_disk, why_not

AfterCut = Callable[[], AbstractContextManager[Path]]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the account of a database server can reach."""
    folder = Path(tempfile.mkdtemp(prefix="lastgood-test-power-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def disk(home: Path) -> Iterator[Disk]:
    """An empty disk; the test is skipped where none can be had."""
    if reason := why_not():
        pytest.skip(reason)
    with new_disk(home / "disk") as made:
        yield made


@pytest.fixture
def after_cut(disk: Disk, home: Path) -> AfterCut:
    """For a block, the folder with what a power cut right now leaves of the disk."""
    numbers = itertools.count()

    @contextmanager
    def cut() -> Iterator[Path]:
        place = home / f"cut{next(numbers)}"
        image = place.with_suffix(".image")
        disk.cut(image)
        with mounted(image, place) as left:
            yield left.folder
        image.unlink()

    return cut
