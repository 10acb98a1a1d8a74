"""Quarantine: what lies there, undoing it, and making the stores follow what was decided.

The decision is a transaction; the store follows afterwards, one process at a time for each copy. A
crash between the two leaves a copy that the next sweep finds and carries out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lastgood import errors
from lastgood.catalog import locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies, copy_transitions, references
from lastgood.catalog.jobs.copies import Copy, CopyObject, State
from lastgood.catalog.settings import projects
from lastgood.faults import point
from lastgood.flows import control_keys, graces
from lastgood.rules.layout import manifest_key, marker_key, object_key
from lastgood.rules.names import CheckpointId
from lastgood.stores.base import Key, Prefix, StoredObject, StoreError
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A copy in quarantine; its bytes are not deleted before `deletable_at`."""

    copy: Copy
    deletable_at: datetime


@dataclass(frozen=True, slots=True)
class Followed:
    """What stores were made to follow, and what failed, by copy id."""

    carried_out: tuple[int, ...]
    failed: dict[int, str]


def listed(catalog: Catalog, project: str) -> list[Quarantined]:
    """The project's copies in quarantine, by stage and oldest checkpoint first."""
    with catalog.transaction() as tx:
        waits = graces.of_project(tx, project)
        found = copies.in_state(tx, project, State.QUARANTINED)
    return [Quarantined(copy, waits.ends(copy, copy.state_at)) for copy in found]


def undo(
    catalog: Catalog, stores: Stores, checkpoint: CheckpointId, *, because: str, actor: str
) -> list[Copy]:
    """Take a checkpoint's quarantined copies back; answers them as they stand then.

    What it depends on comes back with it. So does, of a present copy, what somebody else hid in its
    store, as by delete markers of their own. Works until the intent to delete is recorded: CopyGone
    after it, CopyState if nothing of it is hidden. No mark made before it counts for these
    copies any more; one made after it may name them again, unless they are held. If the store
    cannot follow now (StoreError), the next sweep carries it out.
    """
    control_keys.guard(catalog, stores, checkpoint.project)
    hidden = _hidden_by_others(catalog, stores, checkpoint)
    with catalog.transaction() as tx:
        found = copies.of_checkpoint(tx, checkpoint)
        locks.project_shared(tx, checkpoint.project)
        found = locked(tx, checkpoint.project, [found[0].checkpoint_id])
        own = [copy for copy in found if copy.checkpoint == checkpoint]
        shown = [copy for copy in own if copy.copy_id in hidden and copy.state is State.PRESENT]
        if not shown and all(copy.state is not State.QUARANTINED for copy in own):
            _refuse(own)
        back = take_back(tx, found, actor=actor, reason=because)
        for copy in shown:
            copy_transitions.show_again(tx, copy, actor=actor, reason=because)
            back.append(copy.copy_id)
    point("undo.after-decision")
    followed = finish_undo(catalog, stores, checkpoint.project, back)
    point("undo.after-store")
    publish(catalog, stores, checkpoint.project, {copy.stage_id for copy in followed})
    return followed


def _hidden_by_others(catalog: Catalog, stores: Stores, checkpoint: CheckpointId) -> set[int]:
    """The present copies of which the store hides something, although nobody decided that."""
    with catalog.transaction() as tx:
        found = copies.of_checkpoint(tx, checkpoint)
    return {
        copy.copy_id
        for copy in found
        if copy.state is State.PRESENT
        and any(one.hidden for one in stores[copy.store].list(Prefix(copy.prefix)))
    }


def locked(tx: Transaction, project: str, checkpoint_ids: Iterable[int]) -> list[Copy]:
    """Lock the copies of these checkpoints, and of all that they depend on, with their stages;
    answers them as they stand then. The caller holds the project's lock.

    A copy is taken back with what it depends on, in one transaction: without it nobody could
    restore from it.
    """
    known = set(checkpoint_ids)
    known |= set(references.needed(tx, project, known))
    found = copies.of_checkpoints(tx, project, known)
    locks.stages(tx, {copy.stage_id for copy in found})
    locks.copies(tx, [copy.copy_id for copy in found])
    return copies.of_checkpoints(tx, project, known)


def take_back(tx: Transaction, found: Sequence[Copy], *, actor: str, reason: str) -> list[int]:
    """Decide that the quarantined ones of these locked copies are present again; answers their
    ids."""
    back = [copy for copy in found if copy.state is State.QUARANTINED]
    for copy in back:
        copy_transitions.transition(tx, copy, State.PRESENT, actor=actor, reason=reason)
    return [copy.copy_id for copy in back]


def finish_undo(
    catalog: Catalog, stores: Stores, project: str, copy_ids: Sequence[int]
) -> list[Copy]:
    """Make the stores follow an undo; answers the copies as they stand then. Raises StoreError."""
    with catalog.transaction() as tx:
        rows = [copies.get(tx, project, copy_id) for copy_id in copy_ids]
    return [carry_out(catalog, stores, copy) for copy in rows]


def publish(catalog: Catalog, stores: Stores, project: str, stage_ids: Iterable[int]) -> None:
    """Write the newest event of each stage into the project's stores, before a change is
    answered."""
    with catalog.transaction() as tx:
        names = projects.stores_of(tx, project)
    for stage_id in sorted(set(stage_ids)):
        control_keys.publish(catalog, [stores[name] for name in names], project, stage_id)


def follow(catalog: Catalog, stores: Stores, project: str) -> Followed:
    """Make the stores follow every decision that a crash, or a store out of reach, left undone."""
    with catalog.transaction() as tx:
        waiting = copies.not_carried_out(tx, project)
    done: list[int] = []
    failed: dict[int, str] = {}
    for copy in waiting:
        try:
            carry_out(catalog, stores, copy)
            done.append(copy.copy_id)
        except (StoreError, errors.PrefixBusy) as error:
            failed[copy.copy_id] = str(error)
    return Followed(tuple(done), failed)


def carry_out(catalog: Catalog, stores: Stores, copy: Copy) -> Copy:
    """Hide or show a copy in its store, as its state says when its turn has come; answers the copy
    as the store then follows it. Repeating it changes nothing. Raises StoreError, PrefixBusy."""
    store = stores[copy.store]
    with catalog.transaction() as tx:
        locks.carrying_out(tx, copy.prefix)
        copy = copies.get(tx, copy.project, copy.copy_id)
        if copy.carried_out >= copy.transition or copy.state in copies.GONE:
            return copy
        objects = stored_objects(copy, copies.objects(tx, copy.project, copy.copy_id))
        if copy.state is State.QUARANTINED:
            store.quarantine(Prefix(copy.prefix), objects)
        else:
            store.unquarantine(Prefix(copy.prefix), objects)
        copy_transitions.carried_out(tx, copy)
    return copy


def stored_objects(copy: Copy, objects: Sequence[CopyObject]) -> list[StoredObject]:
    """What a copy consists of in its store: the marker first, the manifest last."""
    return [
        StoredObject(Key(marker_key(copy.prefix)), 0),
        *(
            StoredObject(
                Key(object_key(copy.prefix, one.path)), one.size_bytes, version_id=one.version_id
            )
            for one in objects
        ),
        StoredObject(Key(manifest_key(copy.prefix)), 0),
    ]


def _refuse(found: Sequence[Copy]) -> None:
    """Nothing was in quarantine: say what there is instead, the gone ones first."""
    copy = next((copy for copy in found if copy.state in copies.GONE), found[0])
    copy_transitions.require(copy, State.QUARANTINED, action="undo")
    raise errors.NotFound(what="copy", name=str(copy.checkpoint))
