"""An inventory from an S3 Inventory report is the one that a listing gives, or is refused."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from uuid import uuid4

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lastgood.flows.inventories.by_name import opened as kept
from lastgood.flows.inventories.by_name import read, take
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.rows import rows_of
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import EVERYTHING, StoredObject
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_inventory import InventoryReportRefused
from tests.retention.world import PROJECT, World, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

COLUMNS = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"
NAMES = ["per%20cent", "a+b", "with space", "caf\u00e9", "cafe\u0301", 'q"uote', "x,y"]


@dataclass
class Reports:
    """Writes reports of a bucket as S3 does, into another bucket."""

    client: S3Client
    source: str
    bucket: str
    form: str = "CSV"
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    schema: str = COLUMNS
    break_file: Callable[[bytes], bytes] = bytes
    damage: Callable[[bytes], bytes] = bytes  # before the digest is made of it
    break_manifest: Callable[[bytes], bytes] = bytes
    not_yet: set[str] = field(default_factory=set)
    changes: dict[str, Any] = field(default_factory=dict)

    def write(self, store: S3Store) -> str:
        """Two data files, in no order; answers the folder of the reports."""
        folder = f"reports/{self.source}/daily"
        listed = list(store.list(EVERYTHING, versions=True))
        halves = [listed[1::2], listed[::2]]
        files = []
        for number, half in enumerate(halves):
            content = self.damage(self._data(store, half))
            key = f"{folder}/data/{number}.{'csv.gz' if self.form == 'CSV' else 'parquet'}"
            self.client.put_object(Bucket=self.bucket, Key=key, Body=self.break_file(content))
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
            files.append({"key": key, "size": len(content), "MD5checksum": digest})
        manifest = {
            "sourceBucket": self.source,
            "destinationBucket": f"arn:aws:s3:::{self.bucket}",
            "version": "2016-11-30",
            "creationTimestamp": str(int(self.created_at.timestamp() * 1000)),
            "fileFormat": self.form,
            "fileSchema": self.schema if self.form == "CSV" else PARQUET,
            "files": files,
            **self.changes,
        }
        content = json.dumps(manifest).encode()
        checksum = hashlib.md5(content, usedforsecurity=False).hexdigest().encode()
        at = f"{folder}/{self.created_at:%Y-%m-%dT%H-%MZ}"
        written = {"manifest.json": self.break_manifest(content), "manifest.checksum": checksum}
        for name in written.keys() - self.not_yet:
            body = written[name]
            self.client.put_object(Bucket=self.bucket, Key=f"{at}/{name}", Body=body)
        return f"s3://{self.bucket}/{folder}/"

    def _data(self, store: S3Store, listed: list[StoredObject]) -> bytes:
        rows = [
            (
                self.source,
                store.prefix + one.key,
                one.version_id or "",
                one.is_latest and not one.hidden,
                one.is_delete_marker,
                one.size_bytes,
                one.modified_at,
                (one.etag or "").strip('"'),
            )
            for one in listed
        ]
        rows.append((self.source, "elsewhere/key", "", True, False, 7, self.created_at, ""))
        return _csv(rows) if self.form == "CSV" else _parquet(rows)


PARQUET = (
    "message s3.inventory {  required binary bucket (UTF8);  required binary key (UTF8);"
    "  optional binary version_id (UTF8);  optional boolean is_latest;"
    "  optional boolean is_delete_marker;  optional int64 size;"
    "  optional int64 last_modified_date (TIMESTAMP(MILLIS,true));"
    "  optional binary e_tag (UTF8);}"
)


def _csv(rows: list[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for bucket, key, version, latest, marker, size, modified, etag in rows:
        shown = modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        encoded = quote_plus(key, safe="/")
        flags = [str(one).lower() for one in (latest, marker)]
        writer.writerow([bucket, encoded, version, *flags, "" if marker else size, shown, etag])
    return gzip.compress(text.getvalue().encode())


def _parquet(rows: list[tuple[Any, ...]]) -> bytes:
    names = [
        *("bucket", "key", "version_id", "is_latest", "is_delete_marker"),
        *("size", "last_modified_date", "e_tag"),
    ]
    types = [pa.string()] * 3 + [pa.bool_()] * 2 + [pa.int64(), pa.timestamp("ms", "UTC")]
    columns = [
        pa.array(list(values), kind)
        for values, kind in zip(zip(*rows, strict=True), [*types, pa.string()], strict=True)
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names), sink)
    return sink.getvalue()


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path, moto_s3: str) -> Iterator[World]:
    client = prepared(
        boto3.client(
            "s3",
            endpoint_url=moto_s3,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=CONFIG,
        )
    )
    bucket = f"reported-{uuid4().hex[:12]}"
    for name in (bucket, f"{bucket}-reports"):
        client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = S3Store("bucket", client, bucket, "jobs")
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as made:
        yield made
    client.close()


def _reports(world: World, **how: Any) -> Reports:
    store = world.store
    assert isinstance(store, S3Store)
    return Reports(store.client, store.bucket, f"{store.bucket}-reports", **how)


def _take(world: World, reports: Reports) -> Inventory:
    store = world.store
    assert isinstance(store, S3Store)
    address = reports.write(store)
    manifest = take(
        world.catalog,
        world.stores,
        "bucket",
        accounts_for=[PROJECT],
        actor="test",
        report=address,
    )
    assert manifest.source.startswith(address)
    return read(world.catalog, world.stores, "bucket", manifest.inventory)


def _rows(world: World, name: str) -> list[tuple[Any, ...]]:
    place, manifest = kept(world.catalog, world.stores, "bucket", name)
    with place.opened(manifest) as paths:
        return [
            (row["key"], row["kind"], row["size"], row["version_id"], row["hidden"], row["alone"])
            for file in manifest.of("listed")
            for row in rows_of(paths[file.name])
            if not row["key"].startswith(b"control/inventories/")
        ]


def test_csv_and_parquet_reports_give_the_inventory_that_a_listing_gives(world: World) -> None:
    store = world.store
    assert isinstance(store, S3Store)
    committed = world.commit(1, dict.fromkeys(NAMES, b"k" * 9))
    for body in (b"1234567", b"123"):
        store.client.put_object(Bucket=store.bucket, Key="jobs/loose", Body=body)
    for name in NAMES:
        store.client.put_object(Bucket=store.bucket, Key=f"jobs/left/{name}", Body=b"12345")
    store.client.delete_object(Bucket=store.bucket, Key="jobs/left/a+b")
    listing = take(world.catalog, world.stores, "bucket", accounts_for=[PROJECT], actor="test")

    found = {form: _take(world, _reports(world, form=form)) for form in ("CSV", "Parquet")}

    for taken in found.values():
        assert _rows(world, taken.inventory) == _rows(world, listing.inventory)
        lines = taken.whole.equation.totals
        assert taken.whole.equation.closes()
        assert lines[Line.COMMITTED].size_bytes == committed.stored_bytes
        assert lines[Line.NONCURRENT].size_bytes == 7
        assert lines[Line.UNEXPLAINED].size_bytes == 3 + 5 * len(NAMES)


def test_what_happened_since_the_report_is_in_flight(world: World) -> None:
    world.commit(1)
    reports = _reports(world)
    store = world.store
    assert isinstance(store, S3Store)
    reports.write(store)
    later = world.commit(2)

    manifest = take(
        world.catalog,
        world.stores,
        "bucket",
        accounts_for=[PROJECT],
        actor="test",
        report=f"s3://{reports.bucket}/reports/{reports.source}/daily/",
    )
    taken = read(world.catalog, world.stores, "bucket", manifest.inventory)

    assert not taken.differences
    assert taken.in_flight.size_bytes >= later.stored_bytes
    assert taken.whole.equation.closes()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"created_at": datetime.now(UTC) - timedelta(days=3)}, "older than 2 days"),
    ({"not_yet": {"manifest.checksum"}}, "it may still be arriving; try again later"),
    ({"break_file": lambda raw: raw[:-1] + b"x"}, "not as its MD5 checksum"),
    ({"break_manifest": lambda raw: raw + b" "}, "not as its checksum"),
    ({"changes": {"fileFormat": "ORC"}}, "ORC; configure the inventory for Parquet or CSV"),
    ({"changes": {"sourceBucket": "another"}}, "of bucket another"),
    ({"changes": {"fileSchema": "Bucket, Key, Size"}}, "current versions only"),
    ({"changes": {"fileSchema": "Bucket, Key"}}, "no column size"),
    ({"changes": {"files": None}}, "cannot be read"),
    ({"damage": lambda raw: raw[:-12]}, "end-of-stream"),
    ({"damage": lambda raw: raw[:10] + b"\xff" * 20 + raw[30:]}, "cannot be read: Error -3"),
    ({"damage": lambda raw: gzip.compress(gzip.decompress(raw)[:-9])}, "row \\d+ has \\d values"),
]


def test_a_report_that_cannot_be_believed_is_refused(world: World) -> None:
    for number, (how, reason) in enumerate(REFUSED):
        at = datetime.now(UTC) + timedelta(minutes=number)  # the newest folder is taken
        with pytest.raises(InventoryReportRefused, match=reason):
            _take_alone(world, _reports(world, **{"created_at": at, **how}))


def _take_alone(world: World, reports: Reports) -> None:
    folder = reports.write(world.store)  # type: ignore[arg-type]
    at = f"{reports.created_at:%Y-%m-%dT%H-%MZ}"
    take(
        world.catalog,
        world.stores,
        "bucket",
        accounts_for=[PROJECT],
        actor="test",
        report=f"{folder}{at}/manifest.json",
    )
