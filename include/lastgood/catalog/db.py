"""Connections and transactions: the only door to the catalog's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from lastgood.errors import CatalogSetup

Transaction = psycopg.Cursor[DictRow]
"""One open transaction. Functions of this package take it as their first argument, `tx`."""

MIN_SERVER = 140000


class Catalog:
    """A pool of connections to one catalog. Open it once per process and close it at the end."""

    def __init__(self, dsn: str, *, min_size: int = 0, max_size: int = 10) -> None:
        """`dsn` is a libpq connection string of the application's role, which owns no table.
        Connections are made when first needed; a wrong address shows at the first transaction."""
        self._pool = ConnectionPool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            open=True,
            configure=_configure,
            check=ConnectionPool.check_connection,
            timeout=30,
            kwargs={"row_factory": dict_row, "autocommit": False},
        )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A READ COMMITTED transaction: commits on leaving, rolls back on any exception.
        Raises CatalogSetup if the server cannot serve as a catalog."""
        with self._pool.connection() as connection, connection.cursor() as cursor:
            yield cursor

    def close(self) -> None:
        """Close every connection; transactions under way are rolled back by the server."""
        self._pool.close()


def _configure(connection: psycopg.Connection[Any]) -> None:
    """Rules of lock-then-look hold at READ COMMITTED alone: a snapshot taken for the whole transaction
    would show facts from before the wait for a lock."""
    connection.execute("SET search_path = lastgood")
    connection.execute("SET timezone = 'UTC'")
    row = connection.execute(
        "SELECT current_setting('transaction_isolation') AS isolation,"
        " current_setting('default_transaction_isolation') AS usual,"
        " current_setting('server_version_num')::int AS version"
    ).fetchone()
    connection.commit()
    if row is None or {row["isolation"], row["usual"]} != {"read committed"}:
        raise CatalogSetup(reason=f"its transactions are {row and row['usual']}, not read committed")
    if row["version"] < MIN_SERVER:
        raise CatalogSetup(reason=f"PostgreSQL {row['version']} is older than 14")
