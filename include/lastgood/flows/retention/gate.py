"""The gate: look in the stores first, then judge one copy under its locks.

This is the one way to a verdict, for the sweep's two steps and for whoever asks why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from lastgood import errors
from lastgood.catalog import copies, gate_facts, history, locks, references
from lastgood.catalog.copies import Copy
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.gate_facts import Evidence, Sighting
from lastgood.flows import control_keys, sane_clock
from lastgood.flows.policies import rules_of
from lastgood.flows.retention import lock_looks
from lastgood.rules import canonical, layout
from lastgood.rules.gate import Fact, Verdict, judge
from lastgood.stores.base import Key, KeyMissing, StoreError
from lastgood.stores.open import Stores

LOOK_AGAIN_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Judged:
    """A locked copy as it stands, and what the gate says about it."""

    copy: Copy
    verdict: Verdict


def judge_copy(
    tx: Transaction, project: str, copy_id: int, mark_id: int | None, evidence: Evidence
) -> Judged:
    """Lock a copy with what it depends on, gather every fact about it and judge. What the caller
    records in the same transaction rests on these facts. Raises NotFound."""
    known = copies.get(tx, project, copy_id)
    needed = copies.of_checkpoints(
        tx, project, references.needed(tx, project, [known.checkpoint_id])
    )
    locks.project_shared(tx, project)
    locks.stages(tx, {known.stage_id, *(copy.stage_id for copy in needed)})
    locks.copies(tx, {copy_id, *(copy.copy_id for copy in needed)})
    copy = copies.get(tx, project, copy_id)
    return Judged(copy, judge(gate_facts.gather(tx, copy, mark_id, evidence)))


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
        try:
            return Sighting(*_in_store(self._stores, copy), at=now)
        except StoreError as error:
            return Sighting(None, str(error), now)


def _in_store(stores: Stores, copy: Copy) -> tuple[bool, str]:
    """Whether the store shows the copy's marker, and the manifest that it names."""
    store = stores[copy.store]
    try:
        named = layout.parse_marker(store.read(Key(layout.marker_key(copy.prefix))))
        found = canonical.digest(store.read(Key(layout.manifest_key(copy.prefix))))
    except KeyMissing as error:
        return False, str(error)
    except errors.InvalidInput as error:
        return False, f"store {copy.store}: {error}"
    if not named == found == copy.manifest:
        return False, f"store {copy.store} has manifest {found}, marker {named}"
    return True, f"marker and manifest are in store {copy.store}"


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
