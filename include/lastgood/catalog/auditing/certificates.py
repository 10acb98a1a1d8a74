"""Certificates of deletions, chained per stage, and what was known when one was intended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.rules import certificates
from lastgood.rules.certificates import FIRST, KeyDigest, Place, identity

HOLDS_NAMED = 100


@dataclass(frozen=True, slots=True)
class Certificate:
    """A recorded certificate; `certificate` is the SHA-256 of its canonical body."""

    certificate: str
    project: str
    stage_id: int
    number: int
    previous: str | None
    tombstone_id: UUID
    body: Mapping[str, Any]
    recorded_at: datetime


_SELECT = """
    SELECT certificate, project, stage_id, number, previous, tombstone_id, body, recorded_at
      FROM certificates
"""


def evidence(
    tx: Transaction,
    event: history.Event,
    *,
    checkpoint_id: int | None,
    attempt_id: UUID | None,
    mark_id: int | None,
) -> dict[str, Any]:
    """What a certificate says beside the gate's facts: which checkpoint and manifest it is about,
    the mark's digest, every hold that ever stood on it and what ended each, its readers, and up to
    which event and which receipt of the stage's history all this is. The stage's row is locked."""
    found: dict[str, Any] = {"event": event.number}
    if attempt_id is not None:
        found["checkpoint"] = _checkpoint_of_attempt(tx, event.project, attempt_id)
    if mark_id is not None:
        found["mark"] = _mark(tx, event.project, mark_id)
    if checkpoint_id is not None:
        found |= _checkpoint(tx, event.project, checkpoint_id)
        found["holds"] = _holds(tx, event.project, checkpoint_id)
        found["readers"] = _readers(tx, event.project, checkpoint_id)
        found["receipts"] = _newest_receipt(tx, event.project, event.stage_id)
    return found


def append(
    tx: Transaction,
    stage_id: int,
    intent: Mapping[str, Any],
    proof: Mapping[str, Any],
    *,
    recorded_at: datetime,
) -> str:
    """Certify that the bytes of a tombstone, given by its digested document, are proven gone;
    answers the certificate's name. The stage's row is locked."""
    last = tx.execute(
        """
        SELECT number, certificate FROM certificates
         WHERE stage_id = %s ORDER BY number DESC LIMIT 1
        """,
        (stage_id,),
    ).fetchone()
    place = Place.after(last["number"], last["certificate"]) if last else FIRST
    tombstone_id, project = UUID(intent["tombstone_id"]), intent["project"]
    body = certificates.certificate(
        place,
        stage=_stage(tx, project, stage_id),
        intent=intent,
        keys=KeyDigest.of(answers(tx, project, tombstone_id)),
        proof=proof,
        recorded_at=recorded_at,
    )
    name = identity(body)
    tx.execute(
        """
        INSERT INTO certificates (certificate, project, stage_id, number, previous, tombstone_id,
                                  body, recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            name,
            project,
            stage_id,
            place.number,
            place.previous,
            tombstone_id,
            Jsonb(body),
            recorded_at,
        ),
    )
    return name


def answers(tx: Transaction, project: str, tombstone_id: UUID) -> Iterator[dict[str, Any]]:
    """What the store answered for each key of a tombstone, in order, as a certificate covers it."""
    rows = tx.execute(
        """
        SELECT number, key, version_id, size_bytes, outcome, reason, recorded_at
          FROM tombstone_keys WHERE project = %s AND tombstone_id = %s ORDER BY number
        """,
        (project, tombstone_id),
    )
    for row in rows:
        yield {**row, "recorded_at": _text(row["recorded_at"])}


def of_stage(tx: Transaction, project: str, stage_id: int) -> list[Certificate]:
    """A stage's whole chain, oldest first."""
    rows = tx.execute(
        _SELECT + " WHERE project = %s AND stage_id = %s ORDER BY number", (project, stage_id)
    )
    return [Certificate(**row) for row in rows]


def of_tombstone(tx: Transaction, project: str, tombstone_id: UUID) -> Certificate | None:
    """The certificate of a tombstone; None while its bytes are not proven gone."""
    row = tx.execute(
        _SELECT + " WHERE project = %s AND tombstone_id = %s", (project, tombstone_id)
    ).fetchone()
    return Certificate(**row) if row else None


def _stage(tx: Transaction, project: str, stage_id: int) -> str:
    row = tx.execute(
        """
        SELECT project || '/' || workload || '/' || stage AS name FROM stages
         WHERE project = %s AND stage_id = %s
        """,
        (project, stage_id),
    ).fetchone()
    assert row is not None, "the caller has locked it"
    name: str = row["name"]
    return name


def _checkpoint(tx: Transaction, project: str, checkpoint_id: int) -> dict[str, Any]:
    row = tx.execute(
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage || '/' || k.generation || '.'
                 || k.sequence AS checkpoint, k.manifest
          FROM checkpoints k JOIN stages s USING (stage_id)
         WHERE k.project = %s AND k.checkpoint_id = %s
        """,
        (project, checkpoint_id),
    ).fetchone()
    assert row is not None, "an intent names a checkpoint of its own project"
    return dict(row)


def _checkpoint_of_attempt(tx: Transaction, project: str, attempt_id: UUID) -> str:
    row = tx.execute(
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage || '/' || a.generation || '.'
                 || a.sequence AS checkpoint
          FROM attempts a JOIN stages s USING (stage_id)
         WHERE a.project = %s AND a.attempt_id = %s
        """,
        (project, attempt_id),
    ).fetchone()
    assert row is not None, "an intent names an attempt of its own project"
    name: str = row["checkpoint"]
    return name


def _mark(tx: Transaction, project: str, mark_id: int) -> dict[str, Any]:
    row = tx.execute(
        "SELECT digest, at FROM marks WHERE project = %s AND mark_id = %s", (project, mark_id)
    ).fetchone()
    assert row is not None, "an intent names a mark of its own project"
    return {"digest": row["digest"], "at": _text(row["at"])}


def _holds(tx: Transaction, project: str, checkpoint_id: int) -> list[dict[str, Any]]:
    rows = tx.execute(
        """
        SELECT h.hold_id, h.kind, h.owner, h.expires_at, r.released_by,
               r.recorded_at AS released_at
          FROM hold_checkpoints c JOIN holds h USING (hold_id) LEFT JOIN hold_releases r
            USING (hold_id)
         WHERE c.project = %s AND c.checkpoint_id = %s
         ORDER BY c.recorded_at DESC, h.hold_id LIMIT %s
        """,
        (project, checkpoint_id, HOLDS_NAMED),
    )
    return [
        {
            "hold": str(row["hold_id"]),
            "kind": row["kind"],
            "owner": row["owner"],
            "expires_at": _text(row["expires_at"]),
            "released_by": row["released_by"],
            "released_at": _text(row["released_at"]),
        }
        for row in rows
    ]


def _newest_receipt(tx: Transaction, project: str, stage_id: int) -> list[Any] | None:
    """The head of the stage's chain of receipts, number and digest: with it the certificate covers
    every receipt that could have spoken against the deletion."""
    row = tx.execute(
        """
        SELECT number, receipt FROM receipts
         WHERE project = %s AND stage_id = %s ORDER BY number DESC LIMIT 1
        """,
        (project, stage_id),
    ).fetchone()
    return None if row is None else [row["number"], row["receipt"]]


def _readers(tx: Transaction, project: str, checkpoint_id: int) -> dict[str, Any]:
    row = tx.execute(
        """
        SELECT count(*) AS ever, count(*) FILTER (WHERE e.lease_id IS NULL) AS open,
               max(e.recorded_at) AS last_ended_at
          FROM reader_leases l LEFT JOIN reader_ends e USING (lease_id)
         WHERE l.project = %s AND l.checkpoint_id = %s
        """,
        (project, checkpoint_id),
    ).fetchone()
    assert row is not None
    return {
        "ever": row["ever"],
        "open": row["open"],
        "last_ended_at": _text(row["last_ended_at"]),
    }


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat()
