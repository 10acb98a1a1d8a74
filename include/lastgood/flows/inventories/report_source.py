"""An inventory from an S3 Inventory report, in place of a listing.

The report is as old as it says: whatever had an event since is listed once more when the inventory
is completed, and counted as in flight. Pending uploads are in no report and are always listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories
from lastgood.flows.inventories.join import engine, named
from lastgood.flows.inventories.kept import KeptFile, Place, new_name
from lastgood.flows.inventories.rows import REPORTED, RowWriter, rows_of, write_listed
from lastgood.flows.inventories.taking import Begun
from lastgood.rules.shards import WHOLE
from lastgood.stores.base import Key, Store, StoredObject
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_inventory import (
    InventoryReportRefused,
    Report,
    ReportRow,
    bring,
    find_report,
    rows,
)

_CLOCKS = timedelta(minutes=15)  # by which the server's clock may be ahead of the catalog's


def begin_from_report(
    catalog: Catalog,
    store: Store,
    place: Store,
    address: str,
    *,
    max_age: timedelta,
    actor: str,
) -> tuple[Begun, list[KeptFile], str]:
    """Begin an inventory with the rows of a report; answers its one shard's file and the report's
    address. Raises InventoryReportRefused for a report that is not of this store, too old, without
    the versions that the bucket keeps, or not as its checksums say."""
    if not isinstance(store, S3Store):
        reason = f"store {store.name} is no bucket"
        raise InventoryReportRefused(report=address, reason=reason)
    report = find_report(store.client, store.name, address)
    with catalog.transaction() as tx:
        now = history.now(tx)
    _require_fit(store, report)
    if now - report.created_at > max_age:
        reason = f"it is of {report.created_at.isoformat()}, older than {max_age}"
        raise InventoryReportRefused(report=report.address, reason=reason)
    begun = Begun(store.name, new_name(now), place.name, report.created_at - _CLOCKS, [WHOLE])
    with catalog.transaction() as tx:
        facts = {"report": report.address, "created_at": report.created_at.isoformat()}
        inventories.record(
            tx, store.name, begun.inventory, "started", place=place.name, facts=facts, actor=actor
        )
    at = Place(place, store.name, begun.inventory)
    with TemporaryDirectory(prefix="lastgood-inventory-") as scratch:
        written = write_listed(
            Path(scratch) / "listed-0000.parquet", _listed(store, report, Path(scratch))
        )
        return begun, [at.publish(written, "listed", after="", through=None)], report.address


def _require_fit(store: S3Store, report: Report) -> None:
    reason = None
    if report.source_bucket != store.bucket:
        reason = f"it is of bucket {report.source_bucket}, not of {store.bucket}"
    elif store.profile.versioned and not {"version_id", "is_latest", "is_delete_marker"} <= set(
        report.columns
    ):
        reason = "it lists current versions only, and this bucket keeps all: include all versions"
    if reason is not None:
        raise InventoryReportRefused(report=report.address, reason=reason)


def _listed(store: S3Store, report: Report, folder: Path) -> Iterator[StoredObject]:
    """The report's rows of this store, in the order of keys, as a listing gives them."""
    paths = []
    for number, file in enumerate(report.files):
        raw = folder / f"report-{number:04d}"
        bring(store.client, store.name, report, file, raw)
        path = folder / f"rows-{number:04d}.parquet"
        with RowWriter(path, REPORTED) as writer:
            for row in rows(report, raw):
                if row.key.startswith(store.prefix):
                    writer.add(_reported(row, len(store.prefix)))
            writer.close()
        raw.unlink()
        paths.append(path)
    if not paths:
        return
    ordered = folder / "ordered.parquet"
    with engine() as db:
        db.execute(
            f"COPY (SELECT * FROM read_parquet({named(paths)})"
            " ORDER BY key, is_latest DESC, modified DESC)"
            f" TO {named([ordered])[1:-1]} (FORMAT parquet)"
        )
    for _, group in groupby(rows_of(ordered), key=lambda row: row["key"]):
        yield from _of_key([dict(one) for one in group], versioned=store.profile.versioned)


def _reported(row: ReportRow, cut: int) -> tuple[object, ...]:
    return (
        row.key[cut:].encode("utf-8", "surrogatepass"),
        row.version_id,
        row.is_latest,
        row.is_delete_marker,
        row.size_bytes,
        row.modified_at,
        row.etag,
    )


def _of_key(entries: list[dict[str, object]], *, versioned: bool) -> Iterator[StoredObject]:
    """All of one key, the latest first, with what hides what."""
    hidden = bool(entries[0]["is_delete_marker"])
    newest = next((one for one in entries if not one["is_delete_marker"]), None)
    for one in entries:
        key, modified, etag = one["key"], one["modified"], one["etag"]
        assert isinstance(key, bytes)
        yield StoredObject(
            Key(key.decode("utf-8", "surrogatepass")),
            int(str(one["size"])),
            version_id=str(one["version_id"]) if versioned and one["version_id"] else None,
            is_latest=True if one is newest else bool(one["is_latest"]),
            is_delete_marker=bool(one["is_delete_marker"]),
            hidden=hidden and one is newest,
            modified_at=modified,  # type: ignore[arg-type]
            etag=None if etag is None else str(etag),
        )
