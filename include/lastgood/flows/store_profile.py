"""Probing stores: before one is registered, and whenever an operator asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects, store_profiles
from lastgood.catalog.settings.projects import StoreRow
from lastgood.catalog.settings.store_profiles import KeptProfile
from lastgood.errors import LastgoodError, NotFound
from lastgood.flows import control_keys
from lastgood.rules.store_profile import Ability, FoundProfile, choices, refusals
from lastgood.stores.base import Store
from lastgood.stores.hurry import hurried
from lastgood.stores.open import StoreConfig, open_store
from lastgood.stores.profile import probe as ask


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe, and what was otherwise at the one before it: by part of the place, or ability,
    what it was then and now."""

    kept: KeptProfile
    changed: Mapping[str, tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        return {
            "recorded_by": self.kept.recorded_by,
            "recorded_at": self.kept.recorded_at,
            "place": self.kept.place,
            **self.kept.found.to_json(),
            "changed": {name: list(how) for name, how in self.changed.items()},
        }


class StoreUnfit(LastgoodError):
    """Store {store} cannot hold checkpoints: {reason}."""

    status = 422
    type = "store-unfit"


def fit(catalog: Catalog, row: StoreRow, *, again: bool = False) -> FoundProfile | None:
    """Probe a store that was never asked at its place, or `again`; None where what is kept of it
    counts. Nothing is recorded. Raises StoreUnfit, ForeignCatalog before anything is written into
    another catalog's store, StoreError."""
    with catalog.transaction() as tx:
        kept = store_profiles.newest(tx, row)
    found = _asked(catalog, row) if kept is None or again else None
    counts = found or (kept.found if kept is not None else None)
    assert counts is not None
    accepted = frozenset(row.config.get("accepts") or ())
    for word, reason in refusals(counts, accepted).items():
        raise StoreUnfit(store=row.name, reason=f"{reason} ({word})")
    return found


def probe(catalog: Catalog, name: str, *, actor: str) -> KeptProfile:
    """Ask a registered store anew and keep what it answers; every process follows within seconds.
    Raises NotFound, StoreError. Whether it is still fit is for `refusals` to say."""
    with catalog.transaction() as tx:
        row = projects.store(tx, name)
    found = _asked(catalog, row)
    with catalog.transaction() as tx:
        store_profiles.record(tx, row, found, recorded_by=actor)
    return newest(catalog, name)


def newest(catalog: Catalog, name: str) -> KeptProfile:
    """What counts of a store now. Raises NotFound, also where it was never probed at its place."""
    with catalog.transaction() as tx:
        row = projects.store(tx, name)
        kept = store_profiles.newest(tx, row)
    if kept is None:
        raise _never_probed(name)
    return kept


def history(catalog: Catalog, name: str) -> list[Probe]:
    """Every probe of a store, the newest first, also of one that is unregistered. Raises
    NotFound where there was none."""
    with catalog.transaction() as tx:
        found = store_profiles.history(tx, name)
    if not found:
        raise _never_probed(name)
    olders = [*found[1:], None]
    return [Probe(one, _changed(older, one)) for one, older in zip(found, olders, strict=True)]


def _changed(before: KeptProfile | None, after: KeptProfile) -> dict[str, tuple[str, str]]:
    if before is None:
        return {}
    was, now = _answers(before), _answers(after)
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return {name: (was.get(name, "none"), now.get(name, "none")) for name in names}


def _answers(kept: KeptProfile) -> dict[str, str]:
    place = {name: str(value) for name, value in kept.place.items() if value is not None}
    return place | {one.value: kept.found.finding(one).answer.value for one in Ability}


def _never_probed(name: str) -> NotFound:
    return NotFound(what="profile (`lastgood store probe` makes one) of store", name=name)


def unfit(catalog: Catalog, kept: KeptProfile) -> dict[str, str]:
    """Why a registered store should hold no checkpoints, beyond what its configuration accepts."""
    with catalog.transaction() as tx:
        row = projects.store(tx, kept.store)
    return refusals(kept.found, frozenset(row.config.get("accepts") or ()))


def document(kept: KeptProfile, unfit: dict[str, str]) -> dict[str, Any]:
    """A profile for people and scripts, with what is done by it."""
    return {
        "store": kept.store,
        "recorded_by": kept.recorded_by,
        "recorded_at": kept.recorded_at,
        **kept.found.to_json(),
        "choices": choices(kept.found),
        "unfit": unfit,
    }


def _asked(catalog: Catalog, row: StoreRow) -> FoundProfile:
    """Without believing any earlier profile."""
    with hurried():
        opened = open_store(StoreConfig.from_row(row.name, row.kind, row.config))
    with closing_store(opened) as store:
        if control_keys.owner_of(store) is not None:
            control_keys.claim(catalog, store)  # raises for another's store
        return ask(store)


@contextmanager
def closing_store(store: Store) -> Iterator[Store]:
    """The store, closed afterwards where it holds connections."""
    try:
        yield store
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()
