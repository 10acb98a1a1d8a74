"""Pressure: where a project stands in its stores, recorded whenever that changes, and who is woken.

Crossing soft wakes the sweep, and the validations that it may wait for, of every project that has
bytes in the store. Whoever wakes looks again: the alarm is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog import locks, outbox
from lastgood.catalog.capacity import capacity, capacity_states, reach_proofs
from lastgood.catalog.capacity.capacity import StoreUse
from lastgood.catalog.capacity.capacity_states import StateRow
from lastgood.catalog.capacity.reach_proofs import ProofRow
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import projects
from lastgood.flows.policies import policy_of
from lastgood.rules.capacity import CapacityState, Standing
from lastgood.rules.policy_sections import CapacityPolicy
from lastgood.rules.quantities import counted

ROOM_WANTED = "room-wanted"
RECEIPTS_WANTED = "receipts-wanted"


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """A project in one store, now, with the newest proof that counts."""

    project: str
    store: str
    standing: Standing
    proof: ProofRow | None

    @property
    def pressed(self) -> bool:
        return self.standing.state is not CapacityState.OPEN

    @property
    def wanted_bytes(self) -> int:
        """What must come back before the use is not above soft and the next saves fit below
        hard."""
        needed = self.proof.proof.needed_bytes if self.proof else 0
        return max(self.standing.over_soft_bytes, needed)


def observe(catalog: Catalog, project: str, *, cause: str, actor: str) -> Sequence[StoreStanding]:
    """Where a project stands in each of its stores now, recorded where that has changed. Raises
    NotFound, CatalogSetup without a policy."""
    with catalog.transaction() as tx:
        locks.project_shared(tx, project)
        policy = policy_of(tx, project).capacity
        found = []
        for store in stores_of(tx, project, policy):
            used = capacity.locked_use(tx, project, store)
            found.append(note(tx, project, store, policy, used, cause=cause, actor=actor))
        return found


def refused(catalog: Catalog, project: str, *, asked_bytes: int) -> None:
    """After a prepare found no room: record where the project stands, and wake who can make
    some."""
    observe(catalog, project, cause=f"refused: {counted(asked_bytes, 'byte')}", actor="admission")
    with catalog.transaction() as tx:
        outbox.wake(tx, project, ROOM_WANTED)


def look(tx: Transaction, project: str) -> Sequence[StoreStanding]:
    """The same without a lock and without a record. Raises CatalogSetup without a policy."""
    policy = policy_of(tx, project).capacity
    return [
        standing_in(tx, project, store, policy, capacity.use(tx, project, store))
        for store in stores_of(tx, project, policy)
    ]


def stores_of(tx: Transaction, project: str, policy: CapacityPolicy) -> list[str]:
    """The stores that hold or may hold bytes of a project, its spill store among them; in the order
    in which their counters are locked."""
    named = {policy.spill_store} & {one.name for one in projects.stores(tx)}
    return sorted({*projects.stores_of(tx, project), *(name for name in named if name)})


def note(
    tx: Transaction,
    project: str,
    store: str,
    policy: CapacityPolicy,
    used: StoreUse,
    *,
    cause: str,
    actor: str,
) -> StoreStanding:
    """Record where a project stands if that has changed. The caller holds the project's shared lock
    and the store's counters."""
    found = standing_in(tx, project, store, policy, used)
    before = capacity_states.newest(tx, project, store)
    if is_news(found, before):
        capacity_states.record(
            tx,
            project,
            store,
            found.standing,
            cause=cause,
            proof_id=found.proof.proof_id if found.proof else None,
            actor=actor,
        )
        if found.pressed and _state(before) is CapacityState.OPEN:
            _wake(tx, project, store, found.standing)
    return found


def is_news(found: StoreStanding, recorded: StateRow | None) -> bool:
    """Whether a project stands otherwise in a store than its newest record says."""
    return found.standing.state != _state(recorded)


def standing_of(policy: CapacityPolicy, used: StoreUse, reaches: bool | None = None) -> Standing:
    """The counters of a store held against a policy."""
    return Standing.of(
        policy,
        own=used.own,
        whole=used.whole,
        total_bytes=used.total_bytes,
        peak_bytes=used.peak_bytes,
        reaches=reaches,
    )


def standing_in(
    tx: Transaction, project: str, store: str, policy: CapacityPolicy, used: StoreUse
) -> StoreStanding:
    """The counters held against the policy and the newest proof. A proof counts until the project
    stands open again."""
    since = capacity_states.opened_at(tx, project, store)
    proof = reach_proofs.newest(tx, project, store, after=since)
    reaches = proof.proof.reaches if proof else None
    return StoreStanding(project, store, standing_of(policy, used, reaches), proof)


def _state(row: StateRow | None) -> CapacityState:
    return CapacityState.OPEN if row is None else CapacityState(row.state)


def _wake(tx: Transaction, project: str, store: str, standing: Standing) -> None:
    """What everybody has there can be given back by everybody, its own part by itself."""
    everybody = standing.whole.state is not CapacityState.OPEN
    names = capacity.sharing(tx, store) if everybody else [project]
    for name in names:
        outbox.wake(tx, name, ROOM_WANTED)
        outbox.wake(tx, name, RECEIPTS_WANTED)
