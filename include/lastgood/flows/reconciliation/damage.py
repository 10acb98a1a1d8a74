"""Copies that an inventory does not show whole are validated soon.

A finding alone changes no decision: until a receipt says what became of the bytes, marks count the
copy as proven, and it takes a slot of a role. So whoever lists a store asks for the receipt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import itemgetter

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies, stages
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.validation import receipts, validations
from lastgood.flows.inventories.explanation import Inventory
from lastgood.rules.quantities import counted
from lastgood.rules.retention_rules import Level

_log = logging.getLogger(__name__)
_REQUEST_STANDS = timedelta(days=1)
"""Then the next inventory asks again."""
ASKED_LIMIT = 20_000
"""Copies of one project that one inventory asks for: as many as are validated in a day or so."""
_BATCH_COPIES = 100
"""Of one stage, in one transaction: its lock is held for so many at a time."""
_PREFIXES = 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """The copies whose validation was asked for now, and how many more are damaged and count as
    proven: they are left to the next inventory, which asks for these, since by then the others are
    known."""

    copy_ids: tuple[int, ...]
    left: int


def ask_for_validation(catalog: Catalog, project: str, taken: Inventory, actor: str) -> Asked:
    """Ask for a validation of each present copy of a project with an object that the inventory does
    not show, not in its size, or out of every reader's sight, and wake who validates. One that
    failed before, was validated since, or waits for its validation is not asked for."""
    found = _unknown(catalog, project, taken)
    asked: list[int] = []
    for stage_id, copy_ids in _batches(found[:ASKED_LIMIT]):
        with catalog.transaction() as tx:
            locks.project_shared(tx, project)
            stages.locked(tx, project, stage_id)
            for copy_id in copy_ids:
                copy = copies.get(tx, project, copy_id)
                if _is_news(tx, copy, taken):
                    validations.request(tx, copy, Level.CHECKSUM, actor=actor)
                    asked.append(copy_id)
    left = len(found[ASKED_LIMIT:])
    if left:
        _log.error(
            "%s in %s: %s more than are asked for at a time; the next inventory asks for these",
            project,
            taken.store,
            counted(left, "damaged copy", "damaged copies"),
        )
    return Asked(tuple(asked), left)


def not_asked_for(catalog: Catalog, project: str, taken: Inventory) -> Asked:
    """What an inventory of the past shows that is unknown to this day; asks for nothing."""
    return Asked((), len(_unknown(catalog, project, taken)))


def _unknown(catalog: Catalog, project: str, taken: Inventory) -> list[tuple[int, int]]:
    """Stage and copy of what is damaged and has yet to be asked for, in order."""
    prefixes = taken.tally.damaged.get(project, [])
    found: list[tuple[int, int]] = []
    with catalog.transaction() as tx:
        since = history.now(tx) - _REQUEST_STANDS
        for start in range(0, len(prefixes), _PREFIXES):
            found += validations.unknown_at(
                tx,
                project,
                taken.store,
                prefixes[start : start + _PREFIXES],
                seen_at=taken.finished_at,
                asked_since=since,
            )
    return sorted(set(found))


def _batches(found: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Sequence[int]]]:
    """Copies of one stage at a time, with the stage."""
    for stage_id, of_stage in groupby(found, key=itemgetter(0)):
        copy_ids = [copy_id for _, copy_id in of_stage]
        for start in range(0, len(copy_ids), _BATCH_COPIES):
            yield stage_id, copy_ids[start : start + _BATCH_COPIES]


def _is_news(tx: Transaction, copy: Copy, taken: Inventory) -> bool:
    last = receipts.latest_verdict(tx, copy.project, copy.copy_id)
    known = last is not None and (last.verdict == "fail" or last.recorded_at > taken.finished_at)
    return copy.state is State.PRESENT and not known
