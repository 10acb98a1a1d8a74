"""A world whose catalog can be lost, or put back to an older dump."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import stages as catalog_stages
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.flows import control_keys
from lastgood.flows.rebuilding import rebuild
from lastgood.flows.rebuilding.result import Result
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores.s3 import S3Store
from tests.conftest import OWNER_ROLE
from tests.retention.world import PROJECT, World, opened


@dataclass(frozen=True)
class Database:
    """Another database of the same server."""

    owner_dsn: str
    app_dsn: str


class Databases:
    """Makes databases beside the test's own."""

    def __init__(self, postgres: EmbeddedPostgres, template: str, app_dsn: str) -> None:
        self._postgres = postgres
        self._template = template
        self._app_dsn = app_dsn
        self.made: list[str] = []

    def empty(self) -> Database:
        """A freshly migrated one: its identity is its own."""
        made = self._copy(self._template)
        with psycopg.connect(made.owner_dsn) as owner:
            owner.execute("UPDATE lastgood.identity SET catalog_id = gen_random_uuid()")
        return made

    def dump(self) -> Database:
        """The test's catalog as it is now."""
        with psycopg.connect(self._app_dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                "   AND usename = current_user"
            )
        return self._copy(str(conninfo_to_dict(self._app_dsn)["dbname"]))

    def _copy(self, template: str) -> Database:
        name = f"other_{secrets.token_hex(6)}"
        self._postgres.create_database(name, template=template, owner=OWNER_ROLE)
        self.made.append(name)
        return Database(
            self._postgres.dsn(name, OWNER_ROLE), make_conninfo(self._app_dsn, dbname=name)
        )


@pytest.fixture
def databases(
    postgres: EmbeddedPostgres, template_catalog: str, catalog_dsn: str
) -> Iterator[Databases]:
    found = Databases(postgres, template_catalog, catalog_dsn)
    yield found
    for name in found.made:
        postgres.drop_database(name)


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture(params=["file", "unversioned", "versioned"])
def any_world(
    request: pytest.FixtureRequest,
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
) -> Iterator[World]:
    """The same over a file store and over buckets with and without versions."""
    if request.param == "file":
        with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
            yield found
        return
    client = request.getfixturevalue("ceph_client")
    bucket = request.getfixturevalue("make_ceph_bucket")(versioned=request.param == "versioned")
    with opened(catalog_dsn, owner_dsn, tmp_path, S3Store("cloud", client, bucket, "a")) as found:
        yield found


Lose = Callable[[World], World]


@pytest.fixture
def lose(databases: Databases, tmp_path: Path) -> Iterator[Lose]:
    """The same stores with an empty catalog, as after `lastgood migrate` and `lastgood apply`."""
    with ExitStack() as stack:

        def lost(world: World) -> World:
            made = databases.empty()
            catalog = stack.enter_context(Catalog(made.app_dsn))
            owner = stack.enter_context(psycopg.connect(made.owner_dsn, autocommit=True))
            found = World(catalog, owner, world.store, world.stores)
            configure(found, tmp_path / "store")
            return found

        yield lost


Older = Callable[[World], Callable[[World], World]]


@pytest.fixture
def older(databases: Databases, owner_dsn: str) -> Iterator[Older]:
    """Takes a dump; what it answers opens it later over the world's stores."""
    with ExitStack() as stack:

        def take(source: World) -> Callable[[World], World]:
            source.owner.close()
            made = databases.dump()
            source.owner = stack.enter_context(psycopg.connect(owner_dsn, autocommit=True))

            def reopen(world: World) -> World:
                catalog = stack.enter_context(Catalog(made.app_dsn))
                owner = stack.enter_context(psycopg.connect(made.owner_dsn, autocommit=True))
                return World(catalog, owner, world.store, world.stores)

            return reopen

        yield take


def configure(world: World, root: Path) -> None:
    """What `lastgood apply` writes before it finds the store to be another catalog's."""
    kind = world.store.profile.kind
    config = {"name": world.store.name, "kind": kind, "root": str(root)}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow(world.store.name, kind, config, "rack-1", "fast"))
        projects.put(tx, Project(PROJECT, "team", world.store.name, "short", {}, None))
    world.promote()


def publish(world: World, *stages: str) -> None:
    """Write the control keys that a coordinator writes before it answers."""
    for stage in stages or ("pretrain",):
        with world.catalog.transaction() as tx:
            found = catalog_stages.find(tx, world.stage_name(stage))
        assert found is not None
        control_keys.publish(
            world.catalog, [world.store], PROJECT, found.stage_id, generation=found.generation
        )


def checkpoints_of(world: World) -> list[tuple[object, ...]]:
    """Every checkpoint that can be restored, with its manifest, and where each pointer stands."""
    return world.owner.execute(
        """
        SELECT s.workload, s.stage, k.generation, k.sequence, k.step, k.manifest, k.total_bytes,
               k.metrics, k.final, m.body, c.prefix, c.control_bytes,
               p.checkpoint_id IS NOT NULL AS latest,
               ARRAY(SELECT depends_on FROM lastgood.dependencies d WHERE d.manifest = k.manifest),
               ARRAY(SELECT (path, size_bytes, sha256)::text FROM lastgood.copy_objects o
                      WHERE o.copy_id = c.copy_id ORDER BY path)
          FROM lastgood.checkpoints k
          JOIN lastgood.stages s USING (stage_id)
          JOIN lastgood.copies c USING (checkpoint_id)
          JOIN lastgood.manifests m ON m.project = k.project AND m.digest = k.manifest
          LEFT JOIN lastgood.latest_pointers p USING (checkpoint_id)
         WHERE c.state = 'present' ORDER BY 1, 2, 3, 4
        """
    ).fetchall()


def rebuilt(world: World, **options: Any) -> Result:
    given: Mapping[str, Any] = {"because": "the disk died", "actor": "operator:ann", **options}
    return rebuild.run(world.catalog, world.stores, **given)
