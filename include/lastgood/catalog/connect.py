"""Where a process finds its catalog."""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import make_conninfo

from lastgood.catalog.db import Catalog
from lastgood.errors import CatalogSetup

ENVIRONMENT_VARIABLE = "LASTGOOD_CATALOG"
AIRFLOW_CONNECTION = "lastgood_catalog"


def open_catalog(dsn: str | None = None, *, max_size: int = 10) -> Catalog:
    """Open the catalog at `dsn`, else at the environment variable LASTGOOD_CATALOG, else at the
    Airflow connection `lastgood_catalog`. Raises CatalogSetup if none is given or serves."""
    return Catalog(dsn or catalog_dsn(), max_size=max_size)


def catalog_dsn() -> str:
    """The libpq connection string of our catalog. Raises CatalogSetup if none is given."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "").strip() or _from_airflow()


def _from_airflow() -> str:
    way_out = f"set {ENVIRONMENT_VARIABLE} or the Airflow connection {AIRFLOW_CONNECTION}"
    try:
        from airflow.sdk import BaseHook
    except ImportError:
        raise CatalogSetup(reason=f"no place is given: {way_out}") from None
    try:
        connection = BaseHook.get_connection(AIRFLOW_CONNECTION)
    except Exception as error:  # Airflow raises several unrelated kinds for an absent connection
        raise CatalogSetup(reason=f"no place is given ({error}): {way_out}") from error
    return _libpq(connection)


def _libpq(connection: Any) -> str:
    fields = {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        "password": connection.password,
    }
    return make_conninfo(
        "", **{name: value for name, value in fields.items() if value}, **connection.extra_dejson
    )
