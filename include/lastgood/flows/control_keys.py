"""Write-once proof in each store of how far its catalog's history goes.

A catalog that finds itself behind them (an older dump, a lossy failover, the wrong place) must not
answer: what it does not know, it would delete. The keys of a change are written after its
transaction and before its answer; so an answered change is never unknown to a store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lastgood.catalog import control
from lastgood.catalog.control import Identity, Position
from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogBehind, ForeignCatalog, LastgoodError, Unavailable
from lastgood.rules import layout
from lastgood.rules.canonical import canonical_json
from lastgood.rules.layout import ControlKey, ControlKind
from lastgood.rules.names import StageId
from lastgood.stores.base import Key, KeyExists, KeyMissing, Outcome, Prefix, Store, StoreError
from lastgood.stores.folder_questions import answered
from lastgood.stores.hurry import hurried
from lastgood.stores.open import Stores

STORES_AT_ONCE = 16
_FORMAT_VERSION = 1


def claim(catalog: Catalog, store: Store) -> None:
    """Make a store this catalog's, once. Raises ForeignCatalog if it is another's, and Unavailable
    if it has no claim although checkpoints are known to lie in it: then it is another place."""
    with catalog.transaction() as tx:
        ours = control.identity(tx)
        used = projects.is_used(tx, store.name)
    if used:
        _require_ours(store, ours)
    try:
        store.put_new(Key(layout.CATALOG_KEY), _content(ours, {}, incarnation=False))
    except KeyExists:
        _require_ours(store, ours)
    put_incarnation(store, ours)


def put_incarnation(store: Store, ours: Identity) -> None:
    """Write once that this incarnation of the catalog uses a store. Raises CatalogBehind if another
    catalog took the number first."""
    _put(store, layout.incarnation_key(ours.incarnation), _content(ours, ours.incarnation_facts))


def put_digest(
    store: Store, project: str, number: int, catalog_id: str, body: Mapping[str, Any], digest: str
) -> None:
    """Write once that a project's daily digest with this number is this one. Raises CatalogBehind
    if the store holds another."""
    document = {
        "format_version": _FORMAT_VERSION,
        "catalog_id": catalog_id,
        "incarnation": body["incarnation"],
        "facts": {"day": body["day"], "digest": digest},
    }
    _put(store, layout.digest_key(project, number), canonical_json(document))


def read_document(store: Store, key: str) -> Mapping[str, Any]:
    """What a control key says. Raises KeyMissing, and StoreError for what nobody here wrote."""
    try:
        found = json.loads(store.read(Key(key)))
    except (ValueError, RecursionError) as error:
        reason = f"it is damaged, for it is no JSON: {error}; put back the one that was written"
        raise StoreError(store=store.name, key=key, reason=reason) from error
    if not isinstance(found, dict) or not isinstance(found.get("facts"), dict):
        reason = "it is damaged, for it states no facts; put back the one that was written"
        raise StoreError(store=store.name, key=key, reason=reason)
    return found


def take_over(store: Store, ours: Identity) -> None:
    """Make a store this incarnation's, whose id it names or that nobody owns; everything older
    refuses to use it from then on. Raises ForeignCatalog, and CatalogBehind if another rebuild
    took the incarnation first."""
    try:
        store.put_new(Key(layout.CATALOG_KEY), _content(ours, {}, incarnation=False))
    except KeyExists:
        _require_ours(store, ours)
    put_incarnation(store, ours)


def disown(store: Store) -> None:
    """Take the claim of a store back in which nothing else lies."""
    ours = [entry for entry in store.list(Prefix(layout.CONTROL_PREFIX)) if not entry.foreign]
    for outcome in store.delete(ours):
        if outcome.outcome is Outcome.REFUSED:
            raise Unavailable(what=f"store {store.name}", reason=f"{outcome.reason}")


def owner_of(store: Store) -> str | None:
    """The id of the catalog that a store says it belongs to; None if nobody claimed it."""
    try:
        owner: str | None = read_document(store, layout.CATALOG_KEY).get("catalog_id")
    except KeyMissing:
        return None
    return owner


def is_incarnation(store: Store, ours: Identity) -> bool:
    """Whether a store's key of this number of incarnation is this catalog's own."""
    try:
        found = read_document(store, layout.incarnation_key(ours.incarnation))
    except KeyMissing:
        return False
    same: bool = found.get("facts") == dict(ours.incarnation_facts)
    return same


def publish(
    catalog: Catalog,
    stores: Iterable[Store],
    project: str,
    stage_id: int,
    *,
    generation: int | None = None,
) -> None:
    """Write the newest event of a stage into each store, and a generation where one is named. The
    caller's transaction has committed and its answer was not given. Raises CatalogBehind if a store
    already holds the same number with another content."""
    with catalog.transaction() as tx:
        ours = control.identity(tx)
        stage = control.stage_name(tx, project, stage_id)
        newest = control.positions(tx, project)[stage].event
        keys = [(layout.event_key(stage, newest), control.event_facts(tx, stage, newest))]
        if generation is not None:
            facts = control.generation_facts(tx, stage, generation)
            keys.insert(0, (layout.generation_key(stage, generation), facts))
    for store in stores:
        for key, facts in keys:
            _put(store, key, _content(ours, facts or {}))


def stores_for(catalog: Catalog, stores: Stores, project: str, *others: str) -> list[Store]:
    """Where a project's control keys go: its own store, and others that a change touched."""
    with catalog.transaction() as tx:
        own = projects.get(tx, project).store
    return [stores[name] for name in dict.fromkeys((own, *others))]


def guard(
    catalog: Catalog, stores: Stores, project: str | None = None, checked: set[str] | None = None
) -> None:
    """Raise unless every store of the project (None: every store) is this catalog's and shows
    nothing that the catalog does not know: ForeignCatalog, CatalogBehind, or Unavailable or
    StoreError where a store does not tell. Of several reasons the gravest is raised. `checked`
    remembers the keys compared before, since their content never changes."""
    found = refusals(catalog, stores, project, checked)
    for refusal in sorted(found, key=lambda one: isinstance(one, Unavailable | StoreError)):
        raise refusal


def refusals(
    catalog: Catalog, stores: Stores, project: str | None = None, checked: set[str] | None = None
) -> list[LastgoodError]:
    """What `guard` would raise, of every store. All are asked at once and in a hurry: one that does
    not answer delays the others' answers by seconds."""
    with catalog.transaction() as tx:
        names = (
            [row.name for row in projects.stores(tx)]
            if project is None
            else projects.stores_of(tx, project)
        )
    known = set() if checked is None else checked

    def refusal_of(name: str) -> LastgoodError | None:
        try:
            with hurried():
                store = stores[name]
                answered(store, lambda: _guard_store(catalog, store, project, known))
        except (CatalogBehind, ForeignCatalog, Unavailable, StoreError) as refusal:
            return refusal
        return None

    if len(names) < 2:
        found = [refusal_of(name) for name in names]
    else:
        with ThreadPoolExecutor(min(len(names), STORES_AT_ONCE)) as threads:
            found = list(threads.map(refusal_of, names))
    return [one for one in found if one is not None]


def guard_place(catalog: Catalog, store: Store) -> None:
    """The same for one store, which nobody may have claimed: inventories alone may lie in it."""
    if owner_of(store) is not None:
        _guard_store(catalog, store, None, set())


@dataclass(slots=True)
class _Seen:
    """The highest control keys of a store."""

    incarnation: int = 0
    generations: dict[StageId, int] = field(default_factory=dict)
    events: dict[StageId, int] = field(default_factory=dict)


def _guard_store(catalog: Catalog, store: Store, project: str | None, checked: set[str]) -> None:
    """The store is looked at first: what it shows was recorded in the catalog before."""
    seen = _seen(store, project)
    with catalog.transaction() as tx:
        ours = control.identity(tx)
        known = control.positions(tx, project)
    _require_ours(store, ours)
    if seen.incarnation > ours.incarnation:
        evidence = f"the store was used by incarnation {seen.incarnation} of this catalog"
        raise CatalogBehind(store=store.name, evidence=evidence)
    if ours.rebuilding:
        raise CatalogBehind(store=store.name, evidence="a rebuild has begun and has not ended")
    if seen.incarnation == ours.incarnation:
        _require_our_incarnation(store, ours, checked)
    for kind, numbers in (
        (ControlKind.GENERATION, seen.generations),
        (ControlKind.EVENT, seen.events),
    ):
        for stage, number in numbers.items():
            _require_known(store, stage, kind, number, known.get(stage, Position(0, 0)))
            _require_same(catalog, store, ours, ControlKey(kind, stage, number), checked)


def _require_our_incarnation(store: Store, ours: Identity, checked: set[str]) -> None:
    name = f"{store.name}:incarnation {ours.incarnation}"
    if name in checked:
        return
    if not is_incarnation(store, ours):
        evidence = f"incarnation {ours.incarnation} is that of another rebuild"
        raise CatalogBehind(store=store.name, evidence=evidence)
    checked.add(name)


def _seen(store: Store, project: str | None) -> _Seen:
    folder = f"{layout.CONTROL_PREFIX}stages/" + (f"{project}/" if project is not None else "")
    seen = _Seen()
    for prefix in (layout.INCARNATION_PREFIX, folder):
        listing = store.list(Prefix(prefix))
        for entry in listing:
            match layout.parse_key(entry.key):
                case ControlKey(ControlKind.INCARNATION, None, int(number)):
                    seen.incarnation = max(seen.incarnation, number)
                case ControlKey(ControlKind.GENERATION, StageId() as stage, int(number)):
                    seen.generations[stage] = max(seen.generations.get(stage, 0), number)
                case ControlKey(ControlKind.EVENT, StageId() as stage, int(number)):
                    seen.events[stage] = max(seen.events.get(stage, 0), number)
        if not listing.complete:
            raise Unavailable(what=f"store {store.name}", reason="it did not list its control keys")
    return seen


def _require_known(
    store: Store, stage: StageId, kind: ControlKind, number: int, known: Position
) -> None:
    highest = known.generation if kind is ControlKind.GENERATION else known.event
    if number > highest:
        evidence = f"{kind} {number} of {stage} is in the store, the catalog knows {highest}"
        raise CatalogBehind(store=store.name, evidence=evidence)


def _require_same(
    catalog: Catalog, store: Store, ours: Identity, key: ControlKey, checked: set[str]
) -> None:
    name = f"{store.name}:{key}"
    assert key.stage is not None
    assert key.number is not None
    if name in checked:
        return
    with catalog.transaction() as tx:
        facts_of = (
            control.event_facts if key.kind is ControlKind.EVENT else control.generation_facts
        )
        facts = facts_of(tx, key.stage, key.number)
    try:
        found = read_document(store, str(key))
    except KeyMissing:  # pruned meanwhile: there is a newer one
        return
    if facts is None or found.get("facts") != facts:
        evidence = f"{key.kind} {key.number} of {key.stage} is {found.get('facts')}, here {facts}"
        raise CatalogBehind(store=store.name, evidence=evidence)
    checked.add(name)


def _require_ours(store: Store, ours: Identity) -> None:
    owner = owner_of(store)
    if owner is None:
        reason = f"{layout.CATALOG_KEY} is not there, so it is not the place that was claimed"
        raise Unavailable(what=f"store {store.name}", reason=reason)
    if owner != str(ours.catalog_id):
        raise ForeignCatalog(store=store.name, owner=owner, ours=str(ours.catalog_id))


def _put(store: Store, key: str, content: bytes) -> None:
    try:
        store.put_new(Key(key), content)
    except KeyExists:
        evidence = f"{key} is already there with another content"
        raise CatalogBehind(store=store.name, evidence=evidence) from None


def _content(ours: Identity, facts: Mapping[str, Any], *, incarnation: bool = True) -> bytes:
    document: dict[str, Any] = {
        "format_version": _FORMAT_VERSION,
        "catalog_id": str(ours.catalog_id),
        "facts": dict(facts),
    }
    if incarnation:
        document["incarnation"] = ours.incarnation
    return canonical_json(document)
