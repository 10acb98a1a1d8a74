"""Where a process finds a database: an environment variable, or a connection of Airflow."""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import make_conninfo

CATALOG_VARIABLE = "LASTGOOD_CATALOG"
CATALOG_CONNECTION = "lastgood_catalog"


class NoConnection(LookupError):
    """Nothing names the place; the text says what would."""


def catalog_conninfo() -> str:
    """The libpq connection string of our catalog: of the environment variable LASTGOOD_CATALOG,
    else of the Airflow connection `lastgood_catalog`. Raises NoConnection if neither is there."""
    named = os.environ.get(CATALOG_VARIABLE, "").strip()
    if named:
        return named
    try:
        return conninfo_of(CATALOG_CONNECTION)
    except NoConnection as absent:
        way_out = f"set {CATALOG_VARIABLE} or the Airflow connection {CATALOG_CONNECTION}"
        raise NoConnection(f"no place is given ({absent}): {way_out}") from absent


def conninfo_of(connection_id: str) -> str:
    """The libpq connection string of an Airflow connection (also one given as `AIRFLOW_CONN_<ID>`).
    Raises NoConnection if there is none."""
    return _conninfo(connection_of(connection_id))


def connection_of(connection_id: str) -> Any:
    """An Airflow connection (also one given as `AIRFLOW_CONN_<ID>`). Raises NoConnection if there
    is none."""
    try:
        from airflow.sdk import BaseHook
    except ImportError:
        raise NoConnection("Airflow is not installed") from None
    except UnicodeDecodeError:
        reason = "Airflow cannot read its own files in this locale; set PYTHONUTF8=1"
        raise NoConnection(reason) from None
    try:
        return BaseHook.get_connection(connection_id)
    except Exception as error:  # Airflow raises several unrelated kinds for an absent connection
        raise NoConnection(str(error)) from error


def _conninfo(connection: Any) -> str:
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
