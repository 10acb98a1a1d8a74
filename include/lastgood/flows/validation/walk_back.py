"""After a failure: establish the newest checkpoint that passes at the gate's level."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood import errors
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import checkpoints, copies, stages
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.validation import receipts, validations
from lastgood.catalog.validation.receipts import Receipt
from lastgood.flows.policies import rules_of
from lastgood.flows.validation.establish import establish
from lastgood.flows.validation.examination import examine
from lastgood.flows.validation.levels import Ladder
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores

JustNow = Mapping[tuple[int, Level], Receipt]
"""What was validated a moment ago, by copy and level: it is not done again."""


def walk_back(
    catalog: Catalog,
    stores: Stores,
    ladder: Ladder,
    project: str,
    stage_id: int,
    actor: str,
    just_now: JustNow,
) -> Checkpoint | None:
    """Establish the newest checkpoint that passes now, from the pointer backwards, at each level
    up to the gate's.

    None, and the stage stays blocked, if none does, or if one proves nothing or cannot be tried at
    the gate's level: an older one must not stand in for a newer one of which nothing bad is known,
    and only an operator may be content with less than the gate asks for.
    """
    with catalog.transaction() as tx:
        found = validations.restorable(tx, project, stage_id)
        gate = rules_of(tx, project, stage_id).gate.level
    for copy_id in found:
        try:
            receipt = _climb(catalog, stores, ladder, project, copy_id, actor, just_now)
        except (errors.CopyState, errors.RestoreBlocked):
            continue  # it went to quarantine meanwhile
        if receipt.verdict == "pass" and receipt.level in gate.at_least:
            return _establish(catalog, project, receipt, actor)
        if receipt.verdict != "fail":
            return None
    return None


def _climb(
    catalog: Catalog,
    stores: Stores,
    ladder: Ladder,
    project: str,
    copy_id: int,
    actor: str,
    just_now: JustNow,
) -> Receipt:
    """The receipt at the highest level, or the first that is no pass."""
    with catalog.transaction() as tx:
        copy = copies.get(tx, project, copy_id)
        gate = rules_of(tx, project, copy.stage_id).gate.level
        contract = validations.contract_of(tx, project, copy_id)
    levels = [level for level in Level if gate in level.at_least]
    assert levels, "every level is at least as strong as the weakest"
    for level in levels:
        if level is not Level.CHECKSUM and not ladder.reaches(level, contract):
            break
        receipt = just_now.get((copy_id, level)) or examine(
            catalog, stores, ladder, project, copy_id, level, actor
        )
        if receipt.verdict != "pass":
            break
    return receipt


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
        establish(tx, stage, checkpoint, receipt=receipt.receipt, because=because, actor=actor)
    return checkpoint
