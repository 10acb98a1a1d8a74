"""Restoring the last good checkpoint of a stage as a recovery would, and timing it.

Nobody is fenced for it: a reader's lease, every byte, every tensor, and one training step where the
checkpoint names a contract that is registered here. Each level leaves its receipt, with all that
follows from a failure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import stages
from lastgood.catalog.validation import receipts, validations
from lastgood.catalog.validation.drills import DueStage
from lastgood.catalog.validation.receipts import Receipt
from lastgood.errors import LastgoodError
from lastgood.flows.jobs.read import latest_readable
from lastgood.flows.policies import rules_of
from lastgood.flows.validation import validate
from lastgood.flows.validation.levels import Ladder
from lastgood.rules.policy_sections import Objectives
from lastgood.rules.retention_rules import Level
from lastgood.stores.open import Stores


@dataclass(slots=True)
class Restored:
    """What came of one stage. `rto_seconds`: from the first byte to the end of the first training
    step, or without a contract to the last tensor; `rpo_seconds`: the age of the checkpoint when
    the drill began, which is what a recovery would have lost if somebody was writing."""

    stage_id: int
    stage: str
    checkpoint: str | None = None
    checkpoint_id: int | None = None
    reason: str = ""
    verified: bool = False
    first_step: bool = False
    active: bool = False
    bytes: int = 0
    waiting_bytes: int = 0
    rto_seconds: float | None = None
    rpo_seconds: float | None = None
    rto_objective_seconds: float = 0
    rpo_objective_seconds: float = 0
    levels: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def within_rto(self) -> bool:
        return self.rto_seconds is not None and self.rto_seconds <= self.rto_objective_seconds

    @property
    def within_rpo(self) -> bool:
        """Nothing is lost of a stage that nobody writes."""
        age = self.rpo_seconds
        return not self.active or (age is not None and age <= self.rpo_objective_seconds)

    @property
    def passed(self) -> bool:
        return self.verified and self.within_rto and self.within_rpo

    def to_json(self) -> dict[str, Any]:
        names = (
            *("reason", "verified", "first_step", "active", "bytes", "waiting_bytes"),
            *("rto_seconds", "rpo_seconds", "rto_objective_seconds", "rpo_objective_seconds"),
            *("within_rto", "within_rpo", "levels"),
        )
        return {name: getattr(self, name) for name in names}


def restore(
    catalog: Catalog, stores: Stores, due: DueStage, *, actor: str, ladder: Ladder
) -> Restored:
    """Restore one stage. What the stage, its store or the catalog refuses is its result, never an
    error."""
    found = Restored(due.stage_id, str(due.stage), active=due.active)
    found.waiting_bytes = due.waiting_bytes
    try:
        _restore(catalog, stores, due, found, actor, ladder)
    except LastgoodError as error:
        found.verified, found.reason = False, str(error)
    return found


def _restore(
    catalog: Catalog, stores: Stores, due: DueStage, found: Restored, actor: str, ladder: Ladder
) -> None:
    project = due.stage.project
    with catalog.transaction() as tx:
        stage = stages.find_locked(tx, due.stage)
        rules = rules_of(tx, project, due.stage_id)
        now = history.now(tx)
        blocked = stage.blocked_by
        readable = latest_readable(tx, stage)
    _aim(found, rules.objectives)
    if blocked is not None:
        found.reason = f"restores are blocked since receipt {blocked}"
        return
    if readable.checkpoint is None or readable.copy is None:
        found.reason = "; ".join(readable.reasons)
        return
    checkpoint, copy_id = readable.checkpoint, readable.copy.copy_id
    found.checkpoint, found.checkpoint_id = str(checkpoint.id), checkpoint.checkpoint_id
    found.rpo_seconds = _seconds(now, checkpoint.recorded_at)
    with catalog.transaction() as tx:
        contract = validations.contract_of(tx, project, copy_id)
    levels = [level for level in Level if ladder.reaches(level, contract)]
    found.verified = True
    for level in levels:
        started = time.monotonic()
        told = validate.run(catalog, stores, copy_id, level.value, actor, ladder)
        took = time.monotonic() - started
        found.levels[level.value] = {"verdict": told["verdict"], "seconds": round(took, 3)}
        found.bytes = max(found.bytes, told["bytes_read"])
        if told["verdict"] != "pass":
            found.reason = f"{level}: {told['verdict']}, {told['reason']}"
            # Above the gate's level, what could not be tried says nothing against a recovery.
            if told["verdict"] == "fail" or rules.gate.level in level.at_least:
                found.verified = False
                return
            break
    if rules.gate.level not in levels:
        found.verified = False
        found.reason = f"the gate asks for a {rules.gate.level}, and no contract for it is here"
    found.first_step = found.levels.get(Level.RESTORE, {}).get("verdict") == "pass"
    found.rto_seconds = _recovery_seconds(catalog, project, copy_id, found)
    found.reason = "; ".join(one for one in (_against_objectives(found), found.reason) if one)


def _aim(found: Restored, objectives: Objectives) -> None:
    found.rto_objective_seconds = objectives.rto.total_seconds()
    found.rpo_objective_seconds = objectives.rpo.total_seconds()


def _recovery_seconds(catalog: Catalog, project: str, copy_id: int, found: Restored) -> float:
    """A recovery downloads, verifies and trains, once: the restore's own seconds. Where there is no
    contract, reading every byte and loading every tensor stand for it."""
    if found.first_step:
        with catalog.transaction() as tx:
            receipt = receipts.of_copy(tx, project, copy_id)[-1]
        measured = _measured(receipt)
        return measured or float(found.levels[Level.RESTORE]["seconds"])
    return round(sum(float(told["seconds"]) for told in found.levels.values()), 3)


def _measured(receipt: Receipt) -> float | None:
    seconds = receipt.body.get("topology", {}).get("seconds", {})
    parts = [seconds.get(part) for part in ("download", "restore")]
    if receipt.level != Level.RESTORE.value or any(part is None for part in parts):
        return None
    return round(sum(float(part) for part in parts), 3)


def _against_objectives(found: Restored) -> str:
    told = []
    if not found.within_rto:
        told.append(f"it took longer than {timedelta(seconds=found.rto_objective_seconds)}")
    if not found.within_rpo:
        told.append(f"it is older than {timedelta(seconds=found.rpo_objective_seconds)}")
    return "; ".join(told) or "restored"


def _seconds(now: datetime, since: datetime) -> float:
    return round(max(0.0, (now - since).total_seconds()), 3)
