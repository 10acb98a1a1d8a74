"""What one run of a sweep takes of its plan, and in which order.

A run takes a bounded number of copies; the next one goes on. In a store under pressure the batch is
ten times as large, what frees most per proven risk goes first (see `rules.pressure`), and the run
stops there once the use is not above soft and the next saves fit below hard. Facts, graces and
verdicts are the same as ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.capacity import reach_proofs
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.keeping import retirements
from lastgood.flows.capacity.pressure import StoreStanding
from lastgood.flows.policies import policy_of
from lastgood.flows.sweeping.plan import Plan
from lastgood.rules.policy import Policy
from lastgood.rules.policy_sections import GatePolicy
from lastgood.rules.pressure import Going, in_order
from lastgood.rules.quantities import rough_size
from lastgood.rules.retention_rules import Position

BATCH_COPIES = 1_000
PRESSED_BATCH_COPIES = 10_000


@dataclass(frozen=True, slots=True)
class Turn:
    """The copies of a plan in the order of one run. `to_delete` and `to_hide` have, for each store
    under pressure, the bytes that are wanted of either step: a run stops there when it has them."""

    delete: tuple[Copy, ...]
    quarantine: tuple[Copy, ...]
    to_delete: Mapping[str, int] = field(default_factory=dict)
    to_hide: Mapping[str, int] = field(default_factory=dict)
    batch: int = BATCH_COPIES

    def __str__(self) -> str:
        lines = [
            f"under pressure in {store}: {rough_size(size)} are wanted back"
            for store, size in self.to_delete.items()
        ]
        for step in ("delete", "quarantine"):
            found: tuple[Copy, ...] = getattr(self, step)
            lines += [f"{step}, in this order:"] if found else []
            lines += [
                f"  {copy.checkpoint} in {copy.store}, {rough_size(copy.stored_bytes)}"
                for copy in found
            ]
        return "\n".join(lines)


def turn(catalog: Catalog, planned: Plan, standings: Sequence[StoreStanding]) -> Turn:
    """The run that a plan asks for, where a project stands like this."""
    over = {one.store: one.wanted_bytes for one in standings if one.pressed}
    if not over:
        # What depends on another was committed after it: the newest first lets both go in one run.
        return Turn(tuple(reversed(planned.may_delete)), tuple(reversed(planned.may_quarantine)))
    with catalog.transaction() as tx:
        ranking = _Ranking(tx, planned)
        hidden = _hidden_bytes(tx, planned)
        return Turn(
            ranking.ordered(planned.may_delete, over),
            ranking.ordered(planned.may_quarantine, over),
            over,
            {store: size - hidden[store] for store, size in over.items()},
            PRESSED_BATCH_COPIES,
        )


def _hidden_bytes(tx: Transaction, planned: Plan) -> Mapping[str, int]:
    """By store, what comes back anyway when the graces under way end."""
    back = {copy.copy_id for copy in planned.take_back}
    sums: defaultdict[str, int] = defaultdict(int)
    for copy in copies.in_state(tx, planned.project, State.QUARANTINED):
        if copy.copy_id not in back:
            sums[copy.store] += copy.stored_bytes
    return sums


@dataclass(slots=True)
class Taking:
    """Hands out the copies of one step, and keeps count of what comes of them."""

    wanted: dict[str, int]
    batch: int
    left: int = 0

    def each(self, found: Sequence[Copy], done: Callable[[], int]) -> Iterator[Copy]:
        """Copies until the batch is full; in a store under pressure until enough was done, where
        `done` counts the copies that the step got through."""
        handed = 0
        for copy in found:
            if handed == self.batch or self.wanted.get(copy.store, 1) <= 0:
                self.left += 1
                continue
            handed += 1
            before = done()
            yield copy
            if copy.store in self.wanted and done() > before:
                self.wanted[copy.store] -= copy.stored_bytes


class _Ranking:
    """The risk of taking each copy of a plan: what its stage then stands on."""

    def __init__(self, tx: Transaction, planned: Plan) -> None:
        now = history.now(tx)
        found = (*planned.delete, *planned.quarantine)
        self._going = {copy.checkpoint_id for copy in found}
        self._proofs = _proofs(tx, planned.project, found, self._going, now)
        self._ended = retirements.in_effect(tx, planned.project, now).keys()
        self._needs = reach_proofs.needs(tx, planned.project, self._going)

    def ordered(self, found: Sequence[Copy], stores: Mapping[str, Any]) -> tuple[Copy, ...]:
        """The copies of stores under pressure by rank, then the others as ever."""
        pressed = {copy.copy_id: copy for copy in found if copy.store in stores}
        by_checkpoint: defaultdict[int, set[int]] = defaultdict(set)
        for copy in pressed.values():
            by_checkpoint[copy.checkpoint_id].add(copy.copy_id)
        ranked = in_order(self._as_going(copy, by_checkpoint) for copy in pressed.values())
        others = [copy for copy in reversed(found) if copy.store not in stores]
        return (*(pressed[one.copy_id] for one in ranked), *others)

    def _as_going(self, copy: Copy, by_checkpoint: Mapping[int, set[int]]) -> Going:
        needed = self._needs.get(copy.checkpoint_id, set())
        proofs = self._proofs.get(copy.stage_id, [])
        newer = len(proofs) - bisect_right(proofs, copy.checkpoint.position)
        return Going(
            copy.copy_id,
            copy.stored_bytes,
            None if copy.stage_id in self._ended else newer,
            copy.committed_at,
            frozenset[int]().union(*(by_checkpoint.get(one, ()) for one in needed)),
        )


def _proofs(
    tx: Transaction, project: str, found: Sequence[Copy], going: set[int], now: datetime
) -> Mapping[int, list[Position]]:
    """By stage the positions, in order, that stay and have a fresh pass at the gate's level."""
    policy = policy_of(tx, project)
    by_gate: defaultdict[GatePolicy, set[int]] = defaultdict(set)
    for stage_id, copy in {copy.stage_id: copy for copy in found}.items():
        by_gate[_gate(policy, copy)].add(stage_id)
    proofs: defaultdict[int, list[Position]] = defaultdict(list)
    for gate, stage_ids in by_gate.items():
        since = now - gate.receipt_max_age
        for one in reach_proofs.standing(tx, project, stage_ids, gate.level.at_least, since):
            if one.checkpoint_id not in going:
                proofs[one.stage_id].append(one.position)
    return proofs


def _gate(policy: Policy, copy: Copy) -> GatePolicy:
    return policy.for_stage(copy.checkpoint.workload, copy.checkpoint.stage).gate
