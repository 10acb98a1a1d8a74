"""Gathering what is accounted for a store beside its listing: by its backend, and by operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories
from lastgood.catalog.reconciliation.inventories import TOTAL, AccountingNumber, InventoryRow
from lastgood.rules.accounting import Covers, Number, Unreadable
from lastgood.stores.base import Store
from lastgood.stores.numbers import numbers_of as backend_numbers

OPERATOR = "operator"
_NEAR = timedelta(hours=13)  # a day's inventory to a number of that day


def numbers_of(catalog: Catalog, store: Store) -> list[Mapping[str, Any]]:
    """Every number, as a manifest keeps it."""
    with catalog.transaction() as tx:
        said = inventories.numbers(tx, store.name)
    named = {one.cause: one.size_bytes for one in said if one.cause != TOTAL}
    told = backend_numbers(store)
    found = [_with_causes(one, named) for one in told if isinstance(one, Number)]
    found += [_operators(one, named) for one in said if one.cause == TOTAL]
    with catalog.transaction() as tx:
        earlier = inventories.of_store(tx, store.name)
    return [
        *(to_json(_with_listing(one, earlier)) for one in found),
        *(asdict(one) for one in told if isinstance(one, Unreadable)),
    ]


def _with_listing(number: Number, earlier: Sequence[InventoryRow]) -> Number:
    """With what was listed at the number's own time, where an inventory of about then is kept."""
    if number.as_of is None:
        return number
    near = [
        (abs(one.started_at - number.as_of), one.facts)
        for one in earlier
        if one.state == "completed" and abs(one.started_at - number.as_of) <= _NEAR
    ]
    if not near:
        return number
    facts = min(near, key=lambda one: one[0])[1]
    return replace(number, listed_then_bytes=facts["bytes"] + facts["upload_bytes"])


def _with_causes(number: Number, named: Mapping[str, int]) -> Number:
    """Causes that operators name belong to what reaches beyond the store: a file system's snapshots
    are in no folder of it."""
    if number.covers is Covers.STORE:
        return number
    return replace(number, beside={**number.beside, **named})


def _operators(one: AccountingNumber, named: Mapping[str, int]) -> Number:
    return Number(
        OPERATOR,
        one.size_bytes,
        Covers.STORE,
        as_of=one.as_of,
        beside=named,
        replicas=one.replicas,
        because=f"{one.because} ({one.actor})",
    )


def to_json(number: Number) -> dict[str, Any]:
    """A number as JSON holds it."""
    as_of = None if number.as_of is None else number.as_of.isoformat()
    return {**asdict(number), "covers": number.covers.value, "as_of": as_of}


def from_json(document: Mapping[str, Any]) -> Number:
    """The inverse of `to_json`."""
    as_of = document["as_of"]
    return Number(
        **{
            **document,
            "covers": Covers(document["covers"]),
            "as_of": None if as_of is None else datetime.fromisoformat(as_of),
        }
    )


def numbers_in(documents: Sequence[Mapping[str, Any]]) -> list[Number]:
    """The numbers that a manifest keeps."""
    return [from_json(one) for one in documents if "reason" not in one]


def unreadable_in(documents: Sequence[Mapping[str, Any]]) -> list[Unreadable]:
    """What could not be read when a manifest was made."""
    return [Unreadable(**one) for one in documents if "reason" in one]
