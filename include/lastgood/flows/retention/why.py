"""Why: for one checkpoint each rule that keeps it, and each of the gate's facts with its evidence.

The facts come through the same gate as the sweep's, under the same locks; nothing is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.retention import marks, stage_history
from lastgood.catalog.settings import policies, policy_versions
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.sweeping.tombstones import Tombstone
from lastgood.catalog.validation import receipts
from lastgood.catalog.validation.receipts import Receipt
from lastgood.flows.retention.gate import Lookout, judge_copy
from lastgood.rules import retention
from lastgood.rules.decision import Leaving, Reason
from lastgood.rules.gate import Verdict
from lastgood.rules.names import CheckpointId
from lastgood.rules.policy import Policy
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class CopyWhy:
    """One copy: the gate's verdict while it exists, the tombstone from the intent to delete on."""

    copy: Copy
    verdict: Verdict | None
    receipts: tuple[Receipt, ...]
    tombstone: Tombstone | None


@dataclass(frozen=True, slots=True)
class Why:
    """What keeps a checkpoint now (`kept`), or how it leaves (`leaving`), by policy and references;
    neither for one of which no copy is left."""

    checkpoint: CheckpointId
    policy: str
    policy_digest: str
    mark_id: int | None
    kept: tuple[Reason, ...]
    leaving: Leaving | None
    copies: tuple[CopyWhy, ...]
    override: str | None = None  # of the policy, that holds for the stage

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": str(self.checkpoint),
            "policy": self.policy,
            "policy_digest": self.policy_digest,
            "override": self.override,
            "mark": self.mark_id,
            "kept": [reason.to_json() for reason in self.kept],
            "leaving": _leaving_json(self.leaving),
            "copies": [_copy_json(each) for each in self.copies],
        }


def why(catalog: Catalog, stores: Stores, checkpoint: CheckpointId) -> Why:
    """Explain a checkpoint as of now. Raises NotFound."""
    project = checkpoint.project
    lookout = Lookout(catalog, stores, project)
    with catalog.transaction() as tx:
        found = copies.of_checkpoint(tx, checkpoint)
        mark = marks.newest(tx, project)
    mark_id = mark.mark_id if mark else None
    told = tuple(_explain(catalog, lookout, copy, mark_id) for copy in found)
    with catalog.transaction() as tx:
        version = policy_versions.current(tx, project)
        policy = policies.parsed(version)
        override = policy.override_for(checkpoint.workload, checkpoint.stage)
        rules = policy.for_stage(checkpoint.workload, checkpoint.stage)
        kept, leaving = _retention(tx, found[0], rules)
    return Why(
        checkpoint=checkpoint,
        policy=f"{version.policy} version {version.version}",
        policy_digest=version.digest,
        mark_id=mark_id,
        kept=kept,
        leaving=leaving,
        copies=told,
        override=None if override is None else str(override),
    )


def _explain(catalog: Catalog, lookout: Lookout, copy: Copy, mark_id: int | None) -> CopyWhy:
    verdict = None
    if copy.state not in copies.GONE:
        evidence = lookout.evidence_for(copy)
        with catalog.transaction() as tx:
            judged = judge_copy(tx, copy.project, copy.copy_id, mark_id, evidence)
            copy = judged.copy
        verdict = judged.verdict if copy.state not in copies.GONE else None
    with catalog.transaction() as tx:
        return CopyWhy(
            copy,
            verdict,
            tuple(receipts.of_copy(tx, copy.project, copy.copy_id)),
            tombstones.of_copy(tx, copy.project, copy.copy_id),
        )


def _retention(
    tx: Transaction, copy: Copy, rules: Policy
) -> tuple[tuple[Reason, ...], Leaving | None]:
    now = history.project_now(tx, copy.project)
    stage = stage_history.of_stage(tx, copy.project, copy.stage_id, now)
    if stage is None:
        return (), None
    decision = retention.decide(stage.history, rules, now, stage.facts)
    position = copy.checkpoint.position
    return decision.kept.get(position, ()), decision.candidates.get(position)


def _leaving_json(leaving: Leaving | None) -> dict[str, str] | None:
    if leaving is None:
        return None
    return {
        "role": leaving.role_name,
        "prerequisite": leaving.prerequisite.value,
        "text": leaving.text,
    }


def _copy_json(each: CopyWhy) -> dict[str, Any]:
    return {
        "copy_id": each.copy.copy_id,
        "store": each.copy.store,
        "state": each.copy.state.value,
        "state_at": each.copy.state_at.isoformat(),
        "gate": None if each.verdict is None else each.verdict.to_json(),
        "receipts": [
            {
                "receipt": receipt.receipt,
                "level": receipt.level,
                "verdict": receipt.verdict,
                "recorded_at": receipt.recorded_at.isoformat(),
                "reason": receipt.reason,
            }
            for receipt in each.receipts
        ],
        "tombstone": _tombstone_json(each.tombstone),
    }


def _tombstone_json(tombstone: Tombstone | None) -> dict[str, Any] | None:
    if tombstone is None:
        return None
    return {
        "tombstone_id": str(tombstone.tombstone_id),
        "intended_at": tombstone.recorded_at.isoformat(),
        "mark": tombstone.mark_id,
        "policy_digest": tombstone.policy_digest,
        "facts": dict(tombstone.facts),
        "proved_at": tombstone.proved_at.isoformat() if tombstone.proved_at else None,
    }
