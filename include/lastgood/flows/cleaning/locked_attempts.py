"""What attempts left and a store's locks keep: believed for as long as it is of copies, and then
asked for again."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from lastgood.catalog import attempt_locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.rules.copy_locks import LockLook


def believed(tx: Transaction, project: str, attempt_id: UUID, now: datetime) -> LockLook | None:
    """What was found locked, if the store need not be asked again at `now` (the catalog's)."""
    known = attempt_locks.newest(tx, project, attempt_id)
    if known is None or not known.recorded_at <= now < known.ask_again_at:
        return None
    return known


def note(catalog: Catalog, project: str, attempt_id: UUID, look: LockLook) -> None:
    """Record what is locked, or that nothing is any more."""
    with catalog.transaction() as tx:
        known = attempt_locks.newest(tx, project, attempt_id)
        if look.versions or (known is not None and known.versions):
            attempt_locks.record(tx, project, attempt_id, look)
