"""A reader lease of our own, for as long as a copy is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from lastgood import errors
from lastgood.catalog import locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import checkpoints, copies, copy_transitions, readers, stages
from lastgood.catalog.jobs.checkpoints import ReadableCopy
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.jobs.readers import ReaderLease
from lastgood.flows.policies import policy_of


@dataclass(frozen=True, slots=True)
class Lent:
    """A lease with its token, which may be handed to a process that reads in our place."""

    lease_id: UUID
    token: str = field(repr=False)


@contextmanager
def reading(
    catalog: Catalog, project: str, copy_id: int, *, reader: str
) -> Iterator[tuple[Copy, Lent]]:
    """Hold a lease on a present copy, renewed in the background, and give it back at the end.
    Raises NotFound, and CopyState or CopyGone unless the copy is present."""
    with catalog.transaction() as tx:
        stages.locked(tx, project, copies.get(tx, project, copy_id).stage_id)
        locks.copies(tx, [copy_id])
        copy = copies.get(tx, project, copy_id)
        copy_transitions.require(copy, State.PRESENT, action="reading")
        ttl = policy_of(tx, project).leases.reader
        checkpoint = checkpoints.find(tx, copy.checkpoint)
        assert checkpoint is not None
        readable = ReadableCopy(copy.copy_id, copy.store, copy.prefix)
        lease, token = readers.grant(tx, checkpoint, readable, reader=reader, ttl=ttl)
    try:
        with _renewed(catalog, lease, ttl):
            yield copy, Lent(lease.lease_id, token)
    finally:
        with catalog.transaction() as tx:
            stages.locked(tx, project, lease.stage_id)
            readers.end(tx, lease)


@contextmanager
def _renewed(catalog: Catalog, lease: ReaderLease, ttl: timedelta) -> Iterator[None]:
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(ttl.total_seconds() / 3):
            with suppress(errors.LeaseExpired), catalog.transaction() as tx:
                stages.locked(tx, lease.project, lease.stage_id)
                readers.renew(tx, lease, ttl)

    renewing = threading.Thread(target=renew, name=f"renew-{lease.lease_id}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stop.set()
        renewing.join()
