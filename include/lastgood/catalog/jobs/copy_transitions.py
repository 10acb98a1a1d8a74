"""The only place where the state of a copy changes.

present -> quarantined -> deleting -> deleted
   ^           |
   +-----------+  undo, until the intent to delete is recorded

Each but a deleted one becomes lost where an operator gives up its store: nothing is proven then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.copies import GONE, Copy, CopyObject, State

_NEXT = {
    State.PRESENT: {State.QUARANTINED},
    State.QUARANTINED: {State.PRESENT, State.DELETING},
    State.DELETING: {State.DELETED},
    State.DELETED: set[State](),
    State.LOST: set[State](),
}
_EVENTS = {
    State.PRESENT: "quarantine-undone",
    State.QUARANTINED: "quarantined",
    State.DELETING: "delete-intended",
    State.DELETED: "deleted",
}


def create(
    tx: Transaction,
    *,
    checkpoint_id: int,
    store: str,
    prefix: str,
    control_bytes: int,
    objects: Iterable[CopyObject],
    actor: str,
    recorded_at: datetime,
) -> int:
    """Record a committed checkpoint's copy, present from `recorded_at` on; answers the copy's
    id."""
    row = tx.execute(
        """
        INSERT INTO copies (project, stage_id, checkpoint_id, store, prefix, control_bytes,
                            recorded_at, state, state_at)
        SELECT project, stage_id, checkpoint_id, %(store)s, %(prefix)s, %(control_bytes)s,
               %(at)s, 'present', %(at)s
          FROM checkpoints WHERE checkpoint_id = %(checkpoint_id)s
        RETURNING copy_id, project, stage_id
        """,
        {
            "store": store,
            "prefix": prefix,
            "control_bytes": control_bytes,
            "at": recorded_at,
            "checkpoint_id": checkpoint_id,
        },
    ).fetchone()
    assert row is not None, f"checkpoint {checkpoint_id} was recorded by this transaction"
    copy_id: int = row["copy_id"]
    with tx.copy(
        "COPY copy_objects (copy_id, path, project, size_bytes, sha256, version_id) FROM STDIN"
    ) as rows:
        for item in objects:
            rows.write_row(
                (
                    copy_id,
                    item.path,
                    row["project"],
                    item.size_bytes,
                    item.sha256,
                    item.version_id,
                )
            )
    _append(tx, copy_id, None, State.PRESENT, actor, "committed", None, {}, recorded_at)
    return copy_id


def transition(
    tx: Transaction,
    copy: Copy,
    to: State,
    *,
    actor: str,
    reason: str,
    mark_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> history.Event:
    """Move a copy to its next state: the event, the transition and the cached state together.

    The caller holds the project's, the stage's and the copy's locks, and read `copy` after taking
    them. Raises CopyGone where deletion has begun, CopyState for any other step that is none.
    """
    require(copy, _before(to), action=_EVENTS[to])
    event = history.record(
        tx,
        copy.stage_id,
        _EVENTS[to],
        actor=actor,
        facts={
            "checkpoint": str(copy.checkpoint),
            "copy_id": copy.copy_id,
            "store": copy.store,
            "reason": reason,
            "mark_id": mark_id,
        },
    )
    _append(
        tx, copy.copy_id, copy.state, to, actor, reason, mark_id, facts or {}, event.recorded_at
    )
    tx.execute(
        "UPDATE copies SET state = %s, state_at = %s WHERE copy_id = %s",
        (to.value, event.recorded_at, copy.copy_id),
    )
    return event


def lose(tx: Transaction, copy: Copy, *, actor: str, reason: str) -> history.Event:
    """Record that a copy was lost with its store. That is no deletion: nothing proves it, and a
    tombstone of it stays without a proof. The caller holds the locks of `transition`."""
    assert copy.state not in (State.DELETED, State.LOST), f"copy {copy.copy_id} is {copy.state}"
    facts = {
        "checkpoint": str(copy.checkpoint),
        "copy_id": copy.copy_id,
        "store": copy.store,
        "was": copy.state.value,
        "bytes": copy.stored_bytes,
    }
    event = history.record(
        tx, copy.stage_id, "lost", actor=actor, facts={**facts, "reason": reason}
    )
    at = event.recorded_at
    _append(tx, copy.copy_id, copy.state, State.LOST, actor, reason, None, facts, at)
    tx.execute(
        "UPDATE copies SET state = 'lost', state_at = %s WHERE copy_id = %s", (at, copy.copy_id)
    )
    return event


def show_again(tx: Transaction, copy: Copy, *, actor: str, reason: str) -> history.Event:
    """Let the store show a present copy again that somebody else hid there; its state stays. The
    caller holds the locks of `transition`. Raises CopyGone, CopyState."""
    require(copy, State.PRESENT, action="showing again")
    facts = {"checkpoint": str(copy.checkpoint), "copy_id": copy.copy_id, "store": copy.store}
    event = history.record(
        tx, copy.stage_id, "shown-again", actor=actor, facts={**facts, "reason": reason}
    )
    _append(tx, copy.copy_id, copy.state, copy.state, actor, reason, None, {}, event.recorded_at)
    tx.execute(
        "UPDATE copies SET state_at = %s WHERE copy_id = %s", (event.recorded_at, copy.copy_id)
    )
    return event


def require(copy: Copy, state: State, *, action: str) -> None:
    """Raises CopyGone if the copy's deletion has begun, CopyLost if it was lost, CopyState if it is
    not in `state` for another reason."""
    if copy.state is state:
        return
    raise refusal_of(copy.state)(
        checkpoint=str(copy.checkpoint),
        store=copy.store,
        state=copy.state.value,
        action=action,
        needed=state.value,
    )


def refusal_of(state: State) -> type[errors.CopyState]:
    """The error for a copy in this state of which another one was needed."""
    if state is State.LOST:
        return errors.CopyLost
    return errors.CopyGone if state in GONE else errors.CopyState


def carried_out(tx: Transaction, copy: Copy) -> None:
    """Note that the store follows the transition that `copy` shows; a newer one stays to be
    done."""
    tx.execute(
        "UPDATE copies SET carried_out = greatest(carried_out, %s) WHERE copy_id = %s",
        (copy.transition, copy.copy_id),
    )


def _before(to: State) -> State:
    """The one state from which `to` is reached."""
    return next(state for state, following in _NEXT.items() if to in following)


def _append(
    tx: Transaction,
    copy_id: int,
    from_state: State | None,
    to: State,
    actor: str,
    reason: str,
    mark_id: int | None,
    facts: Mapping[str, Any],
    recorded_at: datetime,
) -> None:
    tx.execute(
        """
        INSERT INTO copy_transitions (copy_id, number, project, stage_id, from_state, to_state,
                                      actor, reason, mark_id, facts, recorded_at)
        SELECT copy_id, 1 + (SELECT count(*) FROM copy_transitions WHERE copy_id = %(copy_id)s),
               project, stage_id, %(from_state)s, %(to)s, %(actor)s, %(reason)s, %(mark_id)s,
               %(facts)s, %(at)s
          FROM copies WHERE copy_id = %(copy_id)s
        """,
        {
            "copy_id": copy_id,
            "from_state": from_state,
            "to": to,
            "actor": actor,
            "reason": reason,
            "mark_id": mark_id,
            "facts": Jsonb(dict(facts)),
            "at": recorded_at,
        },
    )
