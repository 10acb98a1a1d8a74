"""The gate: look in the stores first, then judge one copy under its locks.

This is the one way to a verdict, for the sweep's two steps and for whoever asks why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies, references
from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.catalog.retention import gate_facts, standing_marks
from lastgood.catalog.retention.gate_facts import Evidence, Sighting
from lastgood.flows import control_keys, sane_clock
from lastgood.flows.policies import rules_of
from lastgood.flows.retention import lock_looks
from lastgood.rules import canonical, layout
from lastgood.rules.gate import Fact, GateFacts, Verdict, judge
from lastgood.stores.base import Key, KeyMissing, Prefix, Store, StoreError
from lastgood.stores.open import Stores

LOOK_AGAIN_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Judged:
    """A locked copy as it stands, and what the gate says about it as a candidate of a mark."""

    copy: Copy
    verdict: Verdict
    mark_id: int | None


def judge_copy(
    tx: Transaction, project: str, copy_id: int, mark_id: int | None, evidence: Evidence
) -> Judged:
    """Lock a copy with what it depends on, gather every fact about it and judge. What the caller
    records in the same transaction rests on these facts. `mark_id` is the mark under which it was
    planned; where newer ones were made since, see `catalog.retention.standing_marks`. Of a copy
    whose deletion was intended meanwhile nothing is asked any more: it is not allowed. Raises
    NotFound."""
    known = copies.get(tx, project, copy_id)
    needed = copies.of_checkpoints(
        tx, project, references.needed(tx, project, [known.checkpoint_id])
    )
    locks.project_shared(tx, project)
    locks.stages(tx, {known.stage_id, *(copy.stage_id for copy in needed)})
    locks.copies(tx, {copy_id, *(copy.copy_id for copy in needed)})
    copy = copies.get(tx, project, copy_id)
    if copy.state in copies.GONE:
        return Judged(copy, judge(GateFacts()), mark_id)
    if mark_id is not None:
        mark_id = standing_marks.of_plan(tx, project, mark_id, copy_id)
    return Judged(copy, judge(gate_facts.gather(tx, copy, mark_id, evidence)), mark_id)


class Lookout:
    """What only stores and clocks can tell, for one project: looked up outside any lock, kept for a
    minute, and then looked up again."""

    def __init__(self, catalog: Catalog, stores: Stores, project: str) -> None:
        self._catalog = catalog
        self._stores = stores
        self._project = project
        self._evidence: Evidence | None = None

    def evidence_for(self, copy: Copy) -> Evidence:
        """Evidence that can speak for a copy of the project."""
        evidence = self._general()
        with self._catalog.transaction() as tx:
            rules = rules_of(tx, self._project, copy.stage_id)
            witnesses = gate_facts.witnesses(tx, copy, rules)
        sightings = dict(evidence.sightings)
        for witness in witnesses:
            if witness.copy_id not in sightings:
                sightings[witness.copy_id] = self._look_at(witness)
        self._evidence = replace(evidence, sightings=sightings)
        unlocked = lock_looks.look(self._catalog, self._stores, copy, evidence.at)
        return replace(self._evidence, locks={copy.copy_id: unlocked})

    def _general(self) -> Evidence:
        """What is the same for every copy: no store knows more than the catalog, the clock is
        sane."""
        with self._catalog.transaction() as tx:
            now = history.now(tx)
        known = self._evidence
        if known is not None and timedelta(0) <= now - known.at <= LOOK_AGAIN_AFTER:
            return known
        return Evidence(
            at=now,
            catalog_current=_catalog_current(self._catalog, self._stores, self._project),
            clock_sane=_clock_sane(self._catalog),
        )

    def _look_at(self, copy: Copy) -> Sighting:
        with self._catalog.transaction() as tx:
            now = history.now(tx)
            objects = copies.objects(tx, copy.project, copy.copy_id)
        try:
            return Sighting(*_in_store(self._stores[copy.store], copy, objects), at=now)
        except StoreError as error:
            return Sighting(None, str(error), now)


def _in_store(store: Store, copy: Copy, objects: Sequence[CopyObject]) -> tuple[bool | None, str]:
    """Whether the store shows the copy's marker, the manifest that it names, and its objects."""
    try:
        named = layout.parse_marker(store.read(Key(layout.marker_key(copy.prefix))))
        found = canonical.digest(store.read(Key(layout.manifest_key(copy.prefix))))
    except KeyMissing as error:
        return False, str(error)
    except errors.InvalidInput as error:
        return False, f"store {copy.store}: {error}"
    if not named == found == copy.manifest:
        return False, f"store {copy.store} has manifest {found}, marker {named}"
    return _objects_in_store(store, copy, objects)


def _objects_in_store(
    store: Store, copy: Copy, objects: Sequence[CopyObject]
) -> tuple[bool | None, str]:
    """Whether the store lists each object of the copy with its size. A receipt proves the bytes as
    they were: a copy that lost an object since then, or had one cut off, speaks for no other."""
    listing = store.list(Prefix(f"{copy.prefix}{layout.OBJECTS_NAME}"))
    sizes = {one.key: one.size_bytes for one in listing if not one.hidden and not one.foreign}
    if not listing.complete:
        return None, f"store {copy.store} did not list all of {copy.prefix}"
    for item in objects:
        size = sizes.get(Key(layout.object_key(copy.prefix, item.path)))
        if size != item.size_bytes:
            seen = "is not there" if size is None else f"has {size} bytes, not {item.size_bytes}"
            return False, f"store {copy.store}: {item.path} {seen}"
    return True, f"marker, manifest and every object are in store {copy.store}"


def _catalog_current(catalog: Catalog, stores: Stores, project: str) -> Fact:
    try:
        control_keys.guard(catalog, stores, project)
    except (errors.CatalogBehind, errors.ForeignCatalog) as error:
        return Fact.of(False, str(error))
    except (errors.Unavailable, StoreError) as error:
        return Fact.of(None, str(error))
    return Fact.of(True, "every store of the project agrees with the catalog")


def _clock_sane(catalog: Catalog) -> Fact:
    try:
        sane_clock.require(catalog)
    except errors.ClockJump as error:
        return Fact.of(False, str(error))
    return Fact.of(True, "no unexplained jump of the catalog's clock")
