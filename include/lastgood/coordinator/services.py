"""What the routes work with, opened at the first request: a mounted app may get no lifespan."""

from __future__ import annotations

import threading

import anyio
from fastapi import Request

from lastgood.catalog.connect import open_catalog
from lastgood.catalog.db import Catalog
from lastgood.flows.cached_guard import CachedGuard
from lastgood.flows.services import Services
from lastgood.stores.open import Stores

_CONNECTIONS = 24
BYTE_STREAMS = 16
"""How many objects are received or sent at once; others wait, and nobody else's work does."""


class LazyServices:
    """The catalog, the stores and the guard of one app; for many threads."""

    def __init__(self, catalog_dsn: str | None) -> None:
        self._dsn = catalog_dsn
        self._lock = threading.Lock()
        self._services: Services | None = None
        self._guard: CachedGuard | None = None
        self._byte_streams: anyio.CapacityLimiter | None = None

    @property
    def services(self) -> Services:
        """Raises CatalogSetup while the catalog cannot serve; the next request tries again."""
        with self._lock:
            if self._services is None:
                self._services = Services.of(open_catalog(self._dsn, max_size=_CONNECTIONS))
                self._guard = CachedGuard(self._services)
            return self._services

    @property
    def catalog(self) -> Catalog:
        return self.services.catalog

    @property
    def stores(self) -> Stores:
        return self.services.stores

    @property
    def byte_streams(self) -> anyio.CapacityLimiter:
        """The threads for object bytes. Only called on the event loop."""
        if self._byte_streams is None:
            self._byte_streams = anyio.CapacityLimiter(BYTE_STREAMS)
        return self._byte_streams

    def require_serving(self, project: str) -> None:
        """Raises CatalogBehind, ForeignCatalog or Unavailable if this catalog must not answer."""
        _ = self.services
        assert self._guard is not None
        self._guard.require(project)

    def close(self) -> None:
        """Close the catalog, if it was opened."""
        with self._lock:
            if self._services is not None:
                self._services.catalog.close()
                self._services = None


def services_of(request: Request) -> LazyServices:
    """The services of the app that a request came to."""
    found: LazyServices = request.app.state.lastgood
    return found
