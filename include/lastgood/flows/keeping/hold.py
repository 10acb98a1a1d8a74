"""Hold: an owner's word that checkpoints must stay, from this moment on.

A hold that finds its checkpoint in quarantine takes it back. One that comes after the intent to
delete is refused: the point of no return is passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies, copy_transitions
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import NewHold
from lastgood.faults import point
from lastgood.flows import control_keys, quarantine
from lastgood.rules.names import CheckpointId
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class Placed:
    """A placed hold: the ids of the checkpoints that it took, and of the copies that it took
    back out of quarantine. `warning`: why it may not be what was meant."""

    hold_id: UUID
    checkpoint_ids: tuple[int, ...]
    undone: tuple[int, ...]
    warning: str | None = None


def place(
    catalog: Catalog,
    stores: Stores,
    project: str,
    new: NewHold,
    checkpoint: CheckpointId | None = None,
) -> Placed:
    """Place a hold on one checkpoint, or by `new.selector` on all that it takes, now and at later
    commits. The hold stands once this returns.

    Raises InvalidInput, NotFound, CopyGone if the deletion of the one checkpoint has begun, and
    StoreError if a store cannot take a copy out of quarantine now: the hold stands all the same,
    and the next sweep carries it out.
    """
    if (checkpoint is None) == (new.selector is None):
        raise errors.InvalidInput(
            where="hold", reason="name one checkpoint, or a selector, and not both"
        )
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        if checkpoint is not None:
            stages, placed = _on_checkpoint(tx, project, new, checkpoint)
        else:
            stages, placed = _by_selector(tx, project, new)
    point("undo.after-decision")
    quarantine.finish_undo(catalog, stores, project, placed.undone)
    point("undo.after-store")
    quarantine.publish(catalog, stores, project, stages)
    return placed


def _on_checkpoint(
    tx: Transaction, project: str, new: NewHold, checkpoint: CheckpointId
) -> tuple[set[int], Placed]:
    if checkpoint.project != project:
        raise errors.NotFound(what="checkpoint", name=str(checkpoint))
    found = copies.of_checkpoint(tx, checkpoint)
    stage_id, checkpoint_id = found[0].stage_id, found[0].checkpoint_id
    locks.project_shared(tx, project)
    found = quarantine.locked(tx, project, [checkpoint_id])
    _require_kept([copy for copy in found if copy.checkpoint_id == checkpoint_id])
    _require_future(tx, new)
    hold_id = holds.record(tx, project, new)
    return _take(tx, hold_id, {stage_id: [checkpoint_id]}, found, new)


def _by_selector(tx: Transaction, project: str, new: NewHold) -> tuple[set[int], Placed]:
    """No commit and no deletion can be decided while this holds the project's lock exclusively."""
    locks.project_exclusive(tx, project)
    _require_future(tx, new)
    hold_id = holds.record(tx, project, new)
    taken = holds.selected(tx, project, hold_id)
    ids = [checkpoint_id for of_stage in taken.values() for checkpoint_id in of_stage]
    found = quarantine.locked(tx, project, ids)
    changed, placed = _take(tx, hold_id, taken, found, new)
    return changed, replace(placed, warning=None if taken else _takes_nothing(tx, project, new))


def _takes_nothing(tx: Transaction, project: str, new: NewHold) -> str:
    assert new.selector is not None
    unknown = holds.unknown_name(tx, project, new.selector)
    why = f": {unknown}" if unknown else ""
    return f"It takes no checkpoint yet, only what is committed later and matches{why}"


def _take(
    tx: Transaction,
    hold_id: UUID,
    taken: Mapping[int, Sequence[int]],
    found: Sequence[Copy],
    new: NewHold,
) -> tuple[set[int], Placed]:
    """The stages with a new event, and what was placed."""
    for stage_id, checkpoint_ids in taken.items():
        holds.take(tx, hold_id, stage_id, checkpoint_ids, actor=new.placed_by)
    undone = quarantine.take_back(tx, found, actor=new.placed_by, reason=f"hold {hold_id}")
    ids = tuple(checkpoint_id for of_stage in taken.values() for checkpoint_id in of_stage)
    changed = {copy.stage_id for copy in found if copy.copy_id in undone}
    return changed.union(taken), Placed(hold_id, ids, tuple(undone))


def _require_kept(found: Sequence[Copy]) -> None:
    if all(copy.state in copies.GONE for copy in found):
        copy_transitions.require(found[0], State.PRESENT, action="hold")


def _require_future(tx: Transaction, new: NewHold) -> None:
    if new.kind == "legal" and new.expires_at is not None:
        raise errors.InvalidInput(
            where="expires_at", reason="a legal hold ends by its release alone; leave it out"
        )
    if new.expires_at is None:
        return
    if new.expires_at.tzinfo is None or new.expires_at <= history.now(tx):
        raise errors.InvalidInput(
            where="expires_at", reason="give an instant of the future, with its zone"
        )
