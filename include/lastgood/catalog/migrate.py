"""Bring a catalog's schema to this version, and give the application's role what it may do."""

from __future__ import annotations

from pathlib import Path

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from lastgood.errors import CatalogSetup

_MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(owner_dsn: str, *, app_role: str = "lastgood_app") -> None:
    """Run the missing migrations as the owner of the tables, then grant `app_role` (created without
    a password if absent) what it needs: reading and appending everywhere, changing only where a
    table is not append-only. Repeating it is a no-op. `owner_dsn` is a libpq connection string.
    Raises CatalogSetup if there is no server at it."""
    try:
        psycopg.connect(owner_dsn).close()
        place = conninfo_to_dict(owner_dsn)
    except psycopg.ProgrammingError:
        reason = "what names its place for the owner is no libpq connection string"
        raise CatalogSetup(reason=reason) from None
    except psycopg.OperationalError as unreachable:
        raise CatalogSetup(reason=f"its server cannot be reached: {unreachable}") from unreachable
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", connect_args=place, poolclass=sqlalchemy.NullPool
    )
    with engine.connect() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()
    with engine.begin() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (app_role,))
        if cursor.fetchone() is None:
            cursor.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(app_role)))
        cursor.execute(_grants(app_role))


def head() -> str:
    """The revision that this version of lastgood needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _grants(app_role: str) -> sql.Composed:
    """The append-only triggers are the one list of append-only tables; the grants follow them."""
    return sql.SQL(
        """
        DO $do$
        DECLARE item record;
        BEGIN
          FOR item IN
            SELECT c.oid::regclass AS name, EXISTS (
                     SELECT 1 FROM pg_trigger t
                      WHERE t.tgrelid = c.oid AND t.tgname = 'append_only_rows') AS append_only
              FROM pg_class c
             WHERE c.relnamespace = 'lastgood'::regnamespace AND c.relkind = 'r'
          LOOP
            EXECUTE format('REVOKE ALL ON %s FROM %I', item.name, {role});
            EXECUTE format('GRANT SELECT, INSERT %s ON %s TO %I',
              CASE WHEN item.append_only THEN '' ELSE ', UPDATE, DELETE' END, item.name, {role});
          END LOOP;
          EXECUTE format('GRANT USAGE ON SCHEMA lastgood TO %I', {role});
          EXECUTE format('GRANT SELECT ON public.alembic_version TO %I', {role});
          EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA lastgood TO %I', {role});
        END $do$
        """
    ).format(role=sql.Literal(app_role))
