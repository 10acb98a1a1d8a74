"""The catalog's side of an inventory, taken out by COPY and written as Parquet in the order of
keys."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from lastgood.catalog.db import Transaction
from lastgood.catalog.reconciliation import inventory
from lastgood.flows.inventories.rows import EXPECTED, RowWriter, Written

ROWS_PER_FILE = 1_000_000
_BLOCK_BYTES = 4 << 20
_TYPES = {
    "key": pa.binary(),
    "size": pa.int64(),
    "version_id": pa.string(),
    "state": pa.dictionary(pa.int32(), pa.string()),
    "project": pa.dictionary(pa.int32(), pa.string()),
    "settled": pa.bool_(),
}


def export_expected(tx: Transaction, store: str, folder: Path) -> list[Written]:
    """Write what the catalog expects in `store` below `folder`, in files that follow each other in
    the order of keys. Memory: one block of text and one row group."""
    files: list[Written] = []
    writer: RowWriter | None = None
    in_file = 0
    for batch in _batches(tx, store):
        if writer is None:
            path = folder / f"expected-{len(files):04d}.parquet"
            writer = RowWriter(path, EXPECTED)
        writer.add_batch(batch)
        in_file += batch.num_rows
        if in_file >= ROWS_PER_FILE:
            files.append(writer.close())
            writer, in_file = None, 0
    if writer is not None:
        files.append(writer.close())
    return files


def _batches(tx: Transaction, store: str) -> Iterator[pa.RecordBatch]:
    text = io.BufferedReader(_Chunks(inventory.export_expected(tx, store)), _BLOCK_BYTES)
    if not text.peek(1):
        return
    reader = csv.open_csv(
        text,
        read_options=csv.ReadOptions(column_names=list(_TYPES), block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=_TYPES,
            true_values=["t"],
            false_values=["f"],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    yield from reader


class _Chunks(io.RawIOBase):
    """What comes in chunks, as a file to read from."""

    def __init__(self, chunks: Iterator[memoryview]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken
