"""The guard of a service that asks at every request: one answer counts for a few seconds."""

from __future__ import annotations

import time

from lastgood.errors import Unavailable
from lastgood.flows import control_keys
from lastgood.flows.services import Services
from lastgood.stores.asked_once import AskedOnce
from lastgood.stores.base import StoreError

FRESH_SECONDS = 5.0


class CachedGuard:
    """`control_keys.guard` of each project, for many threads. One thread asks at a time; who comes
    meanwhile waits for its answer. While a store is known not to answer, nobody waits but who
    asks it again: else all threads of the service would wait for that store."""

    def __init__(self, services: Services, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._services = services
        self._fresh_seconds = fresh_seconds
        self._passed: dict[str, float] = {}
        self._unanswered: dict[str, Unavailable | StoreError] = {}
        self._checked: set[str] = set()
        self._asking: AskedOnce[str, None] = AskedOnce()

    def require(self, project: str) -> None:
        """Raise what `guard` raises, unless it passed for this project a moment ago."""
        passed = self._passed.get(project)
        if passed is not None and time.monotonic() - passed < self._fresh_seconds:
            return
        unanswered = self._unanswered.get(project)
        if unanswered is not None and self._asking.is_asked(project):
            raise unanswered.with_traceback(None)  # else it would hold the frames of all who got it
        self._asking.ask(project, lambda: self._ask(project))

    def _ask(self, project: str) -> None:
        self._passed.pop(project, None)
        started = time.monotonic()
        try:
            catalog, stores = self._services.catalog, self._services.stores
            control_keys.guard(catalog, stores, project, self._checked)
        except (Unavailable, StoreError) as error:
            self._unanswered[project] = error
            raise
        self._unanswered.pop(project, None)
        self._passed[project] = started
