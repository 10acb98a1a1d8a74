"""What stores' locks keep of what attempts left, as looks found it."""

from __future__ import annotations

from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.rules.copy_locks import LockLook


def record(tx: Transaction, project: str, attempt_id: UUID, look: LockLook) -> None:
    """Append what a look found."""
    tx.execute(
        """
        INSERT INTO attempt_locks
               (project, attempt_id, versions, bytes, ends_at, seen, reason, recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            project,
            attempt_id,
            look.versions,
            look.size_bytes,
            look.ends_at,
            look.seen,
            look.reason,
            look.recorded_at,
        ),
    )


def newest(tx: Transaction, project: str, attempt_id: UUID) -> LockLook | None:
    """What the last recorded look at an attempt found; None if none ever found a lock."""
    row = tx.execute(
        """
        SELECT versions, bytes AS size_bytes, ends_at, seen, reason, recorded_at FROM attempt_locks
         WHERE project = %s AND attempt_id = %s ORDER BY look_id DESC LIMIT 1
        """,
        (project, attempt_id),
    ).fetchone()
    return LockLook(**row) if row else None
