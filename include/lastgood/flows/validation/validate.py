"""Validate: examine copies, level by level, and write down whether they are what they should be.

A receipt's verdict is pass, fail or inconclusive. Only proven corruption fails: a store that
cannot be read, or a limit that was reached, says nothing about the bytes. A failure fences the
writer, blocks restores of the stage, and walks back to the newest checkpoint that passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import blocks, copies, copy_transitions, stages
from lastgood.catalog.validation import validations
from lastgood.catalog.validation.receipts import Receipt
from lastgood.catalog.validation.validations import PresentCopy
from lastgood.flows import quarantine
from lastgood.flows.capacity import pressure
from lastgood.flows.policies import policy_of
from lastgood.flows.validation.examination import examine
from lastgood.flows.validation.levels import Ladder
from lastgood.flows.validation.walk_back import walk_back
from lastgood.rules import cadence
from lastgood.rules.cadence import CopySeen, Due, Why
from lastgood.rules.names import CheckpointId
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Level, ReceiptVerdict
from lastgood.stores.open import Stores

ACTOR = "dag:validate_restores"
_REQUEST_STANDS = timedelta(days=7)
"""How long a request waits for somebody who can carry it out."""


def due_levels(
    catalog: Catalog, project: str, ladder: Ladder | None = None
) -> Mapping[int, Sequence[Level]]:
    """The levels at which each present copy has to be validated now, the weakest first; the most
    urgent copy first.

    What an operator asked for comes before all. In a stage whose restores are blocked, the newest
    copy that did not fail is due. A store above its soft watermark waits for receipts: drills do
    not wait for their interval there.
    """
    ladder = ladder or Ladder()
    with catalog.transaction() as tx:
        policy = policy_of(tx, project)
        now = history.now(tx)
        blocked = set(blocks.blocked_stages(tx, project))
        present = validations.present(tx, project)
        hurry = _pressed(tx, project)
        requested = validations.requested(tx, project, now - _REQUEST_STANDS)
        named = stages.names(tx, project)
    found: dict[int, list[Level]] = {}
    contracts = {copy.copy_id: copy.contract for seen in present.values() for copy in seen}
    for copy_id, level in requested:
        if copy_id in contracts and ladder.reaches(level, contracts[copy_id]):
            found.setdefault(copy_id, []).append(level)
    for stage_id, seen in present.items():
        is_blocked = stage_id in blocked
        rules = policy.for_stage(named[stage_id].workload, named[stage_id].stage)
        for copy_id, level in _due_of_stage(
            seen, rules, ladder, now, blocked=is_blocked, hurry=hurry or is_blocked
        ):
            levels = found.setdefault(copy_id, [])
            if level not in levels:
                levels.append(level)
    return {copy_id: [one for one in Level if one in levels] for copy_id, levels in found.items()}


def _due_of_stage(
    seen: Sequence[PresentCopy],
    rules: Policy,
    ladder: Ladder,
    now: datetime,
    *,
    blocked: bool,
    hurry: bool,
) -> Iterator[tuple[int, Level]]:
    if blocked:
        yield from ((copy.copy_id, Level.CHECKSUM) for copy in _newest_sound(seen))
    ids = {copy.seen.position: copy.copy_id for copy in seen}
    sound, failed = (
        [ladder.seen(copy) for copy in seen if copy.failed is is_failed]
        for is_failed in (False, True)
    )
    for item in cadence.due(sound, rules, ladder.versions, now, hurry=hurry):
        yield ids[item.position], item.level
    for item in cadence.due(failed, rules, ladder.versions, now):
        if item.why is Why.VALIDATOR_CHANGED and _failed_at(item, failed):
            yield ids[item.position], item.level


def _newest_sound(seen: Sequence[PresentCopy]) -> list[PresentCopy]:
    return [copy for copy in reversed(seen) if not copy.failed][:1]


def _failed_at(item: Due, failed: Sequence[CopySeen]) -> bool:
    """Corruption does not heal; but the validator that found it may have been wrong."""
    receipts = next(copy.receipts for copy in failed if copy.position == item.position)
    return receipts[item.level].verdict is ReceiptVerdict.FAIL


def _pressed(tx: Transaction, project: str) -> bool:
    return any(one.pressed for one in pressure.look(tx, project))


def run(
    catalog: Catalog,
    stores: Stores,
    copy_id: int,
    level: str = "checksum",
    actor: str = ACTOR,
    ladder: Ladder | None = None,
) -> dict[str, Any]:
    """Validate one copy and append its receipt; answers the receipt and what followed from it.

    Raises NotFound, CopyState or CopyGone for a copy that is not present (a quarantined one is
    never read), and InvalidInput for a level that is none, or cannot be tried on the copy.
    """
    ladder = ladder or Ladder()
    asked = _level(level)
    with catalog.transaction() as tx:
        project = validations.project_of(tx, copy_id)
    receipt = examine(catalog, stores, ladder, project, copy_id, asked, actor)
    with catalog.transaction() as tx:
        blocked = stages.get(tx, project, receipt.stage_id).blocked_by is not None
    established = None
    if blocked:
        just_now = {(copy_id, asked): receipt}
        established = walk_back(catalog, stores, ladder, project, receipt.stage_id, actor, just_now)
        quarantine.publish(catalog, stores, project, [receipt.stage_id])
    return {
        **_told(receipt),
        "established": None if established is None else str(established.id),
        "blocked": blocked and established is None,
    }


def request(
    catalog: Catalog, checkpoint: CheckpointId, level: str, *, actor: str
) -> list[copies.Copy]:
    """Ask that the present copies of a checkpoint be validated soon, by whoever runs validations;
    answers the copies. Raises NotFound, CopyState or CopyGone if none is present, and InvalidInput
    for a restore of what names no contract."""
    asked = _level(level)
    with catalog.transaction() as tx:
        found = copies.of_checkpoint(tx, checkpoint)
        locks.project_shared(tx, checkpoint.project)
        stages.locked(tx, checkpoint.project, found[0].stage_id)
        present = [
            one for one in copies.of_checkpoint(tx, checkpoint) if one.state is copies.State.PRESENT
        ]
        if not present:
            copy_transitions.require(found[0], copies.State.PRESENT, action="validating")
        contract = validations.contract_of(tx, checkpoint.project, found[0].copy_id)
        if asked is Level.RESTORE and contract is None:
            reason = f"the manifest of {checkpoint} names no contract to restore by"
            raise errors.InvalidInput(where="level", reason=reason)
        for copy in present:
            validations.request(tx, copy, asked, actor=actor)
    return present


def climb(
    catalog: Catalog,
    stores: Stores,
    copy_id: int,
    levels: Iterable[str],
    actor: str = ACTOR,
    ladder: Ladder | None = None,
) -> list[dict[str, Any]]:
    """Validate one copy at these levels in their order, as far as it passes; what `run` answers
    for each."""
    told: list[dict[str, Any]] = []
    for level in levels:
        told.append(run(catalog, stores, copy_id, level, actor, ladder))
        if told[-1]["verdict"] != "pass":
            break
    return told


def _level(name: str) -> Level:
    try:
        return Level(name)
    except ValueError:
        known = ", ".join(Level)
        raise errors.InvalidInput(
            where="level", reason=f"{name!r} is none; levels are {known}"
        ) from None


def _told(receipt: Receipt) -> dict[str, Any]:
    return {
        "receipt": receipt.receipt,
        "copy_id": receipt.copy_id,
        "level": receipt.level,
        "verdict": receipt.verdict,
        "reason": receipt.reason,
        "bytes_read": receipt.bytes_read,
    }
