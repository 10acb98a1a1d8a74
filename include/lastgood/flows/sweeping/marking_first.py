"""Under pressure a sweep marks anew first, unless that would say the same; a dry run says whether.

What was given up since the last mark may be just what is wanted back. Each refused save wakes a
sweep, and marks are kept for good: so the last one stays while it would be made again as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.capacity import capacity_states
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import lapses
from lastgood.catalog.retention import marks
from lastgood.flows.capacity import pressure
from lastgood.flows.retention import mark
from lastgood.flows.sweeping.order import Turn, turn
from lastgood.flows.sweeping.plan import Plan, plan, unfinished
from lastgood.rules.quantities import instant_text

_log = logging.getLogger(__name__)
_MARK_STANDS = timedelta(minutes=15)
"""While nothing is recorded, as long as from one scheduled sweep to the next."""


def fresh_plan(catalog: Catalog, project: str) -> Plan:
    """The plan under a mark of now, which is made unless the last one says all."""
    try:
        planned = plan(catalog, project)
        with catalog.transaction() as tx:
            if _says_all(tx, planned):
                return planned
    except errors.MarkNotSweepable as error:
        _log.info("marking anew: %s", error)
    mark.run(catalog, project)
    return plan(catalog, project)


def _says_all(tx: Transaction, planned: Plan) -> bool:
    """Whether a plan's mark knows all of the project's history, and hardly any time passed since,
    which gives up more by itself."""
    if planned.mark_id is None:
        return False
    at = marks.get(tx, planned.project, planned.mark_id).at
    age = history.project_now(tx, planned.project) - at
    return age < _MARK_STANDS and not history.is_recorded_after(tx, planned.project, at)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a sweep would take to the gate, as far as it is known before the run. `marks_first`
    says, where the run begins with a mark of its own, what that changes; else None."""

    plan: Plan
    turn: Turn
    marks_first: str | None

    def to_json(self) -> dict[str, Any]:
        return {**self.plan.to_json(), "marks_first": self.marks_first}

    def __str__(self) -> str:
        lines = [str(self.plan)]
        lines += [str(self.turn)] if self.turn.to_delete else []
        return "\n".join(lines + ([self.marks_first] if self.marks_first else []))


def dry_run(catalog: Catalog, project: str, mark_id: int | None = None) -> DryRun:
    """The plan of the last mark, or of the one that is named, in the order of a run that would come
    now. Marks and records nothing. Raises MarkNotSweepable where the run would."""
    with catalog.transaction() as tx:
        standings = pressure.look(tx, project)
        changed = any(_is_news(tx, one) for one in standings) or bool(lapses.stages(tx, project))
    marks_anew = mark_id is None and any(one.pressed for one in standings)
    try:
        planned = plan(catalog, project, mark_id)
    except errors.MarkNotSweepable as error:
        if not marks_anew:
            raise
        planned = unfinished(catalog, project)
        first = f"under pressure the sweep marks first, and takes what that gives up: {error}"
    else:
        with catalog.transaction() as tx:
            marks_anew = marks_anew and (changed or not _says_all(tx, planned))
            first = _marks_first(tx, planned)
    return DryRun(planned, turn(catalog, planned, standings), first if marks_anew else None)


def _is_news(tx: Transaction, one: pressure.StoreStanding) -> bool:
    """Whether a sweep would record where the project stands in a store."""
    return pressure.is_news(one, capacity_states.newest(tx, one.project, one.store))


def _marks_first(tx: Transaction, planned: Plan) -> str:
    begins = "under pressure the sweep marks first: "
    if planned.mark_id is None:
        return f"{begins}nothing was marked yet, so what it will take is not shown"
    at = marks.get(tx, planned.project, planned.mark_id).at
    return (
        f"{begins}this is what mark {planned.mark_id} as of {instant_text(at)} gives up; what was"
        " given up since then comes on top, what is kept since then stays"
    )
