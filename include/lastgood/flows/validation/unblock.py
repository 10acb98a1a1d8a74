"""Unblock: an operator establishes a checkpoint after a failed validation blocked restores.

What validation does by itself when an earlier checkpoint passes, said by a person: the pointer goes
to a checkpoint with a passing receipt, and restores are answered again."""

from __future__ import annotations

from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import checkpoints, stages
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.validation import receipts
from lastgood.catalog.validation.receipts import Receipt
from lastgood.errors import Conflict, NotFound
from lastgood.flows import control_keys, quarantine
from lastgood.flows.policies import rules_of
from lastgood.flows.validation.establish import establish
from lastgood.rules.names import CheckpointId
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores


def unblock(
    catalog: Catalog, stores: Stores, name: CheckpointId, *, because: str, actor: str
) -> Checkpoint:
    """Establish a checkpoint and allow restores of its stage.

    Raises NotFound, and Conflict if the stage is not blocked, or if the checkpoint has no present
    copy whose newest receipt passed."""
    control_keys.guard(catalog, stores, name.project)
    with catalog.transaction() as tx:
        stage = stages.find_locked(tx, name.stage_id)
        if stage.blocked_by is None:
            raise Conflict(reason=f"restores of {stage.name} are not blocked")
        checkpoint = checkpoints.find(tx, name)
        if checkpoint is None:
            raise NotFound(what="checkpoint", name=str(name))
        receipt = _passing_receipt(tx, checkpoint)
        said = because + _weaker_than_the_gate(tx, stage, receipt)
        establish(tx, stage, checkpoint, receipt=receipt.receipt, because=said, actor=actor)
    quarantine.publish(catalog, stores, name.project, [stage.stage_id])
    return checkpoint


def _weaker_than_the_gate(tx: Transaction, stage: Stage, receipt: Receipt) -> str:
    """An operator may know better than the gate; the record says that it was so."""
    gate = rules_of(tx, stage.project, stage.stage_id).gate.level
    if Level(receipt.level) in gate.at_least:
        return ""
    return f" (it passed level {receipt.level}; the gate asks for {gate})"


def _passing_receipt(tx: Transaction, checkpoint: Checkpoint) -> Receipt:
    needed = checkpoints.lacking(tx, checkpoint)
    if needed is not None:
        raise Conflict(
            reason=f"{checkpoint.id} depends on {needed.id}, of which no sound copy is there;"
            " establish another checkpoint"
        )
    copy = checkpoints.readable_copy(tx, checkpoint)
    last = None if copy is None else receipts.latest_verdict(tx, checkpoint.project, copy.copy_id)
    if last is None or last.verdict != "pass":
        raise Conflict(
            reason=f"{checkpoint.id} has no present copy whose newest receipt passed; run"
            f" `lastgood verify {checkpoint.id}` first, or establish another checkpoint"
        )
    return last
