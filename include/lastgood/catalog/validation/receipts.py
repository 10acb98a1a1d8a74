"""Receipts: the immutable record of each validation, content-addressed and chained per stage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.copies import Copy
from lastgood.rules.canonical import canonical_json

Level = Literal["checksum", "format", "restore"]
Verdict = Literal["pass", "fail", "inconclusive"]
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Validation:
    """What a validator found out about a copy; `problems` are the bad objects, one each."""

    level: Level
    verdict: Verdict
    validator: str
    validator_version: str
    started_at: datetime
    finished_at: datetime
    bytes_read: int
    reason: str
    topology: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Mapping[str, Any]] = ()
    last_lines: Sequence[str] = ()  # what the isolated process printed last


@dataclass(frozen=True, slots=True)
class Receipt:
    """A recorded validation. `receipt` is the SHA-256 of its canonical body."""

    receipt: str
    stage_id: int
    number: int
    previous: str | None
    checkpoint_id: int
    copy_id: int
    level: Level
    verdict: Verdict
    validator: str
    validator_version: str
    started_at: datetime
    finished_at: datetime
    bytes_read: int
    reason: str
    body: Mapping[str, Any]
    recorded_at: datetime


_COLUMNS = """receipt, stage_id, number, previous, checkpoint_id, copy_id, level, verdict,
    validator, validator_version, started_at, finished_at, bytes_read, reason, body, recorded_at"""


def append(tx: Transaction, copy: Copy, validation: Validation, *, actor: str) -> Receipt:
    """Record a validation of `copy`, whose stage this transaction has locked."""
    last = tx.execute(
        "SELECT receipt, number FROM receipts WHERE stage_id = %s ORDER BY number DESC LIMIT 1",
        (copy.stage_id,),
    ).fetchone()
    number, previous = (last["number"] + 1, last["receipt"]) if last else (1, None)
    body = _body(copy, validation, number, previous)
    receipt = identity(body)
    event = history.record(
        tx,
        copy.stage_id,
        "receipt",
        actor=actor,
        facts={
            "receipt": receipt,
            "checkpoint": str(copy.checkpoint),
            "copy_id": copy.copy_id,
            "level": validation.level,
            "verdict": validation.verdict,
        },
    )
    row = tx.execute(
        f"""
        INSERT INTO receipts (project, {_COLUMNS})
        VALUES (%(project)s, %(receipt)s, %(stage_id)s, %(number)s, %(previous)s, %(checkpoint_id)s,
                %(copy_id)s, %(level)s, %(verdict)s, %(validator)s, %(validator_version)s,
                %(started_at)s, %(finished_at)s, %(bytes_read)s, %(reason)s, %(body)s,
                %(recorded_at)s)
        RETURNING {_COLUMNS}
        """,
        {
            "project": copy.project,
            "receipt": receipt,
            "stage_id": copy.stage_id,
            "number": number,
            "previous": previous,
            "checkpoint_id": copy.checkpoint_id,
            "copy_id": copy.copy_id,
            "level": validation.level,
            "verdict": validation.verdict,
            "validator": validation.validator,
            "validator_version": validation.validator_version,
            "started_at": validation.started_at,
            "finished_at": validation.finished_at,
            "bytes_read": validation.bytes_read,
            "reason": validation.reason,
            "body": Jsonb(body),
            "recorded_at": event.recorded_at,
        },
    ).fetchone()
    assert row is not None
    return Receipt(**row)


def identity(body: Mapping[str, Any]) -> str:
    """The receipt's name: SHA-256, in lower-case hex, of the canonical JSON of its body."""
    return hashlib.sha256(canonical_json(dict(body))).hexdigest()


def of_stage(tx: Transaction, project: str, stage_id: int) -> list[Receipt]:
    """A stage's whole chain, oldest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM receipts WHERE project = %s AND stage_id = %s ORDER BY number",
        (project, stage_id),
    )
    return [Receipt(**row) for row in rows]


def of_copy(tx: Transaction, project: str, copy_id: int) -> list[Receipt]:
    """The receipts of one copy, oldest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM receipts WHERE project = %s AND copy_id = %s ORDER BY number",
        (project, copy_id),
    )
    return [Receipt(**row) for row in rows]


def latest_verdict(tx: Transaction, project: str, copy_id: int) -> Receipt | None:
    """The copy's newest receipt that proves something: an inconclusive one does not."""
    row = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM receipts
         WHERE project = %s AND copy_id = %s AND verdict <> 'inconclusive'
         ORDER BY number DESC LIMIT 1
        """,
        (project, copy_id),
    ).fetchone()
    return Receipt(**row) if row else None


HELD_BACK = "against"
"""In the topology of an inconclusive receipt: the failure on account of which it is no pass."""


def last_number(tx: Transaction, project: str, stage_id: int) -> int:
    """The number of a stage's newest receipt; 0 before the first."""
    row = tx.execute(
        "SELECT coalesce(max(number), 0) AS number FROM receipts"
        " WHERE project = %s AND stage_id = %s",
        (project, stage_id),
    ).fetchone()
    assert row is not None
    number: int = row["number"]
    return number


def standing_failure(
    tx: Transaction, project: str, copy_id: int, level: Level, began_after: int
) -> Receipt | None:
    """The newest failure of a copy that a pass of this level does not take back: one of another
    level, which has not been passed since, or one that was recorded while the pass was read, beyond
    the receipt of this number. A pass that was held back counts for its own level."""
    rows = tx.execute(
        f"""
        SELECT DISTINCT ON (level) {_COLUMNS} FROM receipts
         WHERE project = %s AND copy_id = %s
           AND (verdict <> 'inconclusive' OR body->'topology'->>'{HELD_BACK}' IS NOT NULL)
         ORDER BY level, number DESC
        """,
        (project, copy_id),
    )
    failures = [
        Receipt(**row)
        for row in rows
        if row["verdict"] == "fail" and (row["level"] != level or row["number"] > began_after)
    ]
    return max(failures, key=lambda one: one.number, default=None)


def _body(copy: Copy, validation: Validation, number: int, previous: str | None) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "number": number,
        "previous": previous,
        "checkpoint": str(copy.checkpoint),
        "manifest": copy.manifest,
        "copy": {"copy_id": copy.copy_id, "store": copy.store, "prefix": copy.prefix},
        "level": validation.level,
        "verdict": validation.verdict,
        "validator": validation.validator,
        "validator_version": validation.validator_version,
        "started_at": validation.started_at.astimezone(UTC).isoformat(),
        "finished_at": validation.finished_at.astimezone(UTC).isoformat(),
        "bytes_read": validation.bytes_read,
        "reason": validation.reason,
        "topology": dict(validation.topology),
        "problems": [dict(problem) for problem in validation.problems],
        "last_lines": list(validation.last_lines),
    }
