"""The database behind a store: its tables, its connections, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from lastgood.stores import hurry
from lastgood.stores.base import AccessRefused, StoreError
from lastgood.stores.hurry import ANSWER_WITHIN, HURRY

Connection = psycopg.Connection[TupleRow]

_TABLES = Path(__file__).with_suffix("").with_name("postgres.sql")
_MAX_CONNECTIONS = 8
_WAIT_SECONDS = 30.0


def create_tables(owner_dsn: str, schema: str, *, role: str) -> None:
    """Make what a store needs in `schema`, as its owner, and let `role` use it; repeating it is a
    no-op. `owner_dsn` is a libpq connection string of who may create a schema there. Raises
    StoreError with what the server said."""
    with _translated(schema, "", "create the tables"), psycopg.connect(owner_dsn) as connection:
        name = sql.Identifier(schema)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        connection.execute(_TABLES.read_bytes())
        for grant in (
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            statement = sql.SQL(grant).format(schema=name, role=sql.Identifier(role))
            connection.execute(statement)


class Database:
    """Transactions on the tables of one store, for use by many threads."""

    def __init__(self, store: str, dsn: str, schema: str) -> None:
        """StoreError if there is no server, or no such tables, at `dsn`, a libpq connection
        string."""
        self.store = store
        self._schema = schema
        with self.translated("", "connect"):
            dsn = _patient_for_a_while(dsn)
            psycopg.connect(dsn).close()
        self._pool = ConnectionPool(
            dsn,
            min_size=0,
            max_size=_MAX_CONNECTIONS,
            timeout=_WAIT_SECONDS,
            configure=self._configure,
            open=True,
        )
        with self.transaction("", "look for the tables") as tx:
            tx.execute("SELECT FROM chunks LIMIT 0")

    def _configure(self, connection: Connection) -> None:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        connection.commit()

    @contextmanager
    def transaction(self, key: str, action: str) -> Iterator[Connection]:
        """One transaction, at READ COMMITTED. Raises StoreError naming the key and the action."""
        wait = ANSWER_WITHIN.total_seconds() if HURRY.get() else None
        with self.translated(key, action), self._pool.connection(wait) as connection:
            yield connection

    @contextmanager
    def translated(self, key: str, action: str) -> Iterator[None]:
        """Turn what the server says into what a store says."""
        with _translated(self.store, key, action):
            yield

    def close(self) -> None:
        """End the connections."""
        self._pool.close()


def _patient_for_a_while(dsn: str) -> str:
    """The connection string, with ends to what would otherwise be waited for without one: a server
    whose packets vanish, before a connection and in it. What it says itself counts."""
    ends = {
        "connect_timeout": int(hurry.CONNECT_WITHIN.total_seconds()),
        "tcp_user_timeout": 30_000,  # milliseconds
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    said = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{name: end for name, end in ends.items() if name not in said})


@contextmanager
def _translated(store: str, key: str, action: str) -> Iterator[None]:
    about: dict[str, Any] = {"store": store, "key": key}
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        way_out = "its tables are not there: run `lastgood store create-tables`"
        raise StoreError(**about, reason=f"{action}: {way_out}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise AccessRefused(**about, action=action, reason=_said(error)) from error
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise StoreError(**about, reason=f"{action}: {_said(error)}") from error
        # What libpq says of a connection string quotes it, and it may hold a password.
        reason = f"{action}: what names its database is no libpq connection string"
        raise StoreError(**about, reason=reason) from None
    except (psycopg.Error, PoolTimeout) as error:
        raise StoreError(**about, reason=f"{action}: {_said(error)}") from error


def _said(error: Exception) -> str:
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return primary or str(error)
