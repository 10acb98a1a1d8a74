"""Asking a store what its locks keep of a copy, before the gate judges.

What is locked goes neither into quarantine nor to its deletion, and is not asked for again before
`LockLook.ask_again_at`. The deletion itself asks once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.retention.gate_facts import LockSighting
from lastgood.catalog.retention.lock_looks import COPIES
from lastgood.errors import Unavailable
from lastgood.rules.copy_locks import LockLook
from lastgood.rules.gate import Fact
from lastgood.rules.layout import AttemptKey, parse_key
from lastgood.stores.base import Key, Lock, Prefix, Store, StoredObject, StoreError
from lastgood.stores.open import Stores


def look(catalog: Catalog, stores: Stores, copy: Copy, now: datetime) -> LockSighting:
    """Whether a lock keeps something of a copy, as it was last told, or asked now (`now` is the
    catalog's); what is asked and locked, or is so no more, is recorded."""
    try:
        store = stores[copy.store]
        if not store.profile.locks:
            return LockSighting(Fact.of(True, f"store {copy.store} locks nothing"), now)
        with catalog.transaction() as tx:
            known = COPIES.newest(tx, copy.project, copy.copy_id)
        if known is not None and known.is_believed_at(now):
            return LockSighting(known.fact, now)
        found = _asked(store, copy, now)
    except (StoreError, Unavailable) as error:
        return LockSighting(Fact.of(None, str(error)), now)
    if found.is_news_after(known):
        with catalog.transaction() as tx:
            COPIES.record(tx, copy.project, copy.copy_id, found)
    return LockSighting(found.fact, now)


def _asked(store: Store, copy: Copy, now: datetime) -> LockLook:
    ours = _versions(store, copy)
    return told_by(ours, store.locked(ours), now)


def told_by(
    asked: Sequence[StoredObject], locks: Mapping[tuple[Key, str | None], Lock], now: datetime
) -> LockLook:
    """What a store told of these versions at `now` (the catalog's)."""
    known_ends = [lock.until for lock in locks.values() if lock.until is not None]
    return LockLook(
        versions=len(locks),
        size_bytes=sum(one.size_bytes for one in asked if (one.key, one.version_id) in locks),
        ends_at=max(known_ends) if len(known_ends) == len(locks) > 0 else None,
        seen=all(lock.seen for lock in locks.values()),
        reason=", ".join(sorted({lock.reason for lock in locks.values()})[:3]),
        recorded_at=now,
    )


def _versions(store: Store, copy: Copy) -> list[StoredObject]:
    """Every version below the copy's prefix that is ours."""
    listing = store.list(Prefix(copy.prefix), versions=True)
    found = list(listing)
    if not listing.complete:
        reason = f"its listing of {copy.prefix} is not whole"
        raise Unavailable(what=f"store {store.name}", reason=reason)
    return [one for one in found if _is_ours(one, copy)]


def _is_ours(one: StoredObject, copy: Copy) -> bool:
    key = parse_key(one.key)
    return isinstance(key, AttemptKey) and key.prefix == copy.prefix and not one.is_delete_marker
