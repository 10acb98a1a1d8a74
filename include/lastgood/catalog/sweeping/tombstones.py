"""Tombstones: the record of each deletion, from the intent to the proof that the bytes are gone.

The intents of a stage form a chain: each digest covers the one before it. What became of each key
is added row by row; the proof is one row, written when a later complete listing found nothing, and
with it the certificate of the deletion (see `catalog.auditing.certificates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.auditing import certificates
from lastgood.catalog.db import Transaction
from lastgood.rules.certificates import identity

FORMAT_VERSION = 1
OutcomeName = Literal["gone", "absent", "refused"]


@dataclass(frozen=True, slots=True)
class Intent:
    """A deletion to be recorded: of a copy, or of what an abandoned attempt left."""

    stage_id: int
    checkpoint_id: int | None
    copy_id: int | None
    attempt_id: UUID | None
    store: str
    prefix: str
    mark_id: int | None
    policy_digest: str
    facts: Mapping[str, Any]
    size_bytes: int
    actor: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A recorded deletion. `bytes` is what the intent meant to free; `proof` and `proved_at`
    are there once the bytes are proven gone."""

    tombstone_id: UUID
    project: str
    stage_id: int
    number: int
    previous: str | None
    digest: str
    checkpoint_id: int | None
    copy_id: int | None
    attempt_id: UUID | None
    store: str
    prefix: str
    mark_id: int | None
    policy_digest: str
    facts: Mapping[str, Any]
    bytes: int
    actor: str
    recorded_at: datetime
    proof: Mapping[str, Any] | None
    proved_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What became of one key in one try."""

    key: str
    version_id: str | None
    size_bytes: int
    outcome: OutcomeName
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The newest outcome of each key, counted."""

    gone: int
    absent: int
    refused: int
    freed_bytes: int


_SELECT = """
    SELECT t.tombstone_id, t.project, t.stage_id, t.number, t.previous, t.digest, t.checkpoint_id,
           t.copy_id, t.attempt_id, t.store, t.prefix, t.mark_id, t.policy_digest, t.facts, t.bytes,
           t.actor, t.recorded_at, p.evidence AS proof, p.recorded_at AS proved_at
      FROM tombstones t LEFT JOIN tombstone_proofs p USING (tombstone_id)
"""


def intend(tx: Transaction, intent: Intent, event: history.Event) -> Tombstone:
    """Record an intent in the transaction, and at the instant, of the change of state that it
    is part of. The stage's row is locked. What was then known of the checkpoint beside the facts
    is recorded with them, as `evidence`."""
    evidence = certificates.evidence(
        tx,
        event,
        checkpoint_id=intent.checkpoint_id,
        attempt_id=intent.attempt_id,
        mark_id=intent.mark_id,
    )
    last = tx.execute(
        "SELECT number, digest FROM tombstones WHERE stage_id = %s ORDER BY number DESC LIMIT 1",
        (intent.stage_id,),
    ).fetchone()
    number, previous = (last["number"] + 1, last["digest"]) if last else (1, None)
    row = {
        "tombstone_id": uuid4(),
        "project": event.project,
        "stage_id": intent.stage_id,
        "number": number,
        "previous": previous,
        "checkpoint_id": intent.checkpoint_id,
        "copy_id": intent.copy_id,
        "attempt_id": intent.attempt_id,
        "store": intent.store,
        "prefix": intent.prefix,
        "mark_id": intent.mark_id,
        "policy_digest": intent.policy_digest,
        "facts": {**intent.facts, "evidence": evidence},
        "bytes": intent.size_bytes,
        "actor": intent.actor,
        "recorded_at": event.recorded_at,
    }
    digest = identity(_document(row))
    tx.execute(
        """
        INSERT INTO tombstones (tombstone_id, project, stage_id, number, previous, digest,
                                checkpoint_id, copy_id, attempt_id, store, prefix, mark_id,
                                policy_digest, facts, bytes, actor, recorded_at)
        VALUES (%(tombstone_id)s, %(project)s, %(stage_id)s, %(number)s, %(previous)s, %(digest)s,
                %(checkpoint_id)s, %(copy_id)s, %(attempt_id)s, %(store)s, %(prefix)s, %(mark_id)s,
                %(policy_digest)s, %(facts)s, %(bytes)s, %(actor)s, %(recorded_at)s)
        """,
        row | {"digest": digest, "facts": Jsonb(row["facts"])},
    )
    return Tombstone(**row, digest=digest, proof=None, proved_at=None)  # type: ignore[arg-type]


def note(
    tx: Transaction, tombstone: Tombstone, records: Iterable[KeyRecord], *, at: datetime
) -> None:
    """Add what became of keys."""
    row = tx.execute(
        "SELECT coalesce(max(number), 0) AS last FROM tombstone_keys WHERE tombstone_id = %s",
        (tombstone.tombstone_id,),
    ).fetchone()
    assert row is not None
    with tx.copy(
        """
        COPY tombstone_keys (tombstone_id, number, project, key, version_id, size_bytes, outcome,
                             reason, recorded_at) FROM STDIN
        """
    ) as rows:
        for number, record in enumerate(records, start=row["last"] + 1):
            rows.write_row(
                (
                    tombstone.tombstone_id,
                    number,
                    tombstone.project,
                    record.key,
                    record.version_id,
                    record.size_bytes,
                    record.outcome,
                    record.reason,
                    at,
                )
            )


def prove(
    tx: Transaction, tombstone: Tombstone, evidence: Mapping[str, Any], *, at: datetime
) -> None:
    """Close a tombstone, whose stage is locked: the bytes are gone. Its certificate is made in the
    same transaction. Proving it again changes nothing."""
    row = tx.execute(
        """
        INSERT INTO tombstone_proofs (tombstone_id, project, evidence, recorded_at)
        VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING tombstone_id
        """,
        (tombstone.tombstone_id, tombstone.project, Jsonb(dict(evidence)), at),
    ).fetchone()
    if row is not None:
        document = document_of(tombstone)
        certificates.append(tx, tombstone.stage_id, document, evidence, recorded_at=at)


def of_copy(tx: Transaction, project: str, copy_id: int) -> Tombstone | None:
    """The tombstone of a copy, if its deletion was ever intended."""
    row = tx.execute(
        _SELECT + " WHERE t.project = %s AND t.copy_id = %s", (project, copy_id)
    ).fetchone()
    return Tombstone(**row) if row else None


def of_attempt(tx: Transaction, project: str, attempt_id: UUID) -> Tombstone | None:
    """The tombstone of an attempt, if its clean-up was ever begun."""
    row = tx.execute(
        _SELECT + " WHERE t.project = %s AND t.attempt_id = %s", (project, attempt_id)
    ).fetchone()
    return Tombstone(**row) if row else None


def of_stage(tx: Transaction, project: str, stage_id: int) -> list[Tombstone]:
    """A stage's whole chain, oldest first."""
    rows = tx.execute(
        _SELECT + " WHERE t.project = %s AND t.stage_id = %s ORDER BY t.number",
        (project, stage_id),
    )
    return [Tombstone(**row) for row in rows]


def outcomes(tx: Transaction, tombstone: Tombstone) -> Outcomes:
    """How many keys stand at each outcome now, and the bytes of those that are gone."""
    row = tx.execute(
        """
        WITH newest AS (
          SELECT DISTINCT ON (key, version_id) outcome, size_bytes
            FROM tombstone_keys WHERE tombstone_id = %s
           ORDER BY key, version_id, number DESC
        )
        SELECT count(*) FILTER (WHERE outcome = 'gone') AS gone,
               count(*) FILTER (WHERE outcome = 'absent') AS absent,
               count(*) FILTER (WHERE outcome = 'refused') AS refused,
               coalesce(sum(size_bytes) FILTER (WHERE outcome = 'gone'), 0)::bigint AS freed_bytes
          FROM newest
        """,
        (tombstone.tombstone_id,),
    ).fetchone()
    assert row is not None
    return Outcomes(**row)


def newest_outcomes(
    tx: Transaction, tombstone: Tombstone
) -> dict[tuple[str, str | None], OutcomeName]:
    """The newest outcome of each key and version."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (key, version_id) key, version_id, outcome
          FROM tombstone_keys WHERE tombstone_id = %s
         ORDER BY key, version_id, number DESC
        """,
        (tombstone.tombstone_id,),
    )
    return {(row["key"], row["version_id"]): row["outcome"] for row in rows}


def document_of(tombstone: Tombstone) -> dict[str, Any]:
    """What the digest of a tombstone covers, as JSON."""
    return _document({name: getattr(tombstone, name) for name in _DIGESTED})


_DIGESTED = (
    "tombstone_id",
    "project",
    "stage_id",
    "number",
    "previous",
    "checkpoint_id",
    "copy_id",
    "attempt_id",
    "store",
    "prefix",
    "mark_id",
    "policy_digest",
    "facts",
    "bytes",
    "actor",
    "recorded_at",
)


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"format_version": FORMAT_VERSION}
    for name in _DIGESTED:
        value = row[name]
        if isinstance(value, UUID):
            value = str(value)
        elif isinstance(value, datetime):
            value = value.astimezone(UTC).isoformat()
        document[name] = value
    return document
