"""What a catalog must agree on with the control keys in its stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound
from lastgood.rules.names import StageId


@dataclass(frozen=True, slots=True)
class Identity:
    """Which catalog this is. A rebuild keeps the id that the stores name and begins the next
    incarnation; `rebuild_id` tells its incarnation from any other of the same number. `rebuilding`:
    it has not ended, and until then the catalog does not know what its stores hold."""

    catalog_id: UUID
    incarnation: int
    rebuild_id: UUID | None = None
    rebuilding: bool = False

    @property
    def incarnation_facts(self) -> Mapping[str, Any]:
        """What the control key of the incarnation says, as JSON."""
        return {} if self.rebuild_id is None else {"rebuild": str(self.rebuild_id)}


@dataclass(frozen=True, slots=True)
class Position:
    """How far the history of a stage goes: its newest generation (0: none) and event."""

    generation: int
    event: int


def identity(tx: Transaction) -> Identity:
    """This catalog's identity."""
    row = tx.execute(
        """
        SELECT i.catalog_id, i.incarnation, r.rebuild_id,
               r.incarnation IS NOT NULL AND e.incarnation IS NULL AS rebuilding
          FROM identity i
          LEFT JOIN rebuilds r USING (incarnation)
          LEFT JOIN rebuild_ends e USING (incarnation)
        """
    ).fetchone()
    assert row is not None, "the migration that creates the table fills it"
    return Identity(**row)


def positions(tx: Transaction, project: str | None) -> dict[StageId, Position]:
    """The position of every stage of a project, or of all projects."""
    rows = tx.execute(
        """
        SELECT project, workload, stage, generation, last_event FROM stages
         WHERE %(project)s::text IS NULL OR project = %(project)s
        """,
        {"project": project},
    )
    return {
        StageId(row["project"], row["workload"], row["stage"]): Position(
            row["generation"], row["last_event"]
        )
        for row in rows
    }


def stage_name(tx: Transaction, project: str, stage_id: int) -> StageId:
    """The name of a stage. Raises NotFound."""
    row = tx.execute(
        "SELECT project, workload, stage FROM stages WHERE stage_id = %s AND project = %s",
        (stage_id, project),
    ).fetchone()
    if row is None:
        raise NotFound(what="stage", name=str(stage_id))
    return StageId(row["project"], row["workload"], row["stage"])


def event_facts(tx: Transaction, stage: StageId, number: int) -> Mapping[str, Any] | None:
    """What the control key of an event says, as JSON; None if there is no such event."""
    row = tx.execute(
        """
        SELECT e.kind, e.actor, e.recorded_at FROM events AS e JOIN stages AS s USING (stage_id)
         WHERE s.project = %s AND s.workload = %s AND s.stage = %s AND e.number = %s
        """,
        (stage.project, stage.workload, stage.stage, number),
    ).fetchone()
    return None if row is None else {**row, "recorded_at": _text(row["recorded_at"])}


def generation_facts(tx: Transaction, stage: StageId, number: int) -> Mapping[str, Any] | None:
    """What the control key of a generation says, as JSON; None if there is no such generation."""
    row = tx.execute(
        """
        SELECT g.holder, g.recorded_at FROM generations AS g JOIN stages AS s USING (stage_id)
         WHERE s.project = %s AND s.workload = %s AND s.stage = %s AND g.generation = %s
        """,
        (stage.project, stage.workload, stage.stage, number),
    ).fetchone()
    return None if row is None else {**row, "recorded_at": _text(row["recorded_at"])}


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()
