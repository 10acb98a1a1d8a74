"""Heartbeat: a writer's leases last anew. Renewals only move an end; they are not history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, generations, stages
from lastgood.catalog.jobs.attempts import State
from lastgood.catalog.jobs.generations import Writer
from lastgood.errors import NotFound
from lastgood.flows.policies import policy_of
from lastgood.rules.policy import Policy


@dataclass(frozen=True, slots=True)
class Beat:
    """Until when the leases last. A sealed or committed attempt needs none: None."""

    generation: int
    lease_expires_at: datetime
    attempt_lease_expires_at: datetime | None


def beat(catalog: Catalog, writer: Writer, attempt_id: UUID | None) -> Beat:
    """Renew a generation's lease and that of one of its attempts. Raises FencedGeneration,
    LeaseExpired, NotFound, or AttemptState for an attempt that was given up."""
    with catalog.transaction() as tx:
        stage = stages.locked(tx, writer.project, writer.stage_id)
        policy = policy_of(tx, writer.project)
        generation = generations.require_writing(tx, stage, writer)
        expires_at = generations.renew(tx, generation, policy.leases.generation)
        lease = None if attempt_id is None else _renew_attempt(tx, writer, attempt_id, policy)
    return Beat(writer.generation, expires_at, lease)


def _renew_attempt(
    tx: Transaction, writer: Writer, attempt_id: UUID, policy: Policy
) -> datetime | None:
    attempt = attempts.get(tx, writer.project, attempt_id)
    if (attempt.stage_id, attempt.generation) != (writer.stage_id, writer.generation):
        raise NotFound(what="attempt", name=str(attempt_id))
    locks.attempt(tx, attempt_id)
    attempt = attempts.get(tx, writer.project, attempt_id)
    if attempt.state in (State.SEALED, State.COMMITTED):
        return None
    attempts.require(attempt, State.OPEN, action="renewing its lease")
    return attempts.renew(tx, attempt, lease=policy.leases.writer, grant=None).lease_expires_at
