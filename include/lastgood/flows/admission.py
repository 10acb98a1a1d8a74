"""Admission: does an attempt get its room, and in which store?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from lastgood.catalog import capacity
from lastgood.catalog.capacity import StoreUse
from lastgood.catalog.db import Transaction
from lastgood.errors import NoRoom
from lastgood.rules.capacity import Admission, Limits
from lastgood.rules.capacity import admit as decide
from lastgood.rules.policy_sections import Bound, CapacityPolicy
from lastgood.stores.base import Store

_NO_BOUND = Bound(Fraction(1))


def admit(
    tx: Transaction,
    project: str,
    policy: CapacityPolicy,
    candidates: Sequence[Store],
    asked_bytes: int,
) -> Store:
    """Claim the room in the first of the stores that has it. Counters are locked and changed here,
    as the last lock of the transaction: two jobs cannot both take the last room. Raises NoRoom with
    the numbers of the first store."""
    names = sorted(store.name for store in candidates)  # all lock in one order
    uses = {name: capacity.locked_use(tx, project, name) for name in names}
    refusals = []
    for store in candidates:
        refused = _refusal(policy, uses[store.name], asked_bytes)
        if refused is None:
            capacity.claim(tx, project, store.name, asked_bytes)
            return store
        refusals.append(refused)
    first = refusals[0]
    raise NoRoom(
        store=candidates[0].name,
        project=project,
        asked_bytes=asked_bytes,
        usage_bytes=first.use.claimed_bytes,
        hard_bytes=first.limits.hard_bytes,
        reserve_bytes=first.limits.reserve_bytes,
        retry_after_seconds=first.retry_after_seconds,
    )


def _refusal(policy: CapacityPolicy, use: StoreUse, asked_bytes: int) -> Admission | None:
    """A share bounds what everybody has in the store; bytes are the project's own quota."""
    shares = replace(policy, soft=_share(policy.soft), hard=_share(policy.hard))
    whole = Limits.of(shares, total_bytes=use.total_bytes, peak_bytes=use.peak_bytes)
    own = Limits.of(policy, total_bytes=None, peak_bytes=use.peak_bytes)
    for used, limits in ((use.whole, whole), (use.own, own)):
        admission = decide(used, limits, asked_bytes)
        if not admission.admitted:
            return admission
    return None


def _share(bound: Bound) -> Bound:
    return bound if bound.share is not None else _NO_BOUND
