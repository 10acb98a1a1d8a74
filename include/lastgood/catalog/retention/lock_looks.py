"""What looks for locks found: the tables of copies and of what attempts left have one shape."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg import sql

from lastgood.catalog.db import Transaction
from lastgood.rules.copy_locks import LockLook


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Whose looks: the table, and the column that names one of its subjects."""

    table: str
    column: str

    def newest(self, tx: Transaction, project: str, subject: int | UUID) -> LockLook | None:
        """What the last recorded look found; None if none ever found a lock."""
        query = """
            SELECT versions, bytes AS size_bytes, ends_at, seen, reason, recorded_at FROM {table}
             WHERE project = %s AND {column} = %s ORDER BY look_id DESC LIMIT 1
        """
        row = tx.execute(self._named(query), (project, subject)).fetchone()
        return LockLook(**row) if row else None

    def record(self, tx: Transaction, project: str, subject: int | UUID, look: LockLook) -> None:
        """Append what a look found."""
        query = """
            INSERT INTO {table}
                   (project, {column}, versions, bytes, ends_at, seen, reason, recorded_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
        """
        found = look.versions, look.size_bytes, look.ends_at, look.seen, look.reason
        tx.execute(self._named(query), (project, subject, *found, look.recorded_at))

    def _named(self, query: str) -> sql.Composed:
        names = {"table": self.table, "column": self.column}
        return sql.SQL(query).format(**{name: sql.Identifier(one) for name, one in names.items()})


COPIES = LookedAt("copy_locks", "copy_id")
ATTEMPTS = LookedAt("attempt_locks", "attempt_id")
