"""The lock order, in one place.

Every transaction that decides or changes a fact takes its locks in this order and no other:

1. its project's advisory lock: shared, or exclusive for decisions over the whole project;
2. its stage rows, by id;
3. attempts, then copies, by id;
4. the capacity counters.

Each function is a statement of its own, and facts are read by later statements: a SELECT that
waited for a lock would answer with facts from before the wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

import psycopg

from lastgood.catalog.db import Transaction
from lastgood.errors import PrefixBusy

CARRYING_OUT_SECONDS = 30
_SPACE = 0x1A57600D  # keeps our advisory locks apart from those of others in the same database


def project_shared(tx: Transaction, project: str) -> None:
    """For decisions inside stages: they exclude each other by the stages' rows."""
    tx.execute("SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s))", (_SPACE, project))


def project_exclusive(tx: Transaction, project: str) -> None:
    """For decisions over the project: a hold by selector, a policy, the instant of a mark."""
    tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_SPACE, project))


def stages(tx: Transaction, stage_ids: Iterable[int]) -> None:
    """Lock stage rows against every other decision about them."""
    tx.execute(
        "SELECT 1 FROM stages WHERE stage_id = ANY(%s) ORDER BY stage_id FOR UPDATE",
        (sorted(set(stage_ids)),),
    )


def attempt(tx: Transaction, attempt_id: UUID) -> None:
    """For a change of the attempt's state: excludes every publishing of an object."""
    tx.execute("SELECT 1 FROM attempts WHERE attempt_id = %s FOR UPDATE", (attempt_id,))


def attempt_shared(tx: Transaction, attempt_id: UUID) -> None:
    """For publishing an object: the attempt cannot be sealed or aborted meanwhile."""
    tx.execute("SELECT 1 FROM attempts WHERE attempt_id = %s FOR SHARE", (attempt_id,))


def copies(tx: Transaction, copy_ids: Iterable[int]) -> None:
    """For a change of copies' states."""
    tx.execute(
        "SELECT 1 FROM copies WHERE copy_id = ANY(%s) ORDER BY copy_id FOR UPDATE",
        (sorted(set(copy_ids)),),
    )


def carrying_out(tx: Transaction, prefix: str) -> None:
    """For making a store follow what was decided about a prefix: one process at a time. No decision
    waits for this lock, so it alone may be held during store I/O. A holder that hangs must not stop
    everybody else: PrefixBusy after CARRYING_OUT_SECONDS."""
    tx.execute("SELECT set_config('lock_timeout', %s, true)", (f"{CARRYING_OUT_SECONDS}s",))
    try:
        tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_SPACE + 1, prefix))
    except psycopg.errors.LockNotAvailable as error:
        raise PrefixBusy(prefix=prefix, seconds=CARRYING_OUT_SECONDS) from error
    tx.execute("SELECT set_config('lock_timeout', '0', true)")


def verifying(tx: Transaction, attempt_id: UUID, *, wait: timedelta) -> bool:
    """For reading an attempt's objects to verify them: whether nobody else does, or ended within
    `wait`. No decision rests on it: it spares a second reading. `tx` is of use for nothing else
    then (`Catalog.transaction_apart`)."""
    tx.execute("SELECT set_config('lock_timeout', %s, true)", (f"{wait.total_seconds():.0f}s",))
    try:
        tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_SPACE + 2, str(attempt_id)))
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def capacity(tx: Transaction, project: str, store: str) -> None:
    """For reading counters that a later statement changes."""
    tx.execute(
        "SELECT 1 FROM capacity_counters WHERE project = %s AND store = %s FOR UPDATE",
        (project, store),
    )


def store(tx: Transaction, store: str) -> None:
    """For unregistering a store: excludes every new reference to its row. Taken last, like the row
    locks of foreign keys, which wait for it."""
    tx.execute("SELECT 1 FROM stores WHERE store = %s FOR UPDATE", (store,))


def store_capacity(tx: Transaction, store: str) -> None:
    """For admission, which looks at what every project has in the store."""
    tx.execute(
        "SELECT 1 FROM capacity_counters WHERE store = %s ORDER BY project FOR UPDATE", (store,)
    )
