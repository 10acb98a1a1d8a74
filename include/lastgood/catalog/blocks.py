"""Restore blocks: whether a stage may be restored, and what was established after a failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastgood.catalog import history
from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class Block:
    """The newest word about a stage's restores. `established`: the checkpoint that lifted the
    block."""

    stage_id: int
    number: int
    blocked: bool
    receipt: str | None
    established: int | None
    actor: str
    because: str
    recorded_at: datetime


_COLUMNS = "stage_id, number, blocked, receipt, established, actor, because, recorded_at"


def current(tx: Transaction, project: str, stage_id: int) -> Block | None:
    """None if the stage was never blocked."""
    row = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM restore_blocks
         WHERE project = %s AND stage_id = %s ORDER BY number DESC LIMIT 1
        """,
        (project, stage_id),
    ).fetchone()
    return Block(**row) if row else None


def blocked_stages(tx: Transaction, project: str) -> list[int]:
    """The stages of a project whose restores are blocked now."""
    rows = tx.execute(
        "SELECT stage_id FROM stages WHERE project = %s AND blocked_by IS NOT NULL"
        " ORDER BY stage_id",
        (project,),
    )
    return [row["stage_id"] for row in rows]


def block(
    tx: Transaction, project: str, stage_id: int, *, receipt: str, actor: str, because: str
) -> Block:
    """Refuse restores of a stage that this transaction has locked, on account of a failed
    receipt."""
    event = history.record(
        tx, stage_id, "restore-blocked", actor=actor, facts={"receipt": receipt, "because": because}
    )
    _remember(tx, project, stage_id, receipt)
    return _append(tx, event, blocked=True, receipt=receipt, established=None, because=because)


def unblock(
    tx: Transaction,
    project: str,
    stage_id: int,
    *,
    established: int | None,
    receipt: str | None,
    actor: str,
    because: str,
) -> Block:
    """Allow restores again. `established` is the checkpoint found valid, `receipt` what proves it;
    both None where an operator decides without one."""
    event = history.record(
        tx,
        stage_id,
        "restore-unblocked",
        actor=actor,
        facts={"established": established, "receipt": receipt, "because": because},
    )
    _remember(tx, project, stage_id, None)
    return _append(
        tx, event, blocked=False, receipt=receipt, established=established, because=because
    )


def _remember(tx: Transaction, project: str, stage_id: int, receipt: str | None) -> None:
    tx.execute(
        "UPDATE stages SET blocked_by = %s WHERE stage_id = %s AND project = %s",
        (receipt, stage_id, project),
    )


def _append(
    tx: Transaction,
    event: history.Event,
    *,
    blocked: bool,
    receipt: str | None,
    established: int | None,
    because: str,
) -> Block:
    row = tx.execute(
        f"""
        INSERT INTO restore_blocks (project, {_COLUMNS})
        SELECT %(project)s, %(stage_id)s,
               1 + (SELECT count(*) FROM restore_blocks WHERE stage_id = %(stage_id)s),
               %(blocked)s, %(receipt)s, %(established)s, %(actor)s, %(because)s, %(at)s
        RETURNING {_COLUMNS}
        """,
        {
            "project": event.project,
            "stage_id": event.stage_id,
            "blocked": blocked,
            "receipt": receipt,
            "established": established,
            "actor": event.actor,
            "because": because,
            "at": event.recorded_at,
        },
    ).fetchone()
    assert row is not None
    return Block(**row)
