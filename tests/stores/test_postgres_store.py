"""What a store in a database does beyond what every store does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from lastgood.errors import InvalidConfig
from lastgood.flows.settings.configuration import read_configuration
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyMissing,
    PartInvalid,
    Prefix,
    StoreError,
    UploadGone,
)
from lastgood.stores.open import StoreConfig, open_store
from lastgood.stores.postgres import PostgresStore
from lastgood.stores.postgres_database import create_tables
from lastgood.stores.profile import probe
from tests.conftest import APP_ROLE
from tests.factories import upload_object
from tests.stores.profile_table import answers, documented, nothing_is_left

MiB = 1 << 20
KEY = Key("demo/resnet/pretrain/1/7/model.safetensors")
SCHEMA = "small_jobs"


@pytest.fixture(scope="module")
def dsn(postgres: EmbeddedPostgres) -> Iterator[str]:
    postgres.create_role(APP_ROLE)
    postgres.create_database("store_of_small_jobs")
    create_tables(postgres.dsn("store_of_small_jobs"), SCHEMA, role=APP_ROLE)
    yield postgres.dsn("store_of_small_jobs", APP_ROLE)
    postgres.drop_database("store_of_small_jobs")


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"DELETE FROM {SCHEMA}.objects")
        connection.execute(f"DELETE FROM {SCHEMA}.uploads")
    opened = PostgresStore("small", dsn, SCHEMA)
    yield opened
    opened.close()


def rows(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT count(*) FROM {SCHEMA}.{table}").fetchone()
    assert found is not None
    count: int = found[0]
    return count


def interrupted(first: bytes, then: Callable[[], object], last: bytes) -> Iterator[bytes]:
    """Chunks between which something happens."""
    yield first
    then()
    yield last


def test_a_writer_that_comes_after_an_abort_leaves_nothing(store: PostgresStore, dsn: str) -> None:
    upload_id = store.create_upload(KEY, 3 * MiB)
    chunks = interrupted(bytes(2 * MiB), lambda: store.abort_upload(KEY, upload_id), bytes(1 * MiB))
    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 3 * MiB, chunks)
    assert (rows(dsn, "parts"), rows(dsn, "chunks")) == (0, 0)
    assert store.usage().used_bytes == 0


def test_a_second_writer_of_a_part_cannot_change_the_completed_object(
    store: PostgresStore, dsn: str
) -> None:
    upload_id = store.create_upload(KEY, 2 * MiB)
    part = store.write_part(KEY, upload_id, 1, 2 * MiB, [b"a" * (2 * MiB)])
    chunks = interrupted(
        b"b" * MiB, lambda: store.complete_upload(KEY, upload_id, [part]), b"b" * MiB
    )
    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 2 * MiB, chunks)
    assert store.read(KEY) == b"a" * (2 * MiB)
    assert rows(dsn, "parts") == 1


def test_what_a_dead_writer_left_is_counted_and_goes_with_the_upload(
    store: PostgresStore, dsn: str
) -> None:
    upload_id = store.create_upload(KEY, 3 * MiB)
    with psycopg.connect(dsn) as dead:  # as its transactions up to its death left them
        dead.execute(f"SET search_path TO {SCHEMA}")
        dead.execute(
            "INSERT INTO parts (upload_id, number, start, size_bytes) VALUES (%s, 1, 0, %s)",
            (upload_id, 3 * MiB),
        )
        dead.execute("INSERT INTO chunks SELECT part_id, 0, %s FROM parts", (bytes(MiB),))
    usage = store.usage()
    assert (usage.used_bytes, usage.causes) == (MiB, {"unfinished-parts": MiB})
    assert [one.part_bytes_held for one in store.uploads(Prefix(""))] == [0]
    part = store.write_part(KEY, upload_id, 1, 3 * MiB, [bytes(3 * MiB)])
    store.complete_upload(KEY, upload_id, [part])
    assert (rows(dsn, "parts"), rows(dsn, "chunks")) == (1, 3)
    assert store.usage().causes == {}


def test_a_part_cut_off_by_its_sender_is_dropped(store: PostgresStore, dsn: str) -> None:
    upload_id = store.create_upload(KEY, 3 * MiB)

    def cut_off() -> Iterator[bytes]:
        yield bytes(2 * MiB)
        raise ConnectionResetError("the job went away")

    with pytest.raises(ConnectionResetError):
        store.write_part(KEY, upload_id, 1, 3 * MiB, cut_off())
    with pytest.raises(PartInvalid, match="no such part"):
        store.write_part(KEY, upload_id, 2, 1, [b"x"])
    assert (rows(dsn, "parts"), rows(dsn, "chunks")) == (0, 0)


def test_a_reader_of_what_is_deleted_meanwhile_is_told(store: PostgresStore) -> None:
    published = upload_object(store, KEY, bytes(3 * MiB))
    with store.open(KEY) as stream:
        assert len(stream.read(10)) == 10
        list(store.delete([published]))
        with pytest.raises(KeyMissing):
            stream.read(3 * MiB)


def test_ranges_cross_chunks_and_parts(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastgood.stores.parts.PART_BYTES", 3 * MiB // 2)
    data = bytes(n % 251 for n in range(4 * MiB + 7))
    upload_object(store, KEY, data)
    for start, size in [(0, None), (MiB - 1, 2), (3 * MiB // 2 - 1, 2), (4 * MiB, 100), (5, MiB)]:
        with store.open(KEY, start=start, size_bytes=size) as stream:
            assert stream.read() == data[start:][:size]


def test_deletion_takes_every_chunk(store: PostgresStore, dsn: str) -> None:
    published = upload_object(store, KEY, bytes(5 * MiB))
    assert [one.outcome for one in store.delete([published])] == ["gone"]
    assert [rows(dsn, table) for table in ("objects", "parts", "chunks")] == [0, 0, 0]


def test_tables_that_are_not_there_name_the_way_out(dsn: str) -> None:
    with pytest.raises(StoreError, match="lastgood store create-tables"):
        PostgresStore("small", dsn, "elsewhere")


def test_making_the_tables_again_keeps_what_is_in_them(
    store: PostgresStore, postgres: EmbeddedPostgres
) -> None:
    store.put_new(KEY, b"{}")
    create_tables(postgres.dsn("store_of_small_jobs"), SCHEMA, role=APP_ROLE)
    assert store.read(KEY) == b"{}"


def test_who_may_not_create_a_schema_is_told_so(dsn: str) -> None:
    with pytest.raises(AccessRefused, match="permission denied"):
        create_tables(dsn, "another", role=APP_ROLE)


@pytest.mark.parametrize(
    "wrong", ["postgresql://u:hush@127.0.0.1:1/none", "host=127.0.0.1 hush=hush password=hush"]
)
def test_a_database_that_is_not_there_is_told_without_the_password(wrong: str) -> None:
    with pytest.raises(StoreError) as told:
        PostgresStore("small", wrong, SCHEMA)
    assert "hush" not in str(told.value)
    assert "hush" not in str(told.value.__cause__ or "")


def test_a_store_finds_its_database_by_an_airflow_connection_or_beside_the_catalog(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_new(KEY, b"{}")
    monkeypatch.setenv("AIRFLOW_CONN_SMALL_JOBS", dsn.replace("postgresql://", "postgres://"))
    monkeypatch.setenv("LASTGOOD_CATALOG", dsn)
    for connection in ("small_jobs", None):
        found = open_store(StoreConfig("small", "postgres", SCHEMA, connection=connection))
        assert isinstance(found, PostgresStore)
        assert found.read(KEY) == b"{}"
        found.close()


def test_a_configuration_names_a_schema(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    document = "name: small\nkind: postgres\nschema: {}\nfailure_domain: db-1\ntier: fast\n"
    (tmp_path / "stores/small.yaml").write_text(document.format(SCHEMA))
    (row,) = read_configuration(tmp_path).stores
    assert (row.kind, row.config["root"], row.config["connection"]) == ("postgres", SCHEMA, None)
    for schema in ("lastgood", "public", "pg_catalog", "Two", "a;drop"):
        (tmp_path / "stores/small.yaml").write_text(document.format(schema))
        with pytest.raises(InvalidConfig, match="no schema for a store"):
            read_configuration(tmp_path)


def test_the_documented_table_is_what_a_probe_finds(store: PostgresStore) -> None:
    assert answers(probe(store)) == documented()["postgres"]
    assert nothing_is_left(store)
