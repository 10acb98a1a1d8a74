"""Stages: the rows under whose locks everything about a training job is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.catalog import history, locks
from lastgood.catalog.db import Transaction
from lastgood.errors import Conflict, NotFound
from lastgood.rules.names import StageId

UNKNOWN_CLASS = "?"
"""The class of a stage that was read back from a store, which does not tell it; no class can have
this name. The first job that asks says it, and the kind."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it stands. `generation` is the newest one, 0 before the first; `blocked_by` the
    receipt that blocks restores."""

    stage_id: int
    project: str
    workload: str
    stage: str
    kind: str
    workload_class: str
    generation: int
    blocked_by: str | None

    @property
    def name(self) -> StageId:
        return StageId.of(self.project, self.workload, self.stage)


_SELECT = """
    SELECT stage_id, project, workload, stage, kind, class AS workload_class, generation, blocked_by
      FROM stages
"""


def find(tx: Transaction, name: StageId) -> Stage | None:
    """A stage by name, None if nobody opened it."""
    row = tx.execute(
        _SELECT + " WHERE project = %s AND workload = %s AND stage = %s",
        (name.project, name.workload, name.stage),
    ).fetchone()
    return Stage(**row) if row else None


def get(tx: Transaction, project: str, stage_id: int) -> Stage:
    """A stage by id. Raises NotFound."""
    row = tx.execute(
        _SELECT + " WHERE stage_id = %s AND project = %s", (stage_id, project)
    ).fetchone()
    if row is None:
        raise NotFound(what="stage", name=str(stage_id))
    return Stage(**row)


def names(tx: Transaction, project: str) -> Mapping[int, StageId]:
    """The name of every stage of a project, by its id."""
    rows = tx.execute("SELECT stage_id, workload, stage FROM stages WHERE project = %s", (project,))
    return {row["stage_id"]: StageId.of(project, row["workload"], row["stage"]) for row in rows}


def locked(tx: Transaction, project: str, stage_id: int) -> Stage:
    """Take the project's lock shared and the stage's, then read it."""
    locks.project_shared(tx, project)
    locks.stages(tx, [stage_id])
    return get(tx, project, stage_id)


def find_locked(tx: Transaction, name: StageId) -> Stage:
    """The same by name. Raises NotFound if nobody opened it."""
    found = find(tx, name)
    if found is None:
        raise NotFound(what="stage", name=f"{name.workload}/{name.stage}")
    return locked(tx, name.project, found.stage_id)


def open_locked(
    tx: Transaction, name: StageId, *, kind: str | None, workload_class: str | None, actor: str
) -> Stage:
    """The same, opening the stage if nobody did. A kind or class that is given must be the stage's
    own: Conflict."""
    locks.project_shared(tx, name.project)
    tx.execute(
        """
        INSERT INTO stages (project, workload, stage, kind, class)
             VALUES (%(project)s, %(workload)s, %(stage)s, %(kind)s, %(class)s)
        ON CONFLICT DO NOTHING
        """,
        {
            "project": name.project,
            "workload": name.workload,
            "stage": name.stage,
            "kind": kind or "checkpointed",
            "class": workload_class or "default",
        },
    )
    opened = tx.rowcount == 1
    stage = find_locked(tx, name)
    if opened:
        facts = {"kind": stage.kind, "class": stage.workload_class}
        history.record(tx, stage.stage_id, "stage-opened", actor=actor, facts=facts)
    if stage.workload_class == UNKNOWN_CLASS and workload_class is not None:
        stage = _told(tx, stage, kind or stage.kind, workload_class)
    for what, asked, own in (
        ("kind", kind, stage.kind),
        ("class", workload_class, stage.workload_class),
    ):
        if asked not in (None, own):
            raise Conflict(reason=f"{name} was opened with {what} {own}, not {asked}")
    return stage


def _told(tx: Transaction, stage: Stage, kind: str, workload_class: str) -> Stage:
    tx.execute(
        "UPDATE stages SET kind = %s, class = %s WHERE stage_id = %s",
        (kind, workload_class, stage.stage_id),
    )
    return get(tx, stage.project, stage.stage_id)
