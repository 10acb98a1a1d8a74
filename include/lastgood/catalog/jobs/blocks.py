"""Restore blocks: whether a stage may be restored, and what was established after a failure."""

from __future__ import annotations

from lastgood.catalog import history
from lastgood.catalog.db import Transaction


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
) -> None:
    """Refuse restores of a stage that this transaction has locked, on account of a failed
    receipt."""
    event = history.record(
        tx, stage_id, "restore-blocked", actor=actor, facts={"receipt": receipt, "because": because}
    )
    _remember(tx, project, stage_id, receipt)
    _append(tx, event, blocked=True, receipt=receipt, established=None, because=because)


def unblock(
    tx: Transaction,
    project: str,
    stage_id: int,
    *,
    established: int | None,
    receipt: str | None,
    actor: str,
    because: str,
) -> None:
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
    _append(tx, event, blocked=False, receipt=receipt, established=established, because=because)


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
) -> None:
    tx.execute(
        """
        INSERT INTO restore_blocks (project, stage_id, number, blocked, receipt, established, actor,
                                    because, recorded_at)
        SELECT %(project)s, %(stage_id)s,
               1 + (SELECT count(*) FROM restore_blocks WHERE stage_id = %(stage_id)s),
               %(blocked)s, %(receipt)s, %(established)s, %(actor)s, %(because)s, %(at)s
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
    )
