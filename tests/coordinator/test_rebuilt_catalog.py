"""An older dump that was rebuilt serves jobs again; the catalog of before serves them no more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lastgood.catalog.db import Catalog
from lastgood.flows.rebuilding import rebuild
from lastgood.flows.services import Services
from lastgood.stack.postgres import EmbeddedPostgres
from tests.conftest import OWNER_ROLE
from tests.coordinator.api import Api, Writer, ok, refused
from tests.coordinator.conftest import Server

FILES = {"a.bin": b"a" * 100}


@pytest.fixture
def copy_of_catalog(postgres: EmbeddedPostgres, catalog_dsn: str) -> Iterator[str]:
    """The name of a database that may be made from the catalog and is dropped at the end."""
    name = f"dump_{secrets.token_hex(6)}"
    yield name
    postgres.drop_database(name)


def _dump(postgres: EmbeddedPostgres, dsn: str, name: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            "   AND usename = current_user"
        )
    source = str(conninfo_to_dict(dsn)["dbname"])
    postgres.create_database(name, template=source, owner=OWNER_ROLE)
    return make_conninfo(dsn, dbname=name)


def test_a_rebuilt_dump_serves_jobs_again(
    api: Api, postgres: EmbeddedPostgres, catalog_dsn: str, copy_of_catalog: str
) -> None:
    writer = api.writer()
    writer.save(1, FILES)
    older = _dump(postgres, catalog_dsn, copy_of_catalog)
    writer.save(2, FILES)
    api.writer(after=1).save(1, FILES)

    with Server(older) as url, httpx.Client(base_url=url, timeout=60) as client:
        restored = Api(client, api.project, api.key)
        refused(restored.acquire(1, key="early"), 503, "catalog-behind")
        with Catalog(older) as catalog:
            told = rebuild.run(
                catalog, Services.of(catalog).stores, because="an old dump", actor="operator:ann"
            )
        assert (told.added, told.confirmed, told.flawless) == (2, 1, True)
        [stage] = told.stages
        assert (stage.generation, stage.latest) == (3, "vision/resnet/pretrain/2.1")

        fenced = Writer(restored, writer.token, 1)
        refused(fenced.prepare(3, FILES), 409, "fenced-generation")
        latest = ok(restored.get("checkpoints/latest", workload="resnet", stage="pretrain"))
        assert latest["checkpoint"]["id"] == "vision/resnet/pretrain/2.1"
        next_writer = restored.writer(after=3)
        next_writer.save(1, FILES)
        latest = ok(restored.get("checkpoints/latest", workload="resnet", stage="pretrain"))
        assert latest["checkpoint"]["id"] == "vision/resnet/pretrain/4.1"
        assert ok(restored.reader(), 201)["checkpoint"]["generation"] == 4
    refused(api.acquire(2, key="late"), 503, "catalog-behind")
