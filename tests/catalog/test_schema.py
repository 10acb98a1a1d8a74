"""The schema refuses to change history, whoever asks."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lastgood.catalog import history, locks
from lastgood.catalog.db import SCHEMA_REVISION, Catalog
from lastgood.catalog.migrate import head
from lastgood.errors import CatalogSetup
from lastgood.stack.postgres import EmbeddedPostgres

APPEND_ONLY = """
    SELECT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
     WHERE t.tgname = 'append_only_rows' ORDER BY 1
"""
PROMISED = {"manifests", "receipts", "marks", "tombstones", "events"}


def _stage(owner: psycopg.Connection[tuple[object, ...]]) -> int:
    owner.execute(
        """
        INSERT INTO lastgood.stores (store, kind, config, failure_domain, tier)
             VALUES ('local', 'file', '{}', 'rack-1', 'fast');
        INSERT INTO lastgood.projects (project, owner, store, policy, config)
             VALUES ('vision', 'team', 'local', 'default', '{}');
        """
    )
    row = owner.execute(
        """
        INSERT INTO lastgood.stages (project, workload, stage, kind, class)
             VALUES ('vision', 'resnet', 'pretrain', 'checkpointed', 'small') RETURNING stage_id
        """
    ).fetchone()
    owner.commit()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


def test_history_tables_refuse_change_even_from_their_owner(owner_dsn: str) -> None:
    with psycopg.connect(owner_dsn) as owner:
        stage_id = _stage(owner)
        owner.execute(
            "INSERT INTO lastgood.events VALUES (%s, 1, 'vision', 'tried', now(), 'test', '{}')",
            (stage_id,),
        )
        owner.commit()
        for statement in (
            "UPDATE lastgood.events SET kind = 'forged'",
            "DELETE FROM lastgood.events",
            "TRUNCATE lastgood.events CASCADE",
        ):
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"):
                owner.execute(statement)
            owner.rollback()


def test_every_promised_table_is_append_only_by_trigger_and_by_grant(
    owner_dsn: str, catalog_dsn: str
) -> None:
    with psycopg.connect(owner_dsn) as owner:
        guarded = {row[0] for row in owner.execute(APPEND_ONLY)}
    assert guarded >= PROMISED
    with psycopg.connect(catalog_dsn, autocommit=True) as application:
        for table in sorted(guarded):
            name = sql.Identifier("lastgood", table)
            for form in ("DELETE FROM {}", "TRUNCATE {}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    application.execute(sql.SQL(form).format(name))


def test_the_application_owns_no_table(catalog_dsn: str) -> None:
    with psycopg.connect(catalog_dsn) as application:
        owned = application.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'lastgood'"
            " AND tableowner = current_user"
        ).fetchall()
    assert owned == []


def test_history_goes_forward_although_the_clock_steps_back(
    owner_dsn: str, catalog_dsn: str
) -> None:
    with psycopg.connect(owner_dsn) as owner:
        stage_id = _stage(owner)
        catalog = Catalog(catalog_dsn)
        with catalog.transaction() as tx:
            locks.project_shared(tx, "vision")
            locks.stages(tx, [stage_id])
            first = history.record(tx, stage_id, "one", actor="test", facts={})
        owner.execute(
            "CREATE OR REPLACE FUNCTION lastgood.catalog_clock() RETURNS timestamptz"
            " LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() - interval '1 day' $$"
        )
        owner.commit()
        with catalog.transaction() as tx:
            locks.project_shared(tx, "vision")
            locks.stages(tx, [stage_id])
            second = history.record(tx, stage_id, "two", actor="test", facts={})
        catalog.close()
    assert (first.number, second.number) == (1, 2)
    assert second.recorded_at > first.recorded_at


def test_another_isolation_level_is_refused_at_connect(catalog_dsn: str) -> None:
    strict = make_conninfo(catalog_dsn, options="-c default_transaction_isolation=serializable")
    with pytest.raises(CatalogSetup, match="serializable, not read committed"):
        Catalog(strict)


@pytest.mark.parametrize(
    ("tuned", "used"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_server_tuned_to_lose_commits_loses_none_of_the_catalogs(
    catalog_dsn: str, tuned: str, used: str
) -> None:
    dsn = make_conninfo(catalog_dsn, options=f"-c synchronous_commit={tuned}")
    with Catalog(dsn) as catalog:
        for transaction in (catalog.transaction, catalog.transaction_apart):
            with transaction() as tx:
                assert tx.execute("SHOW synchronous_commit").fetchone() == {
                    "synchronous_commit": used
                }


def test_a_database_without_the_schema_is_refused_with_the_way_out(
    postgres: EmbeddedPostgres,
) -> None:
    with pytest.raises(CatalogSetup, match="lastgood migrate"):
        Catalog(postgres.dsn())


def test_the_code_asks_for_the_newest_migration() -> None:
    assert head() == SCHEMA_REVISION
