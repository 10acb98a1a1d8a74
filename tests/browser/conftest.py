"""A small world of checkpoints for the browser to show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retention.world import World, opened


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found
