"""What attempts left and a store's locks keep: believed for as long as it is of copies, and then
asked for again."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.retention.lock_looks import ATTEMPTS
from lastgood.rules.copy_locks import LockLook


def believed(tx: Transaction, project: str, attempt_id: UUID, now: datetime) -> LockLook | None:
    """What was found locked, if the store need not be asked again at `now` (the catalog's)."""
    known = ATTEMPTS.newest(tx, project, attempt_id)
    return known if known is not None and known.is_believed_at(now) else None


def note(catalog: Catalog, project: str, attempt_id: UUID, look: LockLook) -> None:
    """Record what is locked, or that nothing is any more."""
    with catalog.transaction() as tx:
        if look.is_news_after(ATTEMPTS.newest(tx, project, attempt_id)):
            ATTEMPTS.record(tx, project, attempt_id, look)
