"""Retirements: an operator's word that a project, a workload or a stage has reached its end of
life. Nothing else lifts the floor of a stage.

A retirement takes effect when its grace is over, counted from its approval (from the asking, where
the policy wants none), unless it was undone before. It is about names: what is opened in its scope
later belongs to it, too, and nothing can be acquired there once it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.rules.names import StageId
from lastgood.rules.quantities import instant_text
from lastgood.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class Retirement:
    """A retirement as it was recorded, with its approval and undo where there are such."""

    retirement_id: UUID
    project: str
    workload: str | None
    stage: str | None
    reason: str
    grace_seconds: float
    approve: bool
    asked_by: str
    recorded_at: datetime
    approved_by: str | None
    approved_at: datetime | None
    undone_by: str | None
    undone_because: str | None
    undone_at: datetime | None

    @property
    def scope(self) -> Scope:
        return Scope(self.project, self.workload, self.stage)

    @property
    def decided_at(self) -> datetime | None:
        """When everybody had agreed whose word it needs; None while it waits for approval."""
        return self.approved_at if self.approve else self.recorded_at

    @property
    def effective_at(self) -> datetime | None:
        """The end of its grace; None while it waits for approval."""
        if self.decided_at is None:
            return None
        return self.decided_at + timedelta(seconds=self.grace_seconds)

    def state(self, now: datetime) -> str:
        """Where it stands: `undone`, `waits for approval`, `in grace` or `in effect`."""
        if self.undone_at is not None:
            return "undone"
        if self.effective_at is None:
            return "waits for approval"
        return "in grace" if now < self.effective_at else "in effect"

    def __str__(self) -> str:
        approved = f", approved by {self.approved_by}" if self.approved_by else ""
        effect = f", in effect from {instant_text(self.effective_at)}" if self.effective_at else ""
        return (
            f"retirement {self.retirement_id} of {self.scope}, asked by {self.asked_by}"
            f"{approved}{effect}: {self.reason}"
        )


_COLUMNS = """r.retirement_id, r.project, r.workload, r.stage, r.reason, r.grace_seconds, r.approve,
           r.asked_by, r.recorded_at, a.approved_by, a.recorded_at AS approved_at, u.undone_by,
           u.because AS undone_because, u.recorded_at AS undone_at"""
_SELECT = f"""
    SELECT {_COLUMNS}
      FROM retirements r
      LEFT JOIN retirement_approvals a USING (retirement_id)
      LEFT JOIN retirement_undos u USING (retirement_id)
"""
_HAS_STAGE = """((r.workload IS NULL OR r.workload = s.workload)
               AND (r.stage IS NULL OR r.stage = s.stage))"""
_DECIDED = "coalesce(a.recorded_at, CASE WHEN NOT r.approve THEN r.recorded_at END)"


def stages_in(tx: Transaction, scope: Scope) -> list[int]:
    """The stages that a scope has now, by id."""
    rows = tx.execute(
        """
        SELECT stage_id FROM stages
         WHERE project = %(project)s
           AND (%(workload)s::text IS NULL OR workload = %(workload)s)
           AND (%(stage)s::text IS NULL OR stage = %(stage)s)
         ORDER BY stage_id
        """,
        {"project": scope.project, "workload": scope.workload, "stage": scope.stage},
    )
    return [row["stage_id"] for row in rows]


def record(
    tx: Transaction,
    scope: Scope,
    stage_ids: Sequence[int],
    *,
    reason: str,
    grace: timedelta,
    approve: bool,
    asked_by: str,
) -> Retirement:
    """Append a retirement. The caller holds the project's lock exclusively and these stages'."""
    retirement_id = uuid4()
    facts = {"retirement_id": str(retirement_id), "scope": str(scope), "reason": reason}
    _tell(tx, stage_ids, "retirement-asked", asked_by, facts)
    tx.execute(
        """
        INSERT INTO retirements (retirement_id, project, workload, stage, reason, grace_seconds,
                                 approve, asked_by, recorded_at)
        VALUES (%(id)s, %(project)s, %(workload)s, %(stage)s, %(reason)s, %(grace)s, %(approve)s,
                %(by)s, %(at)s)
        """,
        {
            "id": retirement_id,
            "project": scope.project,
            "workload": scope.workload,
            "stage": scope.stage,
            "reason": reason,
            "grace": grace.total_seconds(),
            "approve": approve,
            "by": asked_by,
            "at": history.close(tx, scope.project),
        },
    )
    return get(tx, scope.project, retirement_id)


def approve(tx: Transaction, retirement: Retirement, stage_ids: Sequence[int], *, by: str) -> None:
    """Append the approval. Locks as for `record`."""
    facts = {"retirement_id": str(retirement.retirement_id)}
    _tell(tx, stage_ids, "retirement-approved", by, facts)
    tx.execute(
        "INSERT INTO retirement_approvals (retirement_id, project, approved_by, recorded_at)"
        " VALUES (%s, %s, %s, %s)",
        (
            retirement.retirement_id,
            retirement.project,
            by,
            history.close(tx, retirement.project),
        ),
    )


def undo(
    tx: Transaction, retirement: Retirement, stage_ids: Sequence[int], *, by: str, because: str
) -> None:
    """Append the undo. Locks as for `record`."""
    facts = {"retirement_id": str(retirement.retirement_id), "because": because}
    _tell(tx, stage_ids, "retirement-undone", by, facts)
    tx.execute(
        "INSERT INTO retirement_undos (retirement_id, project, undone_by, because, recorded_at)"
        " VALUES (%s, %s, %s, %s, %s)",
        (
            retirement.retirement_id,
            retirement.project,
            by,
            because,
            history.close(tx, retirement.project),
        ),
    )


def get(tx: Transaction, project: str, retirement_id: UUID) -> Retirement:
    """Raises NotFound if the project has no such retirement."""
    row = tx.execute(
        _SELECT + " WHERE r.project = %s AND r.retirement_id = %s", (project, retirement_id)
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="retirement", name=str(retirement_id))
    return Retirement(**row)


def of_project(tx: Transaction, project: str, *, undone: bool = False) -> list[Retirement]:
    """The retirements of a project that stand, and those that were undone if asked; oldest
    first."""
    rows = tx.execute(
        _SELECT
        + """ WHERE r.project = %s AND (%s OR u.retirement_id IS NULL)
              ORDER BY r.recorded_at, r.retirement_id""",
        (project, undone),
    )
    return [Retirement(**row) for row in rows]


def decided(tx: Transaction, name: StageId) -> Retirement | None:
    """The retirement that lets nobody acquire a stage: decided, and not undone. The oldest one."""
    row = tx.execute(
        _SELECT
        + f"""
         WHERE r.project = %(project)s AND u.retirement_id IS NULL AND {_DECIDED} IS NOT NULL
           AND (r.workload IS NULL OR r.workload = %(workload)s)
           AND (r.stage IS NULL OR r.stage = %(stage)s)
         ORDER BY r.recorded_at, r.retirement_id LIMIT 1
        """,
        {"project": name.project, "workload": name.workload, "stage": name.stage},
    ).fetchone()
    return Retirement(**row) if row else None


def in_effect(
    tx: Transaction, project: str, as_of: datetime, stage_id: int | None = None
) -> dict[int, Retirement]:
    """The stages of a project (or this one, if it is) that had reached their end of life at
    `as_of`, each with the oldest retirement that says so. None that somebody was writing then."""
    rows = tx.execute(
        f"""
        SELECT DISTINCT ON (s.stage_id) s.stage_id, {_COLUMNS}
          FROM retirements r
          JOIN stages s ON s.project = r.project AND {_HAS_STAGE}
          LEFT JOIN retirement_approvals a
                 ON a.retirement_id = r.retirement_id AND a.recorded_at <= %(as_of)s
          LEFT JOIN retirement_undos u
                 ON u.retirement_id = r.retirement_id AND u.recorded_at <= %(as_of)s
         WHERE r.project = %(project)s AND r.recorded_at <= %(as_of)s AND u.retirement_id IS NULL
           AND (%(stage_id)s::bigint IS NULL OR s.stage_id = %(stage_id)s)
           AND {_DECIDED} + make_interval(secs => r.grace_seconds) <= %(as_of)s
           AND NOT EXISTS (
               SELECT 1 FROM generations g
                WHERE g.stage_id = s.stage_id AND g.recorded_at <= %(as_of)s
                  AND NOT EXISTS (SELECT 1 FROM generation_ends e
                                   WHERE e.stage_id = g.stage_id AND e.generation = g.generation
                                     AND e.recorded_at <= %(as_of)s))
         ORDER BY s.stage_id, r.recorded_at, r.retirement_id
        """,
        {"project": project, "as_of": as_of, "stage_id": stage_id},
    )
    return {row.pop("stage_id"): Retirement(**row) for row in rows}


def _tell(
    tx: Transaction, stage_ids: Sequence[int], kind: str, actor: str, facts: Mapping[str, object]
) -> None:
    """One event for each stage."""
    for stage_id in stage_ids:
        history.record(tx, stage_id, kind, actor=actor, facts=facts)
