"""Reader leases: an expiring claim on a checkpoint, without which there is no read grant."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.checkpoints import Checkpoint, ReadableCopy
from lastgood.catalog.settings.tokens import new_token, token_hash
from lastgood.errors import LeaseExpired, NotFound


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """A lease as it stands. `live`: it had neither ended nor run out when this was read."""

    lease_id: UUID
    project: str
    stage_id: int
    checkpoint_id: int
    copy_id: int
    attempt_id: UUID
    store: str
    prefix: str
    reader: str
    expires_at: datetime
    live: bool

    def require_live(self) -> None:
        """Raises LeaseExpired."""
        if not self.live:
            raise LeaseExpired(kind="reader", lease=str(self.lease_id), expires_at=self.expires_at)


@dataclass(frozen=True, slots=True)
class LeasedObject:
    """One object that a lease lets its reader read."""

    path: str
    size_bytes: int
    sha256: str
    version_id: str | None


_SELECT = """
    SELECT l.lease_id, l.project, l.stage_id, l.checkpoint_id, l.copy_id, k.attempt_id, c.store,
           c.prefix, l.reader, l.expires_at,
           l.expires_at > catalog_clock() AND NOT EXISTS (
             SELECT 1 FROM reader_ends e WHERE e.lease_id = l.lease_id) AS live
      FROM reader_leases l
      JOIN copies c USING (copy_id)
      JOIN checkpoints k ON k.checkpoint_id = l.checkpoint_id
"""


def grant(
    tx: Transaction, checkpoint: Checkpoint, copy: ReadableCopy, *, reader: str, ttl: timedelta
) -> tuple[ReaderLease, str]:
    """A lease on a checkpoint whose stage is locked, and its token, which is not kept."""
    lease_id, token = uuid4(), new_token()
    event = history.record(
        tx,
        checkpoint.stage_id,
        "reader-acquired",
        actor=f"runner:{reader}",
        facts={"lease": str(lease_id), "reader": reader, "checkpoint": str(checkpoint.id)},
    )
    tx.execute(
        """
        INSERT INTO reader_leases (lease_id, project, stage_id, checkpoint_id, copy_id, reader,
                                   token_sha256, expires_at, recorded_at)
             VALUES (%s, %s, %s, %s, %s, %s, %s, catalog_clock() + %s, %s)
        """,
        (
            lease_id,
            checkpoint.project,
            checkpoint.stage_id,
            checkpoint.checkpoint_id,
            copy.copy_id,
            reader,
            token_hash(token),
            ttl,
            event.recorded_at,
        ),
    )
    return get(tx, checkpoint.project, lease_id), token


def get(tx: Transaction, project: str, lease_id: UUID) -> ReaderLease:
    """One lease. Raises NotFound."""
    row = tx.execute(
        _SELECT + " WHERE l.lease_id = %s AND l.project = %s", (lease_id, project)
    ).fetchone()
    if row is None:
        raise NotFound(what="reader lease", name=str(lease_id))
    return ReaderLease(**row)


def live_of(tx: Transaction, project: str) -> list[ReaderLease]:
    """The leases of a project that have neither ended nor run out, the oldest first."""
    rows = tx.execute(
        _SELECT
        + """ WHERE l.project = %s AND l.expires_at > catalog_clock()
                AND NOT EXISTS (SELECT 1 FROM reader_ends e WHERE e.lease_id = l.lease_id)
              ORDER BY l.recorded_at, l.lease_id""",
        (project,),
    )
    return [ReaderLease(**row) for row in rows]


def lease_of_token(tx: Transaction, token: str) -> ReaderLease | None:
    """Whose token this is, None for an unknown one."""
    row = tx.execute(
        "SELECT project, lease_id, token_sha256 FROM reader_leases WHERE token_sha256 = %s",
        (token_hash(token),),
    ).fetchone()
    if row is None or not hmac.compare_digest(row["token_sha256"], token_hash(token)):
        return None
    return get(tx, row["project"], row["lease_id"])


def renew(tx: Transaction, lease: ReaderLease, ttl: timedelta) -> ReaderLease:
    """Let a live lease of a locked stage last this long from now, unless it lasts longer. Raises
    LeaseExpired: a lease that ran out may already have let its checkpoint go."""
    get(tx, lease.project, lease.lease_id).require_live()
    tx.execute(
        "UPDATE reader_leases SET expires_at = greatest(expires_at, catalog_clock() + %s)"
        " WHERE lease_id = %s AND project = %s",
        (ttl, lease.lease_id, lease.project),
    )
    return get(tx, lease.project, lease.lease_id)


def end(tx: Transaction, lease: ReaderLease) -> None:
    """The reader gives its lease back; its stage is locked. Repeating it is a no-op."""
    known = tx.execute(
        "SELECT 1 FROM reader_ends WHERE lease_id = %s", (lease.lease_id,)
    ).fetchone()
    if known is not None:
        return
    event = history.record(
        tx,
        lease.stage_id,
        "reader-ended",
        actor=f"runner:{lease.reader}",
        facts={"lease": str(lease.lease_id), "reader": lease.reader, "how": "released"},
    )
    tx.execute(
        "INSERT INTO reader_ends (lease_id, project, how, recorded_at)"
        " VALUES (%s, %s, 'released', %s)",
        (lease.lease_id, lease.project, event.recorded_at),
    )


def objects(tx: Transaction, lease: ReaderLease) -> list[LeasedObject]:
    """Every object of the leased copy, by path."""
    rows = tx.execute(
        """
        SELECT path, size_bytes, sha256, version_id FROM copy_objects
         WHERE copy_id = %s AND project = %s ORDER BY path COLLATE "C"
        """,
        (lease.copy_id, lease.project),
    )
    return [LeasedObject(**row) for row in rows]


def object_at(tx: Transaction, lease: ReaderLease, path: str) -> LeasedObject:
    """One object of the leased copy. Raises NotFound."""
    row: dict[str, Any] | None = tx.execute(
        "SELECT path, size_bytes, sha256, version_id FROM copy_objects"
        " WHERE copy_id = %s AND project = %s AND path = %s",
        (lease.copy_id, lease.project, path),
    ).fetchone()
    if row is None:
        raise NotFound(what="object", name=path)
    return LeasedObject(**row)
