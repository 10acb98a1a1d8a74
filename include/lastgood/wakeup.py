"""Wakes DAGs when the catalog records something that they work on.

The outbox in the catalog is the truth and an asset event is only the alarm: a lost one costs
minutes, because each of those DAGs also has a timetable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from lastgood.catalog.db import Catalog
    from lastgood.catalog.outbox import Undelivered

AWAITED = ("sealed", "committed", "validation-requested", "receipts-wanted", "room-wanted")
"""The kinds of events that some DAG waits for."""
_SETTLING_LOOKS = 5
"""Commits come in bursts: a run that begins at the first would leave the others to further runs."""


class OutboxTrigger(BaseEventTrigger):
    """Fires once for all events of the given kinds that came since it last looked."""

    def __init__(self, kinds: Sequence[str], poll_seconds: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow is typed in part only
        self.kinds = tuple(kinds)
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how the triggerer makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"kinds": list(self.kinds), "poll_seconds": self.poll_seconds},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the outbox for ever; an unreachable catalog is waited for."""
        while True:
            try:
                async for event in self._watch():
                    yield event
            except Exception:
                self.log.exception("The outbox cannot be read; trying again")
            await asyncio.sleep(10 * self.poll_seconds)

    async def _watch(self) -> AsyncIterator[TriggerEvent]:
        # In a worker thread that knows this loop: the catalog blocks, and Airflow resolves its
        # connection by a request over this very loop.
        catalog = await sync_to_async(_open_catalog, thread_sensitive=False)()
        try:
            while True:
                events = await self._settled(catalog)
                if events:
                    projects = sorted({event.project for event in events})
                    yield TriggerEvent({"projects": projects, "events": len(events)})
                    # Only now: an alarm that is lost before this is given again.
                    await sync_to_async(_deliver, thread_sensitive=False)(catalog, events)
                await asyncio.sleep(self.poll_seconds)
        finally:
            await sync_to_async(catalog.close, thread_sensitive=False)()

    async def _settled(self, catalog: Catalog) -> list[Undelivered]:
        """The events that wait, once no more are coming, or after some looks."""
        events: list[Undelivered] = []
        for _ in range(_SETTLING_LOOKS):
            before = len(events)
            events = await sync_to_async(self._look, thread_sensitive=False)(catalog)
            if len(events) == before:
                break
            await asyncio.sleep(self.poll_seconds)
        return events

    def _look(self, catalog: Catalog) -> list[Undelivered]:
        from lastgood.catalog import outbox
        from lastgood.catalog.jobs import attempts

        with catalog.transaction() as tx:
            outbox.deliver_others(tx, AWAITED)
            events = outbox.undelivered(tx, self.kinds)
            # Small commits are finished while their client waits: for them nobody is woken. Looked
            # up after the events, so that whatever they are about is either finished or found.
            if self.kinds == ("sealed",) and events and not attempts.unfinished(tx):
                outbox.deliver(tx, events)
                return []
            return events


def _open_catalog() -> Catalog:
    from lastgood.catalog.connect import open_catalog

    return open_catalog(max_size=1)


def _deliver(catalog: Catalog, events: Sequence[Undelivered]) -> None:
    from lastgood.catalog import outbox

    with catalog.transaction() as tx:
        outbox.deliver(tx, events)
