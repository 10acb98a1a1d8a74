"""Attempts as a rebuild reads them back: of a whole checkpoint, or of bytes that are none."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import attempt_objects, attempts
from lastgood.catalog.jobs.attempt_objects import DeclaredObject
from lastgood.catalog.jobs.attempts import Attempt, NewAttempt
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.rebuilding.rebuilds import ACTOR, Rebuild
from lastgood.errors import NotFound
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import CheckpointId

REASON = "rebuild"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Bytes below an attempt's prefix that are no checkpoint; `facts` say why not."""

    attempt_id: UUID
    checkpoint: CheckpointId
    store: str
    prefix: str
    size_bytes: int
    facts: Mapping[str, Any]


def find(tx: Transaction, project: str, attempt_id: UUID) -> Attempt | None:
    """An attempt that the catalog has, None if it has none of this id."""
    try:
        return attempts.get(tx, project, attempt_id)
    except NotFound:
        return None


def recorded(tx: Transaction, rebuild: Rebuild) -> set[UUID]:
    """The attempts whose checkpoints this rebuild has verified and recorded."""
    rows = tx.execute(
        "SELECT attempt_id FROM attempts WHERE state = 'committed'"
        " AND starts_with(idempotency_key, %s)",
        (_key(rebuild, ""),),
    )
    return {row["attempt_id"] for row in rows}


def unfinished(tx: Transaction, store: str) -> Mapping[str, str]:
    """The manifest of each committed attempt in a store of which it is not known that the marker
    was written, by prefix."""
    rows = tx.execute(
        """
        SELECT a.prefix, k.manifest FROM attempts a
          JOIN checkpoints k USING (attempt_id)
          JOIN copies c ON c.checkpoint_id = k.checkpoint_id AND c.store = a.store
         WHERE a.store = %s AND a.state = 'committed' AND a.finished_at IS NULL
           AND c.state IN ('present', 'quarantined')
        """,
        (store,),
    )
    return {row["prefix"]: row["manifest"] for row in rows}


def begin(
    tx: Transaction,
    stage: Stage,
    rebuild: Rebuild,
    attempt_id: UUID,
    manifest: Manifest,
    *,
    store: str,
    prefix: str,
) -> Attempt:
    """An open attempt of a locked stage whose objects are those of a manifest; nobody holds its
    token."""
    event = history.record(
        tx,
        stage.stage_id,
        "prepared",
        actor=ACTOR,
        facts={"attempt": str(attempt_id), "incarnation": rebuild.incarnation},
    )
    new = NewAttempt(
        attempt_id=attempt_id,
        project=stage.project,
        stage_id=stage.stage_id,
        generation=manifest.generation,
        sequence=manifest.sequence,
        step=manifest.step,
        kind=manifest.kind.value,
        idempotency_key=_key(rebuild, attempt_id),
        request_sha256="",
        token=secrets.token_hex(),
        store=store,
        prefix=prefix,
        declared_bytes=manifest.size_bytes,
        claimed_bytes=manifest.size_bytes,  # its commit follows in this transaction
    )
    objects = [DeclaredObject(one.path, one.size_bytes, one.sha256) for one in manifest.objects]
    none = timedelta(0)
    parts = [one.part_bytes for one in manifest.objects]
    attempts.begin(tx, new, event=event, lease=none, grant=none)
    attempt_objects.declare(tx, new, objects, parts)
    capacity.locked_use(tx, stage.project, store)
    capacity.claim(tx, stage.project, store, manifest.size_bytes)
    return attempts.get(tx, stage.project, attempt_id)


def record_leftovers(
    tx: Transaction,
    stage: Stage,
    rebuild: Rebuild,
    leftovers: Iterable[Leftover],
    *,
    grant: timedelta,
) -> None:
    """Record bytes as the evidence of failed attempts of a locked stage. `grant` is how long who
    wrote them may still send. Another attempt may have committed at the same position: these were
    never open here."""
    for one in leftovers:
        told = {"attempt": str(one.attempt_id), "checkpoint": str(one.checkpoint)}
        facts = {**told, "reason": REASON, "incarnation": rebuild.incarnation, **one.facts}
        event = history.record(tx, stage.stage_id, "failed", actor=ACTOR, facts=facts)
        tx.execute(
            """
            INSERT INTO attempts (attempt_id, project, stage_id, generation, sequence, step, kind,
                      idempotency_key, request_sha256, token_sha256, store, prefix, declared_bytes,
                      claimed_bytes, recorded_at, state, state_at, lease_expires_at,
                      grant_expires_at)
                 VALUES (%(id)s, %(project)s, %(stage_id)s, %(generation)s, %(sequence)s, 0, 'full',
                      %(key)s, '', %(token)s, %(store)s, %(prefix)s, %(bytes)s,
                      %(bytes)s, %(at)s, 'failed', %(at)s, %(at)s, %(at)s + %(grant)s)
            """,
            {
                "id": one.attempt_id,
                "project": stage.project,
                "stage_id": stage.stage_id,
                "generation": one.checkpoint.generation,
                "sequence": one.checkpoint.sequence,
                "key": _key(rebuild, one.attempt_id),
                "token": secrets.token_bytes(),
                "store": one.store,
                "prefix": one.prefix,
                "bytes": one.size_bytes,
                "at": event.recorded_at,
                "grant": grant,
            },
        )
        tx.execute(
            """
            INSERT INTO attempt_transitions (attempt_id, number, project, from_state, to_state,
                                             reason, recorded_at)
                 VALUES (%s, 1, %s, NULL, 'failed', %s, %s)
            """,
            (one.attempt_id, stage.project, REASON, event.recorded_at),
        )
        capacity.locked_use(tx, stage.project, one.store)
        capacity.claim(tx, stage.project, one.store, one.size_bytes)


def _key(rebuild: Rebuild, attempt_id: UUID | str) -> str:
    return f"rebuild {rebuild.rebuild_id} {attempt_id}"
