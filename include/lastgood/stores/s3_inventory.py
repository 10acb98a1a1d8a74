"""Reports of S3 Inventory: found, checked, and read as a listing would be.

A report is a `manifest.json` beside a `manifest.checksum`, and data files that the manifest names
with their sizes and MD5. CSV files have no header and URL-encoded keys, a space as `+`; keys of
Parquet files are as they are. Rows come in no order that is promised.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from lastgood.errors import LastgoodError
from lastgood.stores import s3_pages
from lastgood.stores.base import KeyMissing
from lastgood.stores.s3_client import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MANIFEST = "manifest.json"
CHECKSUM = "manifest.checksum"
_FORMATS = ("CSV", "Parquet")
_CHUNK_BYTES = 1 << 20
_BATCH_ROWS = 20_000
# What each column is called in a CSV schema, and in a Parquet file.
_CSV_COLUMNS = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
}


class InventoryReportRefused(LastgoodError):
    """The S3 Inventory report {report} is refused: {reason}."""

    status = 422
    type = "inventory-report-refused"


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One data file of a report."""

    key: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report whose manifest is as its checksum says. `created_at` is the server's time (UTC) at
    which it began; `columns` are in the order of a CSV row."""

    address: str
    bucket: str
    source_bucket: str
    created_at: datetime
    format: str
    columns: Sequence[str]
    files: Sequence[ReportFile]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One row, its key exact."""

    key: str
    version_id: str | None
    is_latest: bool
    is_delete_marker: bool
    size_bytes: int
    modified_at: datetime | None
    etag: str | None


def find_report(client: S3Client, store: str, address: str) -> Report:
    """The report at an address: `s3://bucket/…/manifest.json`, or the folder of a configuration's
    reports, whose newest is taken. Raises InventoryReportRefused, StoreError."""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not bucket or not key:
        reason = "an address is s3://BUCKET/KEY of a manifest.json, or of the folder of reports"
        raise InventoryReportRefused(report=address, reason=reason)
    if not key.endswith(MANIFEST):
        key = _newest(client, store, bucket, key.rstrip("/") + "/", address)
    named = f"s3://{bucket}/{key}"
    content = _small(client, store, bucket, key)
    try:
        checksum = _small(client, store, bucket, key.removesuffix(MANIFEST) + CHECKSUM)
    except KeyMissing as error:
        reason = f"{CHECKSUM} is not beside its manifest: it may still be arriving; try again later"
        raise InventoryReportRefused(report=named, reason=reason) from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum.decode("ascii", "replace").strip().strip('"').lower() != found:
        raise InventoryReportRefused(report=named, reason="its manifest is not as its checksum")
    return _parsed(named, bucket, content)


def _newest(client: S3Client, store: str, bucket: str, folder: str, address: str) -> str:
    with translated(store, folder, "list the reports"):
        found = [
            one.key
            for one in s3_pages.current(client, bucket, folder)
            if one.key.endswith(f"/{MANIFEST}") and "/hive/" not in one.key
        ]
    if not found:
        raise InventoryReportRefused(report=address, reason="there is no report below it")
    return max(found)  # the folders are named by their time


def _small(client: S3Client, store: str, bucket: str, key: str) -> bytes:
    with translated(store, key, "read the report"):
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    return body


def _parsed(address: str, bucket: str, content: bytes) -> Report:
    try:
        document: Mapping[str, Any] = json.loads(content)
        form = str(document["fileFormat"])
        created = datetime.fromtimestamp(int(document["creationTimestamp"]) / 1000, UTC)
        files = [
            ReportFile(one["key"], int(one["size"]), one["MD5checksum"].lower())
            for one in document["files"]
        ]
        source, schema = str(document["sourceBucket"]), str(document["fileSchema"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InventoryReportRefused(
            report=address, reason=f"its manifest cannot be read: {error!r}"
        ) from error
    if form not in _FORMATS:
        reason = f"its files are {form}; configure the inventory for Parquet or CSV"
        raise InventoryReportRefused(report=address, reason=reason)
    columns = (
        [_CSV_COLUMNS.get(one.strip(), one.strip()) for one in schema.split(",")]
        if form == "CSV"
        else _parquet_columns(schema)
    )
    for wanted in ("key", "size"):
        if wanted not in columns:
            reason = f"it has no column {wanted}; add it to the inventory's optional fields"
            raise InventoryReportRefused(report=address, reason=reason)
    return Report(address, bucket, source, created, form, columns, files)


def _parquet_columns(schema: str) -> list[str]:
    """The names of a Parquet message, `optional int64 size;` and so on."""
    fields = schema.partition("{")[2].rpartition("}")[0].split(";")
    words = [field.partition("(")[0].split() for field in fields]
    return [one[2] for one in words if len(one) >= 3]


def bring(client: S3Client, store: str, report: Report, file: ReportFile, path: Path) -> None:
    """Download a data file and hold it against its MD5. Raises InventoryReportRefused."""
    digest = hashlib.md5(usedforsecurity=False)
    with translated(store, file.key, "read the report"), path.open("wb") as target:
        body = client.get_object(Bucket=report.bucket, Key=file.key)["Body"]
        for chunk in body.iter_chunks(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    if digest.hexdigest() != file.md5:
        reason = f"{file.key} is not as its MD5 checksum"
        raise InventoryReportRefused(report=report.address, reason=reason)


def rows(report: Report, path: Path) -> Iterator[ReportRow]:
    """The rows of a downloaded data file."""
    try:
        if report.format == "CSV":
            yield from _csv_rows(report.columns, path)
        else:
            yield from _parquet_rows(path)
    except (ValueError, KeyError, OSError, EOFError, zlib.error, csv.Error) as error:
        reason = f"{path.name} cannot be read: {error}"
        raise InventoryReportRefused(report=report.address, reason=reason) from error


def _csv_rows(columns: Sequence[str], path: Path) -> Iterator[ReportRow]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for number, values in enumerate(csv.reader(file), start=1):
            if len(values) != len(columns):
                seen = f"{len(values)} values for {len(columns)} columns"
                raise ValueError(f"row {number} has {seen}")
            row = dict(zip(columns, values, strict=True))
            yield _row({**row, "key": unquote_plus(row["key"], errors="strict")})


def _parquet_rows(path: Path) -> Iterator[ReportRow]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        known = [one for one in _CSV_COLUMNS.values() if one in file.schema_arrow.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=known):
            yield from (_row(row) for row in batch.to_pylist())


def _row(row: Mapping[str, Any]) -> ReportRow:
    modified = row.get("last_modified_date")
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified) if modified else None
    if isinstance(modified, datetime) and modified.tzinfo is None:
        modified = modified.replace(tzinfo=UTC)
    return ReportRow(
        key=row["key"],
        version_id=row.get("version_id") or None,
        is_latest=_flag(row.get("is_latest"), default=True),
        is_delete_marker=_flag(row.get("is_delete_marker"), default=False),
        size_bytes=int(row["size"] or 0),
        modified_at=modified,
        etag=row.get("e_tag") or None,
    )


def _flag(value: object, *, default: bool) -> bool:
    if value in (None, ""):
        return default
    return value if isinstance(value, bool) else str(value).lower() == "true"
