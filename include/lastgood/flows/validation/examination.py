"""One examination of one copy: its receipt, and what stops if it proves corruption."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from lastgood.catalog import history, locks, outbox
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import blocks, checkpoints, copies, dependencies, generations, stages
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.validation import receipts, validations
from lastgood.catalog.validation.receipts import Receipt, Validation
from lastgood.flows.capacity import pressure
from lastgood.flows.policies import rules_of
from lastgood.flows.validation.findings import Finding
from lastgood.flows.validation.levels import Ladder, Subject
from lastgood.flows.validation.reading import reading
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores

EVIDENCE_OWNER = "lastgood"


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
            rules = rules_of(tx, project, copy.stage_id)
            subject = Subject(
                copy,
                checkpoints.manifest_body(tx, project, copy.manifest),
                copies.objects(tx, project, copy_id),
                lent,
            )
            finished = validations.is_finished(tx, copy)
            began_after = receipts.last_number(tx, project, copy.stage_id)
        if not finished:
            examined = ladder.not_yet(level, "its commit has the marker still to write")
        elif copy.carried_out < copy.transition:
            examined = ladder.not_yet(level, "it was taken back, and is not shown again yet")
        else:
            examined = ladder.examine(level, stores[copy.store], subject, rules.validate)
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
            before = receipts.latest_verdict(tx, project, copy_id)
            receipt = receipts.append(tx, copy, validation, actor=actor)
            was_failed = before is not None and before.verdict == "fail"
            if finding.verdict == "fail":
                _stop(tx, stage, copy, receipt, actor)
                if not was_failed:
                    _keep_as_evidence(tx, copy, receipt, rules.forensic_retention, actor)
            elif finding.verdict == "pass" and was_failed:
                _wake_for(tx, stage.project, dependencies.stages_on(tx, project, copy.manifest))
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
    _wake_for(tx, stage.project, set(resting) - {stage.stage_id})


def _wake_for(tx: Transaction, project: str, resting: Collection[int]) -> None:
    """Whoever runs validations finds what those stages can be restored from now: nothing of theirs
    was validated, so nobody walks back for them otherwise before the next schedule."""
    if not set(resting).isdisjoint(blocks.blocked_stages(tx, project)):
        outbox.wake(tx, project, pressure.RECEIPTS_WANTED)


def _keep_as_evidence(
    tx: Transaction, copy: Copy, receipt: Receipt, period: timedelta, actor: str
) -> None:
    """What damaged a copy is found in its bytes, if at all: an incident hold of its own keeps them
    for a period, which failures found later do not prolong."""
    hold = NewHold(
        kind="incident",
        owner=EVIDENCE_OWNER,
        reason=f"evidence of the failed {receipt.level} validation {receipt.receipt[:12]}",
        placed_by=actor,
        expires_at=history.now(tx) + period,
    )
    hold_id = holds.record(tx, copy.project, hold)
    holds.take(tx, hold_id, copy.stage_id, [copy.checkpoint_id], actor=actor)
