"""Validate: read a copy again and write down whether it is what its manifest says.

A receipt's verdict is pass, fail or inconclusive. Only proven corruption fails: a store that
cannot be read says nothing about the bytes. A failure fences the writer, blocks restores of the
stage, and walks back to the newest checkpoint that passes.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from lastgood import errors
from lastgood.catalog import (
    blocks,
    checkpoints,
    copies,
    generations,
    history,
    locks,
    receipts,
    stages,
    validations,
)
from lastgood.catalog.checkpoints import Checkpoint
from lastgood.catalog.copies import Copy
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.receipts import Receipt, Validation
from lastgood.catalog.stages import Stage
from lastgood.flows import quarantine
from lastgood.flows.checksum import Finding, check
from lastgood.flows.policies import policy_of
from lastgood.flows.reading import reading
from lastgood.rules import cadence
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores

VALIDATOR = "lastgood.checksum"
ACTOR = "dag:validate_restores"


def validator_version() -> str:
    """A receipt of another version is taken again."""
    return metadata.version("lastgood")


def due(catalog: Catalog, project: str) -> list[int]:
    """The present copies of a project that have to be validated now at level `checksum`, the
    most urgent first. In a stage whose restores are blocked, the newest copy that did not fail
    is due."""
    versions = {Level.CHECKSUM: validator_version()}
    with catalog.transaction() as tx:
        policy = policy_of(tx, project)
        now = history.now(tx)
        blocked = set(blocks.blocked_stages(tx, project))
        found: list[int] = []
        for stage_id, seen in validations.present(tx, project).items():
            ids = {copy.seen.position: copy.copy_id for copy in seen}
            hurry = stage_id in blocked
            wanted = cadence.due([copy.seen for copy in seen], policy, versions, now, hurry=hurry)
            urgent = [copy.copy_id for copy in reversed(seen) if hurry and not copy.failed][:1]
            found += list(dict.fromkeys([*urgent, *(ids[item.position] for item in wanted)]))
    return found


def run(
    catalog: Catalog, stores: Stores, copy_id: int, level: str = "checksum", actor: str = ACTOR
) -> dict[str, Any]:
    """Validate one copy and append its receipt; answers the receipt and what followed from it.

    Raises NotFound, CopyState or CopyGone for a copy that is not present (a quarantined one is
    never read), and InvalidInput for a level that nobody validates yet.
    """
    if level != Level.CHECKSUM:
        raise errors.InvalidInput(where="level", reason=f"{level!r} is not validated yet")
    with catalog.transaction() as tx:
        project = validations.project_of(tx, copy_id)
    receipt = _validate(catalog, stores, project, copy_id, actor)
    established = None
    with catalog.transaction() as tx:
        blocked = stages.get(tx, project, receipt.stage_id).blocked_by is not None
    if blocked:
        established = _walk_back(catalog, stores, project, receipt.stage_id, actor)
    if blocked:
        quarantine.publish(catalog, stores, project, [receipt.stage_id])
    return {
        "receipt": receipt.receipt,
        "copy_id": copy_id,
        "level": receipt.level,
        "verdict": receipt.verdict,
        "reason": receipt.reason,
        "bytes_read": receipt.bytes_read,
        "established": None if established is None else str(established.id),
        "blocked": blocked and established is None,
    }


def _validate(catalog: Catalog, stores: Stores, project: str, copy_id: int, actor: str) -> Receipt:
    with reading(catalog, project, copy_id, reader="validator") as copy:
        with catalog.transaction() as tx:
            started_at = history.now(tx)
            expected = checkpoints.manifest_body(tx, project, copy.manifest)
            finished = validations.is_finished(tx, copy)
        if finished:
            finding = check(stores[copy.store], copy, expected)
        else:
            finding = Finding("inconclusive", "its commit has the marker still to write")
        with catalog.transaction() as tx:
            stage = stages.locked(tx, project, copy.stage_id)
            locks.copies(tx, [copy_id])
            validation = Validation(
                level="checksum",
                verdict=finding.verdict,
                validator=VALIDATOR,
                validator_version=validator_version(),
                started_at=started_at,
                finished_at=history.now(tx),
                bytes_read=finding.bytes_read,
                reason=finding.reason,
                topology={"processes": 1},
                problems=finding.problems,
            )
            receipt = receipts.append(tx, copy, validation, actor=actor)
            if finding.verdict == "fail":
                _stop(tx, stage, copy, receipt, finding, actor)
    return receipt


def _stop(
    tx: Transaction, stage: Stage, copy: Copy, receipt: Receipt, finding: Finding, actor: str
) -> None:
    """Proven corruption: the writer must not go on from here, and nobody may restore until a valid
    checkpoint is established."""
    because = f"{copy.checkpoint} failed its {receipt.level} validation: {finding.reason}"
    for generation in validations.descendants(tx, copy):
        generations.fence(tx, stage, generation, actor=actor, reason=because)
    blocks.block(
        tx, stage.project, stage.stage_id, receipt=receipt.receipt, actor=actor, because=because
    )


def _walk_back(
    catalog: Catalog, stores: Stores, project: str, stage_id: int, actor: str
) -> Checkpoint | None:
    """Establish the newest checkpoint that passes now, from the pointer backwards. None, and
    the stage stays blocked, if none does or if one cannot be read: an older one must not stand
    in for a newer one of which nothing bad is known."""
    with catalog.transaction() as tx:
        found = validations.restorable(tx, project, stage_id)
    for copy_id in found:
        try:
            receipt = _validate(catalog, stores, project, copy_id, actor)
        except (errors.CopyState, errors.RestoreBlocked):
            continue  # it went to quarantine meanwhile
        if receipt.verdict == "pass":
            return _establish(catalog, project, receipt, actor)
        if receipt.verdict == "inconclusive":
            return None
    return None


def _establish(catalog: Catalog, project: str, receipt: Receipt, actor: str) -> Checkpoint | None:
    """The recorded exception: the pointer goes to a checkpoint that was found valid, if it still is
    the newest one of which nothing bad is known."""
    with catalog.transaction() as tx:
        stage = stages.locked(tx, project, receipt.stage_id)
        copy = copies.get(tx, project, receipt.copy_id)
        last = receipts.latest_verdict(tx, project, receipt.copy_id)
        newest = validations.restorable(tx, project, stage.stage_id)[:1]
        if newest != [copy.copy_id] or last is None or last.verdict != "pass":
            return None
        checkpoint = checkpoints.find(tx, copy.checkpoint)
        assert checkpoint is not None
        because = f"{checkpoint.id} passed its {receipt.level} validation"
        before = checkpoints.latest(tx, stage)
        if before is None or before.checkpoint_id != checkpoint.checkpoint_id:
            event = history.record(
                tx,
                stage.stage_id,
                "pointer-reset",
                actor=actor,
                facts={
                    "from": None if before is None else str(before.id),
                    "to": str(checkpoint.id),
                    "receipt": receipt.receipt,
                },
            )
            checkpoints.reset_pointer(tx, stage, checkpoint, event.recorded_at)
        blocks.unblock(
            tx,
            project,
            stage.stage_id,
            established=checkpoint.checkpoint_id,
            receipt=receipt.receipt,
            actor=actor,
            because=because,
        )
    return checkpoint
