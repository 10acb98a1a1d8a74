"""The drill: can what was kept be restored in time, and does everything between a save and the
proof of a deletion do what it promises?

Its record is append-only and written as it goes; a drill that fails says so after that.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta
from uuid import UUID

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects
from lastgood.catalog.validation import drills
from lastgood.catalog.validation.drills import Drill, DueStage
from lastgood.errors import InvalidInput, LastgoodError, PrefixBusy
from lastgood.flows import control_keys, sane_clock
from lastgood.flows.drills.life import Life, Wait
from lastgood.flows.drills.restores import restore
from lastgood.flows.drills.scratch import project_of
from lastgood.flows.validation.levels import Ladder
from lastgood.stores.open import Stores

WITHIN = timedelta(days=28)
"""Each stage is restored at least once in so long."""
EVERY = timedelta(days=7)
"""How often drills are taken to run, where the size of a sample is reckoned."""


class DrillFailed(LastgoodError):
    """Drill {drill} of {project} failed, and its record was written: {failed}."""

    type = "drill-failed"


def sleep(span: timedelta) -> None:
    """Let time pass."""
    time.sleep(span.total_seconds())


def run(
    catalog: Catalog,
    stores: Stores,
    project: str,
    *,
    actor: str,
    sample: int | None = None,
    within: timedelta = WITHIN,
    life: bool = True,
    wait: Wait = sleep,
) -> Drill:
    """Drill a project: restore the last good checkpoint of `sample` stages, the longest not drilled
    first (None: as many as it takes to reach each `within`), and with `life` live a checkpoint's
    whole life in the scratch project of the project's own store.

    Answers the record, passed or not. Raises NotFound, InvalidInput for a scratch project, and
    CatalogBehind, ForeignCatalog or ClockJump before anything is begun.
    """
    sane_clock.require(catalog)
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        store = projects.get(tx, project).store
        if project in drills.scratch_projects(tx):
            raise InvalidInput(where="project", reason=f"{project} is where drills write")
        now, due = history.now(tx), drills.due(tx, project)
        size = _sample_size(len(due), within) if sample is None else sample
        drill_id = drills.begin(tx, project, actor=actor, sample=size, within=within)
    drilling = _Drilling(catalog, stores, project, drill_id, actor)
    drilling.restore(due[:size])
    drilling.rotation(due[size:], within, now)
    if life:
        drilling.live(store, wait)
    with catalog.transaction() as tx:
        drills.end(tx, drill_id, project)
        return drills.get(tx, drill_id)


def failures(drill: Drill) -> list[str]:
    """What did not pass, in words."""
    return [f"{one.stage}: {one.result['reason']}" for one in drill.restores if not one.passed] + [
        f"{one.expectation}: {one.evidence}" for one in drill.expectations if not one.passed
    ]


def _sample_size(stages: int, within: timedelta) -> int:
    return math.ceil(stages * min(1.0, EVERY / within))


class _Drilling:
    """One drill, writing down what it sees."""

    def __init__(
        self, catalog: Catalog, stores: Stores, project: str, drill_id: UUID, actor: str
    ) -> None:
        self._catalog, self._stores, self._project = catalog, stores, project
        self._drill_id, self._actor = drill_id, actor
        self._told = 0

    def restore(self, chosen: list[DueStage]) -> None:
        """Restore the last good checkpoint of each stage."""
        ladder = Ladder()
        for due in chosen:
            found = restore(self._catalog, self._stores, due, actor=self._actor, ladder=ladder)
            with self._catalog.transaction() as tx:
                drills.add_restore(
                    tx,
                    self._drill_id,
                    self._project,
                    found.stage_id,
                    found.checkpoint_id,
                    passed=found.passed,
                    result=found.to_json(),
                )

    def rotation(self, left: list[DueStage], within: timedelta, now: datetime) -> None:
        """Whether no stage was left out for too long."""
        late = [
            str(due.stage)
            for due in left
            if due.last_drilled_at is not None and now - due.last_drilled_at > within
        ]
        never = sum(due.last_drilled_at is None for due in left)
        evidence = f"late: {', '.join(late[:10])}" if late else f"none is late, {never} are to come"
        self.tell(f"each stage is restored within {within.days} days", not late, evidence)

    def live(self, store: str, wait: Wait) -> None:
        """Live a checkpoint's life; one drill at a time in each store."""
        try:
            with self._catalog.transaction() as lock:
                locks.carrying_out(lock, f"drill of {project_of(store)}")
                Life(
                    self._catalog,
                    self._stores,
                    store,
                    actor=self._actor,
                    wait=wait,
                    tell=self.tell,
                ).run()
        except PrefixBusy as error:  # the lock's alone: a life tells its own errors
            self.tell("no other drill lives in the store meanwhile", False, str(error))

    def tell(self, expectation: str, passed: bool, evidence: str) -> None:
        """Write down the verdict over an expectation."""
        self._told += 1
        with self._catalog.transaction() as tx:
            drills.add_expectation(
                tx,
                self._drill_id,
                self._project,
                self._told,
                expectation,
                passed=passed,
                evidence=evidence[:2000],
            )
