"""A world that is put back to where it stood, much faster than another one is made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.retention.world import World

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'lastgood' ORDER BY tablename"


class Rewinding:
    """What a world had in its catalog and its store when this was made."""

    def __init__(self, world: World, admin: psycopg.Connection[Any], root: Path) -> None:
        """`admin` is a superuser's connection to the world's database, `root` the store's."""
        self.world = world
        self._admin = admin
        self._root = root
        self._kept = root.with_name(f"{root.name}.kept")
        shutil.copytree(root, self._kept)
        tables = [row[0] for row in admin.execute(_TABLES)]
        admin.execute("CREATE SCHEMA kept")
        for table in tables:
            name = sql.Identifier(table)
            admin.execute(sql.SQL("CREATE TABLE kept.{} AS TABLE lastgood.{}").format(name, name))
        put_back = sql.SQL(
            "DELETE FROM lastgood.{0};"
            " INSERT INTO lastgood.{0} OVERRIDING SYSTEM VALUE SELECT * FROM kept.{0};"
        )
        self._statements = sql.SQL("").join(put_back.format(sql.Identifier(t)) for t in tables)

    def rewind(self) -> World:
        """Put catalog and store back; answers the world. No session may have a transaction open."""
        with self._admin.transaction():
            # Neither triggers, so that append-only rows can go, nor foreign keys.
            self._admin.execute("SET LOCAL session_replication_role = replica")
            self._admin.execute(self._statements)
        shutil.rmtree(self._root)
        shutil.copytree(self._kept, self._root)
        return self.world


@contextmanager
def rewinding(world: World, admin_dsn: str, root: Path) -> Iterator[Rewinding]:
    """The same for as long as the block lasts."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        yield Rewinding(world, admin, root)
