"""Attempts: one try at writing a checkpoint each, with its lease and its grant.

open -> sealed -> committed | failed,   open -> aborting -> closed
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.settings.tokens import token_hash
from lastgood.errors import AttemptLost, AttemptState, NotFound
from lastgood.rules.names import CheckpointId, StageId


class State(StrEnum):
    OPEN = "open"
    SEALED = "sealed"
    COMMITTED = "committed"
    FAILED = "failed"
    ABORTING = "aborting"
    CLOSED = "closed"


_NEXT = {
    State.OPEN: {State.SEALED, State.ABORTING},
    State.SEALED: {State.COMMITTED, State.FAILED},
    State.ABORTING: {State.CLOSED},
    State.FAILED: {State.CLOSED},  # its evidence was removed
    State.COMMITTED: set[State](),
    State.CLOSED: set[State](),
}


LOST = "its store was given up as lost"
"""Why an attempt was closed of which nothing is proven."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it stands. `state_reason` is why it came into its state."""

    attempt_id: UUID
    project: str
    stage_id: int
    workload: str
    stage: str
    generation: int
    sequence: int
    step: int
    kind: str
    request_sha256: str
    store: str
    prefix: str
    declared_bytes: int
    claimed_bytes: int
    recorded_at: datetime
    state: State
    state_at: datetime
    state_reason: str
    lease_expires_at: datetime
    grant_expires_at: datetime
    grant_live: bool  # the grant had not ended when this was read
    finished_at: datetime | None

    @property
    def checkpoint(self) -> CheckpointId:
        stage = StageId.of(self.project, self.workload, self.stage)
        return CheckpointId.of(stage, self.generation, self.sequence)


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """What a prepare asks for; `token` is the attempt's fencing token. `claimed_bytes` are what it
    owns of the store until it is committed or gone: what it declared, and room for the manifest."""

    attempt_id: UUID
    project: str
    stage_id: int
    generation: int
    sequence: int
    step: int
    kind: str
    idempotency_key: str
    request_sha256: str
    token: str
    store: str
    prefix: str
    declared_bytes: int
    claimed_bytes: int


_SELECT = """
    SELECT a.attempt_id, a.project, a.stage_id, s.workload, s.stage, a.generation, a.sequence,
           a.step, a.kind, a.request_sha256, a.store, a.prefix, a.declared_bytes, a.claimed_bytes,
           a.recorded_at, a.state, a.state_at, a.lease_expires_at, a.grant_expires_at,
           a.finished_at,
           a.grant_expires_at > catalog_clock() AS grant_live,
           (SELECT t.reason FROM attempt_transitions t WHERE t.attempt_id = a.attempt_id
             ORDER BY t.number DESC LIMIT 1) AS state_reason
      FROM attempts a JOIN stages s ON s.stage_id = a.stage_id
"""


def get(tx: Transaction, project: str | None, attempt_id: UUID) -> Attempt:
    """One attempt; `project` None only where no tenant asks. Raises NotFound."""
    row = tx.execute(
        _SELECT
        + " WHERE a.attempt_id = %(id)s AND (%(project)s::text IS NULL OR a.project = %(project)s)",
        {"id": attempt_id, "project": project},
    ).fetchone()
    if row is None:
        raise NotFound(what="attempt", name=str(attempt_id))
    return _attempt(row)


def by_idempotency_key(tx: Transaction, stage_id: int, generation: int, key: str) -> Attempt | None:
    """The attempt that a prepare of this generation with this key began, if there was one."""
    row = tx.execute(
        _SELECT + " WHERE a.stage_id = %s AND a.generation = %s AND a.idempotency_key = %s",
        (stage_id, generation, key),
    ).fetchone()
    return _attempt(row) if row else None


def live_at(tx: Transaction, stage_id: int, generation: int, sequence: int) -> Attempt | None:
    """The open, sealed or committed attempt at a position of the stage, if there is one."""
    row = tx.execute(
        _SELECT
        + """ WHERE a.stage_id = %s AND a.generation = %s AND a.sequence = %s
                AND a.state IN ('open', 'sealed', 'committed')""",
        (stage_id, generation, sequence),
    ).fetchone()
    return _attempt(row) if row else None


def unfinished(tx: Transaction, project: str | None = None) -> list[UUID]:
    """Sealed attempts, and committed ones whose marker may be missing, oldest first."""
    rows = tx.execute(
        """
        SELECT attempt_id FROM attempts
         WHERE (state = 'sealed' OR (state = 'committed' AND finished_at IS NULL))
           AND (%(project)s::text IS NULL OR project = %(project)s)
         ORDER BY state_at, attempt_id
        """,
        {"project": project},
    )
    return [row["attempt_id"] for row in rows]


def in_store(tx: Transaction, store: str) -> list[Attempt]:
    """The attempts of any project in a store that are not ended, by stage, oldest first."""
    rows = tx.execute(
        _SELECT
        + """ WHERE a.store = %s AND a.state NOT IN ('committed', 'closed')
              ORDER BY a.stage_id, a.recorded_at, a.attempt_id""",
        (store,),
    )
    return [_attempt(row) for row in rows]


def attempt_of_token(tx: Transaction, token: str) -> Attempt | None:
    """Whose fencing token this is, None for an unknown one."""
    row = tx.execute(
        "SELECT attempt_id, token_sha256 FROM attempts WHERE token_sha256 = %s",
        (token_hash(token),),
    ).fetchone()
    if row is None or not hmac.compare_digest(row["token_sha256"], token_hash(token)):
        return None
    return get(tx, None, row["attempt_id"])


def begin(
    tx: Transaction,
    new: NewAttempt,
    *,
    event: history.Event,
    lease: timedelta,
    grant: timedelta,
) -> None:
    """Record an open attempt of a locked stage; `attempt_objects.declare` adds its objects."""
    tx.execute(
        """
        INSERT INTO attempts (attempt_id, project, stage_id, generation, sequence, step, kind,
                  idempotency_key, request_sha256, token_sha256, store, prefix, declared_bytes,
                  claimed_bytes, recorded_at, state, state_at, lease_expires_at, grant_expires_at)
             VALUES (%(attempt_id)s, %(project)s, %(stage_id)s, %(generation)s, %(sequence)s,
                  %(step)s, %(kind)s, %(key)s, %(request_sha256)s, %(token_sha256)s, %(store)s,
                  %(prefix)s, %(declared_bytes)s, %(claimed_bytes)s, %(at)s, 'open', %(at)s,
                  catalog_clock() + %(lease)s, catalog_clock() + %(grant)s)
        """,
        {
            "attempt_id": new.attempt_id,
            "project": new.project,
            "stage_id": new.stage_id,
            "generation": new.generation,
            "sequence": new.sequence,
            "step": new.step,
            "kind": new.kind,
            "key": new.idempotency_key,
            "request_sha256": new.request_sha256,
            "token_sha256": token_hash(new.token),
            "store": new.store,
            "prefix": new.prefix,
            "declared_bytes": new.declared_bytes,
            "claimed_bytes": new.claimed_bytes,
            "at": event.recorded_at,
            "lease": lease,
            "grant": grant,
        },
    )
    _append_transition(tx, new.attempt_id, new.project, None, State.OPEN, "prepared", event)


def change_token(tx: Transaction, attempt: Attempt, token: str) -> None:
    """Make `token` the attempt's fencing token: a repeated prepare came with another token of its
    generation."""
    tx.execute(
        "UPDATE attempts SET token_sha256 = %s WHERE attempt_id = %s AND token_sha256 <> %s",
        (token_hash(token), attempt.attempt_id, token_hash(token)),
    )


def renew(
    tx: Transaction, attempt: Attempt, *, lease: timedelta, grant: timedelta | None
) -> Attempt:
    """Let the writer lease of an open attempt, and its grant unless None, last this long from now;
    neither ever ends earlier than was said before."""
    tx.execute(
        """
        UPDATE attempts
           SET lease_expires_at = greatest(lease_expires_at, catalog_clock() + %(lease)s),
               grant_expires_at = greatest(grant_expires_at, catalog_clock() + %(grant)s)
         WHERE attempt_id = %(id)s AND state = 'open'
        """,
        {"id": attempt.attempt_id, "lease": lease, "grant": grant},
    )
    return get(tx, attempt.project, attempt.attempt_id)


def require(attempt: Attempt, state: State, *, action: str) -> None:
    """Raises AttemptState unless the attempt is in this state, AttemptLost if its store was given
    up."""
    if attempt.state is State.CLOSED and attempt.state_reason == LOST:
        raise AttemptLost(attempt=str(attempt.attempt_id), store=attempt.store)
    if attempt.state is not state:
        raise AttemptState(
            attempt=str(attempt.attempt_id),
            state=attempt.state.value,
            action=action,
            needed=state.value,
        )


def transition(
    tx: Transaction,
    attempt: Attempt,
    to: State,
    *,
    actor: str,
    reason: str,
    facts: Mapping[str, object] | None = None,
    manifest: bytes | None = None,
) -> history.Event:
    """Move an attempt to its next state: the event, the transition and the cached state together.

    The caller holds the project's, the stage's and the attempt's locks, and read `attempt` after
    taking them. `manifest` is what an attempt is sealed with. Raises AttemptState.
    """
    before = next(state for state, following in _NEXT.items() if to in following)
    if to not in _NEXT[attempt.state]:
        require(attempt, before, action=f"becoming {to.value}")
    told = {"attempt": str(attempt.attempt_id), "checkpoint": str(attempt.checkpoint)}
    event = history.record(
        tx,
        attempt.stage_id,
        to.value,
        actor=actor,
        facts={**told, "reason": reason, **(facts or {})},
    )
    _append_transition(tx, attempt.attempt_id, attempt.project, attempt.state, to, reason, event)
    tx.execute(
        """
        UPDATE attempts SET state = %(state)s, state_at = %(at)s,
                            manifest = coalesce(%(manifest)s, manifest)
         WHERE attempt_id = %(id)s
        """,
        {
            "state": to.value,
            "at": event.recorded_at,
            "manifest": manifest,
            "id": attempt.attempt_id,
        },
    )
    return event


def lose(tx: Transaction, attempt: Attempt, *, actor: str) -> None:
    """End an attempt that is not committed, whatever its state, since its store was given up. The
    caller holds the locks of `transition`."""
    way = {State.OPEN: (State.ABORTING,), State.SEALED: (State.FAILED,)}.get(attempt.state, ())
    for state in (*way, State.CLOSED):
        transition(tx, attempt, state, actor=actor, reason=LOST)
        attempt = get(tx, attempt.project, attempt.attempt_id)


def manifest_of(tx: Transaction, attempt: Attempt) -> bytes | None:
    """The canonical manifest that an attempt was sealed with."""
    row = tx.execute(
        "SELECT manifest FROM attempts WHERE attempt_id = %s", (attempt.attempt_id,)
    ).fetchone()
    return None if row is None or row["manifest"] is None else bytes(row["manifest"])


def failure_facts(tx: Transaction, attempt: Attempt) -> Mapping[str, Any]:
    """What was recorded when an attempt failed; nothing for one that did not."""
    row = tx.execute(
        "SELECT facts FROM events WHERE stage_id = %s AND kind = 'failed' AND recorded_at = %s"
        " AND facts->>'attempt' = %s",
        (attempt.stage_id, attempt.state_at, str(attempt.attempt_id)),
    ).fetchone()
    return {} if row is None else row["facts"]


def finished(tx: Transaction, attempt: Attempt) -> None:
    """Note that marker and control keys of a committed attempt are in the store. Losing this note
    only has somebody look again, so nobody waits until it is on the disk."""
    tx.execute("SET LOCAL synchronous_commit = off")
    tx.execute(
        "UPDATE attempts SET finished_at = catalog_clock()"
        " WHERE attempt_id = %s AND state = 'committed' AND finished_at IS NULL",
        (attempt.attempt_id,),
    )


def nothing_to_finish(tx: Transaction, store: str) -> None:
    """Note that nobody writes markers into a store any more: it was given up."""
    tx.execute(
        "UPDATE attempts SET finished_at = catalog_clock()"
        " WHERE store = %s AND state = 'committed' AND finished_at IS NULL",
        (store,),
    )


def _append_transition(
    tx: Transaction,
    attempt_id: UUID,
    project: str,
    from_state: State | None,
    to: State,
    reason: str,
    event: history.Event,
) -> None:
    tx.execute(
        """
        INSERT INTO attempt_transitions (attempt_id, number, project, from_state, to_state, reason,
                                         recorded_at)
        SELECT %(id)s, 1 + count(*), %(project)s, %(from)s, %(to)s, %(reason)s, %(at)s
          FROM attempt_transitions WHERE attempt_id = %(id)s
        """,
        {
            "id": attempt_id,
            "project": project,
            "from": from_state,
            "to": to,
            "reason": reason,
            "at": event.recorded_at,
        },
    )


def _attempt(row: dict[str, Any]) -> Attempt:
    return Attempt(**{**row, "state": State(row["state"])})
