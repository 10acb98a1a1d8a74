"""The recorded exception to a pointer that only moves forward: after a failed validation it goes to
a checkpoint that passed, and restores are answered again."""

from __future__ import annotations

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import blocks, checkpoints
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.stages import Stage


def establish(
    tx: Transaction,
    stage: Stage,
    checkpoint: Checkpoint,
    *,
    receipt: str,
    because: str,
    actor: str,
) -> None:
    """Establish a checkpoint of a locked stage and allow its restores. `receipt` is the pass that
    speaks for it; the caller found under the lock that it is the copy's newest."""
    before = checkpoints.latest(tx, stage)
    if before is None or before.checkpoint_id != checkpoint.checkpoint_id:
        facts = {
            "from": None if before is None else str(before.id),
            "to": str(checkpoint.id),
            "receipt": receipt,
            "because": because,
        }
        event = history.record(tx, stage.stage_id, "pointer-reset", actor=actor, facts=facts)
        checkpoints.reset_pointer(tx, stage, checkpoint, event.recorded_at)
    blocks.unblock(
        tx,
        stage.project,
        stage.stage_id,
        established=checkpoint.checkpoint_id,
        receipt=receipt,
        actor=actor,
        because=because,
    )
