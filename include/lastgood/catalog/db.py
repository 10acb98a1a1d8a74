"""Connections and transactions: the only door to the catalog's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, LiteralString, Self

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from lastgood.errors import CatalogSetup

Transaction = psycopg.Cursor[DictRow]
"""One open transaction. Functions of this package take it as their first argument, `tx`."""

MIN_SERVER = 140000
SCHEMA_REVISION = "0014"
"""The migration that this version of lastgood works with."""


class Catalog:
    """A pool of connections to one catalog. Open it once per process and close it at the end."""

    def __init__(self, dsn: str, *, max_size: int = 10) -> None:
        """`dsn` is a libpq connection string of the application's role, which owns no table.
        Raises CatalogSetup if the server cannot be reached or cannot serve as a catalog."""
        _probe(dsn)
        self._dsn = dsn
        self._pool = ConnectionPool(
            dsn,
            min_size=0,
            max_size=max_size,
            open=True,
            configure=_configure,
            check=ConnectionPool.check_connection,
            timeout=30,
            kwargs={"row_factory": dict_row},
        )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A READ COMMITTED transaction: commits on leaving, rolls back on any exception."""
        with self._pool.connection() as connection, connection.cursor() as cursor:
            yield cursor

    @contextmanager
    def transaction_apart(self) -> Iterator[Transaction]:
        """A transaction on a connection of its own, for a lock that is held while others of the
        pool are used: those who hold one never wait for one another's. Losing the connection
        meanwhile loses the lock and nothing else; what is written here may be lost."""
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            _configure(connection)
            with connection.cursor() as cursor:
                yield cursor

    def close(self) -> None:
        """Close every connection; the server rolls back transactions under way."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _configure(connection: psycopg.Connection[DictRow]) -> None:
    connection.execute("SET search_path = lastgood")
    connection.execute("SET timezone = 'UTC'")
    # A commit that is answered outlives a power cut, however its server is tuned.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


def _probe(dsn: str) -> None:
    """Lock-then-look holds at READ COMMITTED alone: a snapshot taken for the whole transaction
    would show facts from before the wait for a lock."""
    try:
        with psycopg.connect(dsn, row_factory=dict_row) as connection:
            isolation = _value(connection, "SHOW default_transaction_isolation")
            version = connection.info.server_version
            revision = _value(
                connection,
                "SELECT to_regclass('public.alembic_version') IS NOT NULL AND"
                " EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'lastgood')",
            ) and _value(connection, "SELECT version_num FROM public.alembic_version")
    except psycopg.ProgrammingError:
        # What libpq says of it quotes it, and it may hold a password.
        raise CatalogSetup(reason="what names its place is no libpq connection string") from None
    except psycopg.OperationalError as unreachable:
        raise CatalogSetup(reason=f"its server cannot be reached: {unreachable}") from unreachable
    if isolation != "read committed":
        raise CatalogSetup(reason=f"its transactions are {isolation}, not read committed")
    if version < MIN_SERVER:
        raise CatalogSetup(reason=f"its server has version {version}; 14 is the oldest that serves")
    if revision != SCHEMA_REVISION:
        raise CatalogSetup(
            reason=f"its schema is {revision or 'absent'}, not {SCHEMA_REVISION}: run"
            " `lastgood migrate`"
        )


def _value(connection: psycopg.Connection[DictRow], query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    return None if row is None else next(iter(row.values()))
