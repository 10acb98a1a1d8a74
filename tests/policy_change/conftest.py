"""The world of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retention.world import World, opened


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """A project without checkpoints."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found
