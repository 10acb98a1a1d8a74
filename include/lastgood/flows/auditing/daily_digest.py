"""A digest for each whole day over a project's deletions, and its witness in the project's store.

Each names the one of the day before; a day without deletions has one, too, so that no day can be
left out unnoticed. What was missed is made later, in order. The witness is a write-once control
key: it outlives the catalog, and the chain of a rebuilt catalog goes on from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any

from lastgood.catalog import control, history, locks
from lastgood.catalog.auditing import daily_digests
from lastgood.catalog.auditing.daily_digests import DailyDigest
from lastgood.catalog.control import Identity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogBehind, Unavailable
from lastgood.flows import control_keys, sane_clock
from lastgood.rules import layout
from lastgood.rules.certificates import FIRST, Continued, Place, daily_digest, identity
from lastgood.rules.layout import ControlKey, ControlKind
from lastgood.stores.base import Prefix, Store, StoreError
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class Made:
    """The days that were digested now, and the newest digest of all."""

    project: str
    days: tuple[date, ...]
    newest: str | None
    newest_day: date | None

    def to_json(self) -> dict[str, Any]:
        return {
            "project": self.project,
            "days": [day.isoformat() for day in self.days],
            "newest": self.newest,
            "newest_day": None if self.newest_day is None else self.newest_day.isoformat(),
        }


def make(catalog: Catalog, stores: Stores, project: str) -> Made:
    """Digest every day in UTC that is over and has none, from the first with a deletion on, and
    leave witnesses of them in the project's own store. Repeating it changes nothing.

    Raises NotFound, ClockJump, Unavailable or StoreError where the store does not serve, and
    CatalogBehind where it holds the witness of another chain.
    """
    sane_clock.require(catalog)
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        store = stores[projects.get(tx, project).store]
        ours = control.identity(tx)
    highest = _highest_witness(store, project)
    days = []
    while True:
        with catalog.transaction() as tx:
            day = _digest_next(tx, project, ours, store, highest)
        if day is None:
            break
        days.append(day)
    _witness(catalog, store, project, highest)
    with catalog.transaction() as tx:
        newest = daily_digests.newest(tx, project)
    if newest is None:
        return Made(project, (), None, None)
    return Made(project, tuple(days), newest.digest, newest.day)


def _digest_next(
    tx: Transaction, project: str, ours: Identity, store: Store, highest: Continued | None
) -> date | None:
    """Digest the next day; None if it is not over. Whoever records a deletion holds the project's
    lock shared: once it is held exclusively after a day's end, nothing of that day follows."""
    locks.project_exclusive(tx, project)
    now = history.now(tx)
    newest = daily_digests.newest(tx, project)
    continues = _continued(store, ours, newest, highest)
    if continues is not None:
        place, day = Place.after(continues.number, continues.digest), _next(continues.day)
    elif newest is not None:
        place, day = Place.after(newest.number, newest.digest), _next(newest.day)
    else:
        first = daily_digests.first_day(tx, project)
        if first is None:
            return None
        place, day = FIRST, first
    if day >= now.astimezone(UTC).date():
        return None
    body = daily_digest(
        place,
        project=project,
        catalog_id=str(ours.catalog_id),
        incarnation=ours.incarnation,
        day=day,
        stages=daily_digests.heads(tx, project, day),
        continues=continues,
    )
    made = DailyDigest(project, day, place.number, place.previous, identity(body), body, now)
    daily_digests.append(tx, made)
    return day


def _next(day: date) -> date:
    return day + timedelta(days=1)


def _continued(
    store: Store, ours: Identity, newest: DailyDigest | None, highest: Continued | None
) -> Continued | None:
    """The link that another incarnation left in the store and this catalog does not have."""
    if highest is None or (newest is not None and newest.number >= highest.number):
        return None
    if highest.incarnation >= ours.incarnation:
        evidence = f"daily digest {highest.number} is in the store, the catalog does not know it"
        raise CatalogBehind(store=store.name, evidence=evidence)
    return highest


def _highest_witness(store: Store, project: str) -> Continued | None:
    listing = store.list(Prefix(layout.digests_prefix(project)))
    numbers = [
        key.number
        for entry in listing
        if isinstance(key := layout.parse_key(entry.key), ControlKey)
        and key.kind is ControlKind.DIGEST
        and key.number is not None
    ]
    if not listing.complete:
        raise Unavailable(what=f"store {store.name}", reason="it did not list its daily digests")
    if not numbers:
        return None
    number = max(numbers)
    newest = layout.digest_key(project, number)
    told = control_keys.read_document(store, newest)
    facts = told["facts"]
    try:
        day = date.fromisoformat(facts["day"])
        return Continued(number, str(facts["digest"]), day, int(told["incarnation"]))
    except (LookupError, TypeError, ValueError) as error:
        reason = f"it is damaged, for it names no day, digest and incarnation: {error!r}"
        raise StoreError(store=store.name, key=newest, reason=reason) from error


def _witness(catalog: Catalog, store: Store, project: str, highest: Continued | None) -> None:
    """Write what the store does not have yet, and then every other again: one that was taken out is
    put back, and one that is not what was written fails."""
    with catalog.transaction() as tx:
        known = daily_digests.of_project(tx, project)
        catalog_id = str(control.identity(tx).catalog_id)
    for one in sorted(known, key=lambda one: highest is not None and one.number <= highest.number):
        control_keys.put_digest(store, one.project, one.number, catalog_id, one.body, one.digest)
