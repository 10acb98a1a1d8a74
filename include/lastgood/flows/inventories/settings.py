"""How a store is inventoried: what operators say under `inventories` in its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lastgood.catalog.settings.projects import StoreRow

KEEP = timedelta(days=14)
OBJECTS_PER_SHARD = 250_000
REPORT_MAX_AGE = timedelta(hours=48)


@dataclass(frozen=True, slots=True)
class InventorySettings:
    """`place`: the store where the files lie. `keep`: how long a complete inventory stays.
    `report`: the folder (`s3://bucket/prefix/source/id/`) of S3 Inventory reports to read instead
    of listing, None to list."""

    place: str
    keep: timedelta = KEEP
    objects_per_shard: int = OBJECTS_PER_SHARD
    report: str | None = None
    report_max_age: timedelta = REPORT_MAX_AGE

    @classmethod
    def of(cls, row: StoreRow) -> InventorySettings:
        """From a store's row."""
        said: Mapping[str, Any] = row.config.get("inventories") or {}
        keep, age = said.get("keep_seconds"), said.get("report_max_age_seconds")
        return cls(
            place=said.get("place") or row.name,
            keep=KEEP if keep is None else timedelta(seconds=float(keep)),
            objects_per_shard=said.get("objects_per_shard") or OBJECTS_PER_SHARD,
            report=said.get("report"),
            report_max_age=REPORT_MAX_AGE if age is None else timedelta(seconds=float(age)),
        )
