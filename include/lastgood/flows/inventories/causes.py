"""The named causes for which a store's bytes are not simply the catalog's, each in bytes and
objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from lastgood.flows.inventories.merge import Cause
from lastgood.flows.inventories.tally import Amount, Difference, Place
from lastgood.rules.accounting import ALLOCATION_CAUSES, DELAY, REPLICATION, Compared

NONCURRENT = "noncurrent-versions"
MARKERS = "delete-markers"
PENDING = "pending-parts"
DELETED_OPEN = "deleted-but-open"
SNAPSHOTS = "snapshots"
_HARD_LINKS, _SPARSE, _SYMLINKS, _ROUNDING = ALLOCATION_CAUSES
ALWAYS = (NONCURRENT, MARKERS, PENDING, *ALLOCATION_CAUSES, DELETED_OPEN, SNAPSHOTS, DELAY)
"""Causes that a report names even where there is nothing of them, with those of `Cause` and the
replication factor."""


def listed_causes(db: duckdb.DuckDBPyConnection, effective: str) -> dict[str, Amount]:
    """What the listing itself shows: versions, markers, names of one file, blocks against sizes.
    `effective` is a query for the rows that count."""
    sums = db.execute(_SUMS.format(effective=effective)).fetchone()
    repeats = db.execute(_REPEATS.format(effective=effective)).fetchone()
    assert sums is not None
    assert repeats is not None
    return {
        NONCURRENT: Amount(sums[1], sums[0]),
        MARKERS: Amount(0, sums[2]),
        _HARD_LINKS: Amount(-repeats[1], repeats[0]),
        _SPARSE: Amount(repeats[2] - sums[4], sums[3]),
        _SYMLINKS: Amount(repeats[3] - sums[6], sums[5]),
        _ROUNDING: Amount(sums[8] - repeats[4], sums[7]),
    }


# What a symbolic link holds mostly lies beside its name: it is no file with holes.
_SUMS = """
SELECT count(*) FILTER (WHERE kind = 'version'),
       coalesce(sum(size) FILTER (WHERE kind = 'version'), 0)::BIGINT,
       count(*) FILTER (WHERE kind = 'marker'),
       count(*) FILTER (WHERE allocated < size AND NOT inlined),
       coalesce(sum(size - allocated) FILTER (WHERE allocated < size AND NOT inlined), 0)::BIGINT,
       count(*) FILTER (WHERE allocated < size AND inlined),
       coalesce(sum(size - allocated) FILTER (WHERE allocated < size AND inlined), 0)::BIGINT,
       count(*) FILTER (WHERE allocated > size),
       coalesce(sum(allocated - size) FILTER (WHERE allocated > size), 0)::BIGINT
  FROM (SELECT *, coalesce(is_foreign = 'symlink', false) AS inlined FROM ({effective}))
"""
# Further names of one file: its blocks are on disk once.
_REPEATS = """
SELECT count(*), coalesce(sum(size), 0)::BIGINT,
       coalesce(sum(greatest(size - allocated, 0)) FILTER (WHERE NOT inlined), 0)::BIGINT,
       coalesce(sum(greatest(size - allocated, 0)) FILTER (WHERE inlined), 0)::BIGINT,
       coalesce(sum(greatest(allocated - size, 0)), 0)::BIGINT
  FROM (SELECT size, allocated, coalesce(is_foreign = 'symlink', false) AS inlined,
               row_number() OVER (PARTITION BY device, inode) AS name
          FROM ({effective}) WHERE inode IS NOT NULL)
 WHERE name > 1
"""


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
