"""Numbers that operators bring of what a backend accounts: from a console, a bill, an array."""

from __future__ import annotations

import re
from datetime import datetime

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories
from lastgood.catalog.reconciliation.inventories import TOTAL, AccountingNumber
from lastgood.catalog.settings import projects
from lastgood.errors import InvalidInput

_CAUSE = re.compile(r"[a-z][a-z0-9-]{0,62}")
_MOST_BYTES = (1 << 63) - 1
_MOST_REPLICAS = 100


def set_number(
    catalog: Catalog,
    store: str,
    size_bytes: int,
    *,
    as_of: datetime,
    because: str,
    actor: str,
    cause: str = TOTAL,
    replicas: int = 1,
) -> AccountingNumber:
    """Record what a backend accounted for `store` at `as_of` (UTC): in all, or for one cause such
    as `snapshots`; `replicas` says that it counts each byte so many times. The next inventory is
    held against it. Raises NotFound for the store, InvalidInput."""
    if not 0 <= size_bytes <= _MOST_BYTES:
        raise InvalidInput(where="bytes", reason=f"{size_bytes} is not a number of bytes")
    if not 1 <= replicas <= _MOST_REPLICAS:
        raise InvalidInput(where="replicas", reason=f"give 1 to {_MOST_REPLICAS}")
    if not _CAUSE.fullmatch(cause):
        reason = f"{cause!r} is no cause; use a-z 0-9 -, such as snapshots"
        raise InvalidInput(where="cause", reason=reason)
    if not because.strip():
        raise InvalidInput(where="because", reason="say where the number is from")
    with catalog.transaction() as tx:
        projects.store(tx, store)
        if as_of > history.now(tx):
            raise InvalidInput(where="as_of", reason=f"{as_of.isoformat()} is yet to come")
        inventories.set_number(
            tx,
            store,
            cause=cause,
            size_bytes=size_bytes,
            replicas=replicas,
            as_of=as_of,
            because=because,
            actor=actor,
        )
        return next(one for one in inventories.numbers(tx, store) if one.cause == cause)


def numbers(catalog: Catalog, store: str) -> list[AccountingNumber]:
    """The newest number of each cause of a store. Raises NotFound."""
    with catalog.transaction() as tx:
        projects.store(tx, store)
        return inventories.numbers(tx, store)
