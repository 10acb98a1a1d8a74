"""A catalog that is behind its stores serves nothing and deletes nothing."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogBehind, ForeignCatalog, Unavailable
from lastgood.flows.cached_guard import CachedGuard
from lastgood.flows.control_keys import guard
from lastgood.flows.services import Services
from lastgood.flows.sweeping import sweep
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores.open import Stores
from tests.conftest import OWNER_ROLE
from tests.coordinator.api import Api, Writer, ok, refused
from tests.coordinator.conftest import Server
from tests.waiting import wait_for

FILES = {"a.bin": b"a" * 100}
Restore = Callable[[], str]


@pytest.fixture
def dump(postgres: EmbeddedPostgres, catalog_dsn: str) -> Iterator[Callable[[], str]]:
    """Copies the catalog as it is now; answers the DSN of the copy, an older dump from then on."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    source = str(conninfo_to_dict(catalog_dsn)["dbname"])
    made: list[str] = []

    def copy() -> str:
        name = f"dump_{secrets.token_hex(6)}"
        _end_sessions(catalog_dsn)
        postgres.create_database(name, template=source, owner=OWNER_ROLE)
        made.append(name)
        return make_conninfo(catalog_dsn, dbname=name)

    yield copy
    for name in made:
        postgres.drop_database(name)


def _end_sessions(dsn: str) -> None:
    """A template must have no sessions; the pools of the test make new ones when asked."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            "   AND usename = current_user"
        )


def _hold(catalog: Catalog) -> None:
    from lastgood.catalog.jobs import copies
    from lastgood.catalog.keeping.holds import NewHold
    from lastgood.flows.keeping import hold

    services = Services.of(catalog)
    with catalog.transaction() as tx:
        [copy] = copies.in_state(tx, "vision", copies.State.PRESENT)
    new = NewHold(kind="incident", owner="ann", reason="look", placed_by="ann")
    hold.place(services.catalog, services.stores, "vision", new, copy.checkpoint)


def _commit(writer: Writer) -> None:
    writer.save(2, FILES)


def _acquire(writer: Writer) -> None:
    writer.api.writer(after=1)


@pytest.mark.parametrize("missing", ["commit", "hold", "generation"])
def test_an_older_dump_refuses_to_serve_and_to_delete(
    api: Api,
    catalog: Catalog,
    dump: Restore,
    missing: str,
) -> None:
    writer = api.writer()
    writer.save(1, FILES)
    older = dump()
    if missing == "commit":
        _commit(writer)
    elif missing == "hold":
        _hold(catalog)
    else:
        _acquire(writer)

    with Server(older) as url, httpx.Client(base_url=url, timeout=60) as client:
        restored = Api(client, api.project, api.key)
        behind = Writer(restored, writer.token, 1)
        answers = [
            restored.acquire(1, key="new"),
            restored.get("checkpoints/latest", workload="resnet", stage="pretrain"),
            restored.reader(),
            behind.prepare(3, FILES),
            behind.commit("0" * 8 + "-0000-4000-8000-" + "0" * 12, behind.manifest(3, FILES)),
        ]
        for answer in answers:
            problem = refused(answer, 503, "catalog-behind")
            assert "lastgood rebuild" in problem["detail"]
            assert "retry-after" in answer.headers
    with Catalog(older) as behind_catalog:
        stores = Services.of(behind_catalog).stores
        with pytest.raises(CatalogBehind):
            guard(behind_catalog, stores, "vision")
        with pytest.raises(CatalogBehind):
            sweep.run(behind_catalog, stores, "vision", actor="test")
    # The catalog that knows everything goes on.
    assert ok(api.reader(), 201)["checkpoint"] is not None


def test_a_dump_that_went_its_own_way_is_found_by_what_it_recorded(api: Api, dump: Restore) -> None:
    writer = api.writer()
    writer.save(1, FILES)
    twin = dump()
    writer.save(2, FILES)
    with Server(twin) as url, httpx.Client(base_url=url, timeout=60) as client:
        restored = Api(client, api.project, api.key)
        refused(restored.acquire(1, key="twin"), 503, "catalog-behind")


def test_two_catalogs_on_one_prefix_are_refused(
    api: Api,
    catalog: Catalog,
    services: Services,
    postgres: EmbeddedPostgres,
    template_catalog: str,
    catalog_dsn: str,
    tmp_path: Path,
) -> None:
    from psycopg.conninfo import make_conninfo

    from lastgood.flows.settings.apply import apply

    name = f"second_{secrets.token_hex(6)}"
    postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
    try:
        with Catalog(make_conninfo(catalog_dsn, dbname=name)) as second:
            # A template's copy has its identity; a catalog that was made anew has its own.
            _new_identity(postgres, name)
            with pytest.raises(ForeignCatalog):
                apply(second, tmp_path / "config", actor="operator:test")
            with catalog.transaction() as ours, second.transaction() as theirs:
                # Written for a rebuild that is to take over, and not let in.
                assert projects.stores(theirs) == projects.stores(ours)
            with pytest.raises(ForeignCatalog):
                guard(second, Services.of(second).stores)
    finally:
        postgres.drop_database(name)
    guard(catalog, services.stores)
    api.writer().save(1, FILES)


def _new_identity(postgres: EmbeddedPostgres, database: str) -> None:
    import psycopg

    with psycopg.connect(postgres.dsn(database, OWNER_ROLE)) as owner:
        owner.execute("UPDATE lastgood.identity SET catalog_id = gen_random_uuid()")


def test_control_keys_with_another_content_are_evidence(
    api: Api, services: Services, store_root: Path
) -> None:
    api.writer().save(1, FILES)
    events = store_root / "control/stages/vision/resnet/pretrain/event"
    newest = max(events.iterdir())
    newest.chmod(0o600)
    newest.write_text(
        newest.read_text().replace("committed", "something").replace("pointer-moved", "something")
    )
    with pytest.raises(CatalogBehind, match="something"):
        guard(services.catalog, services.stores, "vision")


def test_a_store_that_does_not_answer_holds_up_its_own_project_alone(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def guard_slowly(catalog: Catalog, stores: Stores, project: str, checked: set[str]) -> None:
        if project == "silent":
            asked.set()
            answers.wait(120)

    monkeypatch.setattr("lastgood.flows.control_keys.guard", guard_slowly)
    cached = CachedGuard(services)
    with ThreadPoolExecutor(2) as pool:
        silent = pool.submit(cached.require, "silent")
        assert asked.wait(60)
        try:
            pool.submit(cached.require, "other").result(timeout=60)
            assert not silent.done()
        finally:
            answers.set()


def test_who_asks_while_a_silent_store_is_asked_again_does_not_wait(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    answers = threading.Event()

    def guard_slowly(catalog: Catalog, stores: Stores, project: str, checked: set[str]) -> None:
        calls.append(project)
        if len(calls) == 1:
            raise Unavailable(what="store cold", reason="silent")
        answers.wait(120)

    monkeypatch.setattr("lastgood.flows.control_keys.guard", guard_slowly)
    cached = CachedGuard(services)
    with pytest.raises(Unavailable):
        cached.require("vision")
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(cached.require, "vision")
        try:
            wait_for(lambda: len(calls) == 2)
            frames = []
            for _ in range(3):
                with pytest.raises(Unavailable, match="store cold") as refused_at_once:
                    cached.require("vision")
                frames.append(len(refused_at_once.traceback))
            assert frames == frames[:1] * 3  # not those of everybody who was refused before
            assert not again.done()
        finally:
            answers.set()
        again.result(timeout=60)
    cached.require("vision")
