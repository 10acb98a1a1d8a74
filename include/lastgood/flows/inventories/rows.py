"""The rows of a kept inventory: their columns in Parquet, written in order and read back.

    listed      one row for each object, version, delete marker, and part of a pending upload
    expected    one row for each object that the catalog expects
    owned       one row for each prefix that somebody owns

Keys are their exact bytes. A name that is no UTF-8 stands as listings show it, with its own bytes
in `raw_key` beside it, so that the order of rows is the order of keys everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from lastgood.catalog.reconciliation.inventory import ExpectedObject, OwnedPrefix
from lastgood.stores.base import Key, Part, PendingUpload, StoredObject

ROWS_PER_GROUP = 122_880  # DuckDB reads a row group at a time, and makes its own of this size
_BATCH_ROWS = 20_480
_NAMES = pa.dictionary(pa.int32(), pa.string())
LISTED = pa.schema(
    [
        ("key", pa.binary()),
        ("kind", _NAMES),  # object | version | marker | part
        ("size", pa.int64()),
        ("allocated", pa.int64()),
        ("alone", pa.bool_()),  # no other row has this key
        ("hidden", pa.bool_()),
        ("is_latest", pa.bool_()),
        ("version_id", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),  # of a part: when its upload was initiated
        ("etag", pa.string()),
        ("sha256", pa.string()),
        ("is_foreign", _NAMES),  # what it is instead of an object
        ("device", pa.int64()),  # of a file with further names, with its number
        ("inode", pa.int64()),
        ("raw_key", pa.binary()),
        ("upload_id", pa.string()),
        ("part_number", pa.int32()),
    ]
)
EXPECTED = pa.schema(
    [
        ("key", pa.binary()),
        ("size", pa.int64()),
        ("version_id", pa.string()),
        ("state", _NAMES),
        ("project", _NAMES),
        ("settled", pa.bool_()),
    ]
)
OWNED = pa.schema(
    [
        ("prefix", pa.binary()),
        ("project", _NAMES),
        ("attempt", _NAMES),
        ("copy", _NAMES),
        ("lease_live", pa.bool_()),
        ("generation", pa.int64()),
        ("event", pa.int64()),
    ]
)
REPORTED = pa.schema(
    [
        ("key", pa.binary()),
        ("version_id", pa.string()),
        ("is_latest", pa.bool_()),
        ("is_delete_marker", pa.bool_()),
        ("size", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("etag", pa.string()),
    ]
)
_INT64_WRAP = 1 << 64


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file: its rows, the bytes of its first and last key, its own bytes and digest."""

    path: Path
    rows: int
    first: bytes
    last: bytes
    size_bytes: int
    sha256: str


class RowWriter:
    """Writes rows of one schema into one file, a batch at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._keyed = schema.names[0]
        self._rows: list[tuple[Any, ...]] = []
        self._written = 0
        self._first = self._last = b""
        self._file = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=[one.name for one in schema if pa.types.is_dictionary(one.type)],
            column_encoding={self._keyed: "DELTA_BYTE_ARRAY"},
        )
        self._pending: list[pa.RecordBatch] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """Append a row; its first value is the key, and rows come in the order of keys."""
        self._rows.append(row)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Append many rows at once, in order."""
        self._flush()
        self._take(batch.cast(self._schema))

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(list(values), field.type.value_type).dictionary_encode()
            if pa.types.is_dictionary(field.type)
            else pa.array(list(values), field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._rows = []
        self._take(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if not self._written:
            self._first = batch.column(0)[0].as_py()
        self._last = batch.column(0)[batch.num_rows - 1].as_py()
        self._written += batch.num_rows
        self._pending.append(batch)
        if sum(one.num_rows for one in self._pending) >= ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema).unify_dictionaries()
            self._file.write_table(table, row_group_size=len(table))
            self._pending = []

    def close(self) -> Written:
        """End the file; answers what was written."""
        self._flush()
        self._write_group()
        self._file.close()
        size_bytes, sha256 = digest_of(self._path)
        return Written(self._path, self._written, self._first, self._last, size_bytes, sha256)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def digest_of(path: Path) -> tuple[int, str]:
    """(bytes, SHA-256) of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def write_listed(path: Path, listed: Iterable[StoredObject]) -> Written:
    """Write a listing, which comes in order; rows whose key comes only once are marked `alone`."""
    with RowWriter(path, LISTED) as writer:
        before: StoredObject | None = None
        repeats = False
        for item in listed:
            if before is not None:
                same = item.key == before.key
                writer.add(_listed_row(before, alone=not (same or repeats)))
                repeats = same
            before = item
        if before is not None:
            writer.add(_listed_row(before, alone=not repeats))
        return writer.close()


def _listed_row(item: StoredObject, *, alone: bool) -> tuple[Any, ...]:
    kind = "marker" if item.is_delete_marker else "object" if item.is_latest else "version"
    device, inode = item.inode or (None, None)
    return (
        item.key.encode("utf-8", "surrogatepass"),
        kind,
        item.size_bytes,
        item.allocated_bytes,
        alone,
        item.hidden,
        item.is_latest,
        item.version_id,
        item.modified_at,
        item.etag,
        item.sha256,
        item.foreign,
        _signed(device),
        _signed(inode),
        item.raw_key,
        None,
        None,
    )


def _signed(number: int | None) -> int | None:
    """A 64-bit number as Parquet's signed one."""
    if number is None or number < _INT64_WRAP >> 1:
        return number
    return number - _INT64_WRAP


def stored_object(row: Mapping[str, Any]) -> StoredObject:
    """A row of `listed` as the store listed it, as far as a comparison needs it."""
    return StoredObject(
        Key(row["key"].decode("utf-8", "surrogatepass")),
        row["size"],
        allocated_bytes=row["allocated"],
        version_id=row["version_id"],
        is_latest=row["is_latest"],
        is_delete_marker=row["kind"] == "marker",
        hidden=row["hidden"],
        foreign=row["is_foreign"],
    )


def write_uploads(
    path: Path,
    pending: Iterable[PendingUpload],
    parts_of: Callable[[PendingUpload], Iterable[Part] | None],
) -> Written:
    """Write pending uploads, a row for each part that they hold. Where the parts cannot be told,
    or there are none, one row without a number stands for all of them."""
    with RowWriter(path, LISTED) as writer:
        for upload in pending:
            parts = list(parts_of(upload) or ())
            if sum(part.size_bytes for part in parts) != upload.part_bytes_held or not parts:
                writer.add(_part_row(upload, None, upload.part_bytes_held, None, None))
                continue
            for part in parts:
                writer.add(_part_row(upload, part.number, part.size_bytes, part.etag, part.sha256))
        return writer.close()


def _part_row(
    upload: PendingUpload, number: int | None, size_bytes: int, etag: str | None, sha: str | None
) -> tuple[Any, ...]:
    key = upload.key.encode("utf-8", "surrogatepass")
    return (
        *(key, "part", size_bytes, None, False, False, True, None, upload.initiated_at, etag, sha),
        *(None, None, None, None, upload.upload_id, number),
    )


def expected_row(one: ExpectedObject) -> tuple[Any, ...]:
    """A row of what the catalog expects."""
    return (
        one.key.encode(),
        one.size_bytes,
        one.version_id,
        one.copy_state,
        one.project,
        one.settled,
    )


def owned_row(one: OwnedPrefix) -> tuple[Any, ...]:
    """A row of whose a prefix is."""
    return (
        one.prefix.encode(),
        one.project,
        one.attempt,
        one.copy,
        one.lease_live,
        one.generation,
        one.event,
    )


def write_owned(path: Path, owned: Iterable[OwnedPrefix]) -> Written:
    """Write whose each prefix is."""
    with RowWriter(path, OWNED) as writer:
        for one in owned:
            writer.add(owned_row(one))
        return writer.close()


def read_owned(path: Path) -> Iterator[OwnedPrefix]:
    """The owned prefixes of a file, in order, in bounded memory."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            columns = [_plain(one).to_pylist() for one in batch.columns]
            for prefix, *others in zip(*columns, strict=True):
                yield OwnedPrefix(prefix.decode(), *others)


def _plain(column: pa.Array) -> pa.Array:
    """A column without its dictionary: many times faster to turn into Python's values."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, in order, in bounded memory."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            columns = [_plain(one).to_pylist() for one in batch.columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, values, strict=True))
