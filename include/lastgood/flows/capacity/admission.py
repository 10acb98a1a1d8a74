"""Admission: does an attempt get its room, and in which store?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lastgood.catalog import history
from lastgood.catalog.capacity import capacity
from lastgood.catalog.capacity.capacity import StoreUse
from lastgood.catalog.db import Transaction
from lastgood.errors import NoRoom
from lastgood.flows.capacity import pressure
from lastgood.flows.capacity.pressure import StoreStanding
from lastgood.rules.capacity import Admission, Freed, Use
from lastgood.rules.capacity import admit as decide
from lastgood.rules.policy_sections import CapacityPolicy
from lastgood.rules.quantities import counted
from lastgood.stores.base import Store


def admit(
    tx: Transaction,
    project: str,
    policy: CapacityPolicy,
    candidates: Sequence[Store],
    asked_bytes: int,
    *,
    new_job: bool = False,
    actor: str,
) -> Store:
    """Claim the room in the first of the stores that has it. Counters are locked and changed here,
    as the last lock of the transaction: two jobs cannot both take the last room. The caller holds
    the project's shared lock. `new_job`: its stage has no checkpoint yet.

    Raises NoRoom with the numbers of every store that was tried.
    """
    names = sorted(store.name for store in candidates)  # all lock in one order
    uses = {name: capacity.locked_use(tx, project, name) for name in names}
    refusals = {}
    for store in candidates:
        used = uses[store.name]
        before = pressure.standing_in(tx, project, store.name, policy, used)
        admission = decide(
            before.standing, asked_bytes, new_job=new_job, forecast=_forecast(tx, before)
        )
        if admission.admitted:
            capacity.claim(tx, project, store.name, asked_bytes)
            pressure.note(
                tx,
                project,
                store.name,
                policy,
                _with_claim(used, asked_bytes),
                cause=f"admitted: {counted(asked_bytes, 'byte')}",
                actor=actor,
            )
            return store
        refusals[store.name] = admission
    raise _no_room(project, refusals)


def _forecast(tx: Transaction, one: StoreStanding) -> Sequence[Freed]:
    return one.proof.proof.forecast(history.now(tx)) if one.proof else ()


def _with_claim(used: StoreUse, asked_bytes: int) -> StoreUse:
    return replace(used, own=_more(used.own, asked_bytes), whole=_more(used.whole, asked_bytes))


def _more(use: Use, asked_bytes: int) -> Use:
    return replace(use, in_flight_bytes=use.in_flight_bytes + asked_bytes)


def _no_room(project: str, refusals: dict[str, Admission]) -> NoRoom:
    """The project's own store speaks, unless another one has room sooner."""
    store, first = next(iter(refusals.items()))
    return NoRoom(
        store=store,
        project=project,
        state=first.state.value,
        asked_bytes=first.asked_bytes,
        usage_bytes=first.measure.use.claimed_bytes,
        hard_bytes=first.measure.limits.hard_bytes,
        reserve_bytes=first.measure.limits.reserve_bytes,
        missing_bytes=first.missing_bytes,
        retry_after_seconds=min(one.retry_after_seconds for one in refusals.values()),
        stores={name: one.to_json() for name, one in refusals.items()},
    )
