"""What stores were found to do: every probe is kept, the newest of a store's place counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.catalog.settings.projects import StoreRow
from lastgood.rules.store_profile import PROBE_VERSION, FoundProfile


@dataclass(frozen=True, slots=True)
class KeptProfile:
    """One probe of a store at a place, by whom and when (UTC, the catalog's clock)."""

    store: str
    place: Mapping[str, Any]
    found: FoundProfile
    recorded_by: str
    recorded_at: datetime


def place_of(row: StoreRow) -> dict[str, Any]:
    """What a profile depends on: another place, or another wish for encryption, is probed anew."""
    named = ("root", "prefix", "connection", "encryption", "kms_key")
    return {"kind": row.kind, **{name: row.config.get(name) or None for name in named}}


def record(tx: Transaction, row: StoreRow, found: FoundProfile, *, recorded_by: str) -> None:
    """Keep what a probe of a store found."""
    tx.execute(
        """
        INSERT INTO store_profiles (store, place, probe_version, document, recorded_by)
             VALUES (%s, %s, %s, %s, %s)
        """,
        (row.name, Jsonb(place_of(row)), found.version, Jsonb(found.to_json()), recorded_by),
    )


def newest(tx: Transaction, row: StoreRow) -> KeptProfile | None:
    """The newest probe of this version of the store's place; None if it was never asked."""
    found = tx.execute(
        """
        SELECT store, place, document, recorded_by, recorded_at
          FROM store_profiles
         WHERE store = %s AND place = %s AND probe_version = %s
         ORDER BY store_profile_id DESC LIMIT 1
        """,
        (row.name, Jsonb(place_of(row)), PROBE_VERSION),
    ).fetchone()
    return None if found is None else _kept(found)


def history(tx: Transaction, store: str) -> Sequence[KeptProfile]:
    """Every probe of a store, of all its places, the newest first."""
    rows = tx.execute(
        """
        SELECT store, place, document, recorded_by, recorded_at
          FROM store_profiles WHERE store = %s ORDER BY store_profile_id DESC
        """,
        (store,),
    )
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> KeptProfile:
    return KeptProfile(
        row["store"],
        row["place"],
        FoundProfile.from_json(row["document"]),
        row["recorded_by"],
        row["recorded_at"],
    )
