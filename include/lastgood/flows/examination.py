"""One examination of one copy: its receipt, and what stops if it proves corruption."""

from __future__ import annotations

from dataclasses import replace

from lastgood.catalog import (
    blocks,
    checkpoints,
    copies,
    dependencies,
    generations,
    history,
    locks,
    receipts,
    stages,
    validations,
)
from lastgood.catalog.copies import Copy
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.receipts import Receipt, Validation
from lastgood.catalog.stages import Stage
from lastgood.flows.findings import Finding
from lastgood.flows.levels import Ladder, Subject
from lastgood.flows.policies import rules_of
from lastgood.flows.reading import reading
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores


def examine(
    catalog: Catalog,
    stores: Stores,
    ladder: Ladder,
    project: str,
    copy_id: int,
    level: Level,
    actor: str,
) -> Receipt:
    """Examine a present copy at a level and append the receipt; a failure fences its writer and
    blocks restores of its stage. Raises CopyState or CopyGone for a copy that is not present, and
    InvalidInput for a level that cannot be tried on it."""
    with reading(catalog, project, copy_id, reader="validator") as (copy, lent):
        with catalog.transaction() as tx:
            started_at = history.now(tx)
            policy = rules_of(tx, project, copy.stage_id).validate
            subject = Subject(
                copy,
                checkpoints.manifest_body(tx, project, copy.manifest),
                copies.objects(tx, project, copy_id),
                lent,
            )
            finished = validations.is_finished(tx, copy)
            began_after = receipts.last_number(tx, project, copy.stage_id)
        if finished:
            examined = ladder.examine(level, stores[copy.store], subject, policy)
        else:
            examined = ladder.not_yet(level, "its commit has the marker still to write")
        with catalog.transaction() as tx:
            if examined.finding.verdict == "fail":
                locks.project_exclusive(tx, project)  # other stages may rest on these bytes
            stage = stages.locked(tx, project, copy.stage_id)
            locks.copies(tx, [copy_id])
            finding = _against_failures(tx, copy, level, examined.finding, began_after)
            validation = Validation(
                level=level.value,
                verdict=finding.verdict,
                validator=examined.validator,
                validator_version=examined.version,
                started_at=started_at,
                finished_at=history.now(tx),
                bytes_read=finding.bytes_read,
                reason=finding.reason,
                topology=finding.topology,
                problems=finding.problems,
                last_lines=finding.last_lines,
            )
            receipt = receipts.append(tx, copy, validation, actor=actor)
            if finding.verdict == "fail":
                _stop(tx, stage, copy, receipt, actor)
    return receipt


def _against_failures(
    tx: Transaction, copy: Copy, level: Level, finding: Finding, began_after: int
) -> Finding:
    """A pass says nothing against a failure of another level: bytes as committed may not restore,
    and a format does not see every changed byte. Nor does it against one that was found meanwhile:
    it may have read the bytes before they changed."""
    if finding.verdict != "pass":
        return finding
    failure = receipts.standing_failure(tx, copy.project, copy.copy_id, level.value, began_after)
    if failure is None:
        return finding
    reason = (
        f"{finding.reason}; but receipt {failure.receipt[:12]} failed at level {failure.level}, and"
        " only a later pass of that level takes it back"
    )
    topology = {**finding.topology, receipts.HELD_BACK: failure.receipt}
    return replace(finding, verdict="inconclusive", reason=reason, topology=topology)


def _stop(tx: Transaction, stage: Stage, copy: Copy, receipt: Receipt, actor: str) -> None:
    """Proven corruption: the writer must not go on from here, and nobody may restore, also in other
    stages that depend on it, until a valid checkpoint is established."""
    because = f"{copy.checkpoint} failed its {receipt.level} validation: {receipt.reason}"
    for generation in validations.descendants(tx, copy):
        generations.fence(tx, stage, generation, actor=actor, reason=because)
    resting = dependencies.stages_on(tx, stage.project, copy.manifest)
    locks.stages(tx, resting)
    for stage_id in sorted({stage.stage_id, *resting}):
        blocks.block(
            tx, stage.project, stage_id, receipt=receipt.receipt, actor=actor, because=because
        )
