"""A prepared store and its catalog for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from tests.reconcile.prepared import Prepared


@pytest.fixture
def prepared(owner_dsn: str, tmp_path: Path) -> Iterator[Prepared]:
    made = Prepared(owner_dsn, tmp_path / "store", projects=("vision", "speech"))
    yield made
    made.close()


@pytest.fixture
def catalog(catalog_dsn: str) -> Iterator[Catalog]:
    with Catalog(catalog_dsn) as opened:
        yield opened
