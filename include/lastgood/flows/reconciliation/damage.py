"""Copies that an inventory does not show whole are validated soon.

A finding alone changes no decision: until a receipt says what became of the bytes, marks count the
copy as proven, and it takes a slot of a role. So whoever lists a store asks for the receipt.
"""

from __future__ import annotations

from datetime import timedelta

from lastgood.catalog import copies, history, locks, receipts, stages, validations
from lastgood.catalog.copies import Copy, State
from lastgood.catalog.db import Catalog, Transaction
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.merge import Cause
from lastgood.rules.retention_rules import Level

_DAMAGE = (Cause.MISSING, Cause.SIZE_DIFFERS)
_REQUEST_STANDS = timedelta(days=1)
"""Then the next inventory asks again."""


def ask_for_validation(catalog: Catalog, project: str, taken: Inventory, actor: str) -> list[Copy]:
    """Ask for a validation of each present copy of a project with an object that the inventory does
    not show, or not in its size, and wake who validates; answers these copies. One that failed
    before, was validated since, or waits for its validation is not asked for."""
    prefixes = [
        place.key_range
        for place in taken.differences
        if place.project == project and place.cause in _DAMAGE
    ]
    with catalog.transaction() as tx:
        found = copies.at_prefixes(tx, project, taken.store, prefixes)
        since = history.now(tx) - _REQUEST_STANDS
        waiting = {copy_id for copy_id, _ in validations.requested(tx, project, since)}
    asked = []
    for copy in found:
        if copy.copy_id in waiting:
            continue
        with catalog.transaction() as tx:
            locks.project_shared(tx, project)
            stages.locked(tx, project, copy.stage_id)
            if _is_news(tx, copies.get(tx, project, copy.copy_id), taken):
                validations.request(tx, copy, Level.CHECKSUM, actor=actor)
                asked.append(copy)
    return asked


def _is_news(tx: Transaction, copy: Copy, taken: Inventory) -> bool:
    last = receipts.latest_verdict(tx, copy.project, copy.copy_id)
    known = last is not None and (last.verdict == "fail" or last.recorded_at > taken.finished_at)
    return copy.state is State.PRESENT and not known
