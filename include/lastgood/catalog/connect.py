"""Where a process finds its catalog."""

from __future__ import annotations

from lastgood.catalog.db import Catalog
from lastgood.connections import NoConnection, catalog_conninfo
from lastgood.errors import CatalogSetup


def open_catalog(dsn: str | None = None, *, max_size: int = 10) -> Catalog:
    """Open the catalog at `dsn`, else at the environment variable LASTGOOD_CATALOG, else at the
    Airflow connection `lastgood_catalog`. Raises CatalogSetup if none is given or serves."""
    return Catalog(dsn or catalog_dsn(), max_size=max_size)


def catalog_dsn() -> str:
    """The libpq connection string of our catalog. Raises CatalogSetup if none is given."""
    try:
        return catalog_conninfo()
    except NoConnection as absent:
        raise CatalogSetup(reason=str(absent)) from absent
