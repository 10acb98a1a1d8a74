"""What every flow works with: the catalog, and its stores opened on demand."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects, store_profiles
from lastgood.errors import NotFound
from lastgood.stores.open import StoreConfig, Stores

_CONFIG_AGE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """The catalog and the stores of one process."""

    catalog: Catalog
    stores: Stores

    @classmethod
    def of(cls, catalog: Catalog) -> Services:
        """The catalog with its stores."""
        return cls(catalog, stores_of(catalog))


def stores_of(catalog: Catalog) -> Stores:
    """The catalog's stores by name: opened at first use, kept, opened anew within seconds of a
    changed configuration. Safe for many threads."""
    return Stores(_Configurations(catalog).get)


class _Configurations:
    """Store configurations as the catalog has them, at most a few seconds old."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, tuple[float, StoreConfig]] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> StoreConfig | None:
        with self._lock:
            known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] < _CONFIG_AGE_SECONDS:
            return known[1]
        try:
            with self._catalog.transaction() as tx:
                row = projects.store(tx, name)
                kept = store_profiles.newest(tx, row)
        except NotFound:
            return None
        found = None if kept is None else kept.found
        config = StoreConfig.from_row(row.name, row.kind, row.config, found)
        with self._lock:
            self._known[name] = (time.monotonic(), config)
        return config
