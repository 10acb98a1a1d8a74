"""Read grants: where a leased object is read, for no longer than its lease lasts."""

from __future__ import annotations

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs.readers import LeasedObject, ReaderLease
from lastgood.flows.jobs.upload import object_url
from lastgood.rules import layout
from lastgood.stores.base import Key
from lastgood.stores.open import Stores

_MARGIN_SECONDS = 1


class ReadUrls:
    """The URLs of one lease: presigned where the store presigns, else below the coordinator, where
    they need the lease's token."""

    def __init__(self, catalog: Catalog, stores: Stores, lease: ReaderLease) -> None:
        self._store = stores[lease.store]
        self._lease = lease
        self._seconds = 0
        if self._store.profile.presigns:
            with catalog.transaction() as tx:
                left = lease.expires_at - history.now(tx)
            self._seconds = int(left.total_seconds()) - _MARGIN_SECONDS

    def of(self, item: LeasedObject) -> str:
        """The URL of one object."""
        return self.presigned(item) or object_url(self._lease.attempt_id, item.path)

    def presigned(self, item: LeasedObject) -> str | None:
        """A URL straight to the store, None where there is none or the lease is about to end."""
        if self._seconds < 1:
            return None
        key = Key(layout.object_key(self._lease.prefix, item.path))
        return self._store.presign_read(key, self._seconds, version_id=item.version_id)
