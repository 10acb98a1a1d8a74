"""The named causes for which a store's bytes are not simply the catalog's, each in bytes and
objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from lastgood.flows.inventory_merge import Cause
from lastgood.flows.inventory_tally import Amount, Difference, Place
from lastgood.rules.accounting import ALLOCATION_CAUSES, DELAY, REPLICATION, Compared

NONCURRENT = "noncurrent-versions"
MARKERS = "delete-markers"
PENDING = "pending-parts"
DELETED_OPEN = "deleted-but-open"
SNAPSHOTS = "snapshots"
_HARD_LINKS, _SPARSE, _ROUNDING = ALLOCATION_CAUSES
ALWAYS = (NONCURRENT, MARKERS, PENDING, *ALLOCATION_CAUSES, DELETED_OPEN, SNAPSHOTS, DELAY)
"""Causes that a report names even where there is nothing of them, with those of `Cause` and the
replication factor."""


def listed_causes(db: duckdb.DuckDBPyConnection, effective: str) -> dict[str, Amount]:
    """What the listing itself shows: versions, markers, names of one file, blocks against sizes.
    `effective` is a query for the rows that count."""
    db.execute(f"CREATE OR REPLACE TEMP VIEW listed_now AS {effective}")
    found = {}
    for kind, name in (("version", NONCURRENT), ("marker", MARKERS)):
        found[name] = _amount(db, "size", f"kind = '{kind}'")
    names = (
        "(SELECT size, allocated, row_number() OVER (PARTITION BY device, inode) AS name"
        " FROM listed_now WHERE inode IS NOT NULL)"
    )
    repeats = db.execute(
        "SELECT count(*), coalesce(sum(size), 0)::BIGINT, coalesce(sum(greatest(size - allocated,"
        " 0)), 0)::BIGINT, coalesce(sum(greatest(allocated - size, 0)), 0)::BIGINT"
        f" FROM {names} WHERE name > 1"
    ).fetchone()
    assert repeats is not None
    sparse = _amount(db, "size - allocated", "allocated < size")
    rounding = _amount(db, "allocated - size", "allocated > size")
    found[_HARD_LINKS] = Amount(-repeats[1], repeats[0])
    found[_SPARSE] = Amount(repeats[2] - sparse.size_bytes, sparse.objects)
    found[_ROUNDING] = Amount(rounding.size_bytes - repeats[3], rounding.objects)
    return found


def _amount(db: duckdb.DuckDBPyConnection, of: str, where: str) -> Amount:
    row = db.execute(
        f"SELECT coalesce(sum({of}), 0)::BIGINT, count(*) FROM listed_now WHERE {where}"
    ).fetchone()
    assert row is not None
    return Amount(row[0], row[1])


def causes_of(
    listed: Mapping[str, Amount],
    differences: Mapping[Place, Difference],
    uploads: Amount,
    compared: list[Compared],
) -> dict[str, Amount]:
    """Every cause of a whole store. A cause of the accounting is negative where it takes away."""
    found = {name: Amount() for name in ALWAYS} | dict(listed)
    found[PENDING] = uploads
    for cause in Cause:
        found[cause.value] = Amount()
    for place, one in differences.items():
        found[place.cause.value].add(one.amount.size_bytes, one.amount.objects)
    for told in compared:
        for name in (DELETED_OPEN, SNAPSHOTS, DELAY, REPLICATION):
            if name in told.causes:
                found[name] = Amount(told.causes[name], 0)
    return found


def causes_json(causes: Mapping[str, Amount]) -> list[dict[str, Any]]:
    """As reports show them, in the order of names."""
    return [
        {"cause": name, "bytes": one.size_bytes, "objects": one.objects}
        for name, one in sorted(causes.items())
    ]
