"""Holds: an owner's word that checkpoints must stay.

A hold names checkpoints, or a selector. What a selector takes is written down checkpoint by
checkpoint, when it is placed and at each later commit while it stands, so that "held" is a fact
and not a query. A hold ends by its release, or by the catalog's clock at `expires_at`; a legal
one only by its release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.rules.quantities import instant_text

Kind = Literal["incident", "legal", "research", "milestone"]
_MAX_STEP = 2**63 - 1  # a bigint


@dataclass(frozen=True, slots=True)
class Selector:
    """Which checkpoints of a project a hold takes; what is None does not restrict. Ranges
    include both ends. With `metric`, only checkpoints that have it, from `metric_from` to
    `metric_to`."""

    workload: str | None = None
    stage: str | None = None
    step_from: int | None = None
    step_to: int | None = None
    committed_from: datetime | None = None
    committed_to: datetime | None = None
    metric: str | None = None
    metric_from: float | None = None
    metric_to: float | None = None

    def __post_init__(self) -> None:
        for name in ("step", "committed", "metric"):
            first, last = getattr(self, f"{name}_from"), getattr(self, f"{name}_to")
            for end, value in (("from", first), ("to", last)):
                reason = None if value is None else _unusable(value)
                if reason is not None:
                    raise errors.InvalidInput(where=f"{name}_{end}", reason=reason)
            if name == "metric" and self.metric is None and (first, last) != (None, None):
                raise errors.InvalidInput(where="metric", reason="say of which metric")
            if first is not None and last is not None and first > last:
                raise errors.InvalidInput(
                    where=f"{name}_from",
                    reason=f"{first} is after the end, {last}: none can match",
                )

    def to_json(self) -> dict[str, Any]:
        """What restricts, as JSON: instants in UTC."""
        return {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
            if value is not None
        }


def _unusable(value: float | datetime) -> str | None:
    """Why nothing can be compared with the end of a range."""
    if isinstance(value, datetime):
        return None if value.tzinfo is not None else "give the instant with its zone"
    if isinstance(value, int):
        return None if abs(value) <= _MAX_STEP else f"it is beyond {_MAX_STEP}"
    return None if math.isfinite(value) else f"{value} is no number to compare with"


@dataclass(frozen=True, slots=True)
class NewHold:
    """A hold to be placed. `expires_at` is UTC; None: until it is released."""

    kind: Kind
    owner: str
    reason: str
    placed_by: str
    expires_at: datetime | None = None
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as it was recorded. `checkpoints` counts what it has taken so far."""

    hold_id: UUID
    project: str
    kind: Kind
    owner: str
    reason: str
    selector: Mapping[str, Any] | None
    expires_at: datetime | None
    placed_by: str
    recorded_at: datetime
    released_by: str | None
    released_because: str | None
    released_at: datetime | None
    checkpoints: int


_SELECT = """
    SELECT h.hold_id, h.project, h.kind, h.owner, h.reason, h.selector, h.expires_at, h.placed_by,
           h.recorded_at, r.released_by, r.because AS released_because,
           r.recorded_at AS released_at,
           (SELECT count(*) FROM hold_checkpoints c WHERE c.hold_id = h.hold_id) AS checkpoints
      FROM holds h LEFT JOIN hold_releases r USING (hold_id)
"""

STANDING = """(r.hold_id IS NULL AND (h.expires_at IS NULL OR h.expires_at > catalog_clock()))"""

# The one meaning of a selector: over holds `h`, checkpoints `k` and their stages `s`.
_SELECTED = """
    (h.selector->>'workload' IS NULL OR h.selector->>'workload' = s.workload)
    AND (h.selector->>'stage' IS NULL OR h.selector->>'stage' = s.stage)
    AND (h.selector->>'step_from' IS NULL OR k.step >= (h.selector->>'step_from')::bigint)
    AND (h.selector->>'step_to' IS NULL OR k.step <= (h.selector->>'step_to')::bigint)
    AND (h.selector->>'committed_from' IS NULL
         OR k.recorded_at >= (h.selector->>'committed_from')::timestamptz)
    AND (h.selector->>'committed_to' IS NULL
         OR k.recorded_at <= (h.selector->>'committed_to')::timestamptz)
    AND (h.selector->>'metric' IS NULL OR jsonb_exists(k.metrics, h.selector->>'metric'))
    AND (h.selector->>'metric_from' IS NULL
         OR (k.metrics->>(h.selector->>'metric'))::float8 >= (h.selector->>'metric_from')::float8)
    AND (h.selector->>'metric_to' IS NULL
         OR (k.metrics->>(h.selector->>'metric'))::float8 <= (h.selector->>'metric_to')::float8)
"""


def record(tx: Transaction, project: str, hold: NewHold) -> UUID:
    """Record a hold that takes nothing yet. The project's lock is held: exclusively for a selector,
    so that no commit and no deletion is decided between this and what the selector takes."""
    row = tx.execute(
        """
        INSERT INTO holds (hold_id, project, kind, owner, reason, selector, expires_at, placed_by,
                           recorded_at)
        SELECT %(hold_id)s, project, %(kind)s, %(owner)s, %(reason)s, %(selector)s, %(expires_at)s,
               %(placed_by)s, %(recorded_at)s
          FROM projects WHERE project = %(project)s
        RETURNING hold_id
        """,
        {
            "hold_id": uuid4(),
            "project": project,
            "kind": hold.kind,
            "owner": hold.owner,
            "reason": hold.reason,
            "selector": None if hold.selector is None else Jsonb(hold.selector.to_json()),
            "expires_at": hold.expires_at,
            "placed_by": hold.placed_by,
            "recorded_at": (history.close if hold.selector else history.next_instant)(tx, project),
        },
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="project", name=project)
    hold_id: UUID = row["hold_id"]
    return hold_id


def selected(tx: Transaction, project: str, hold_id: UUID) -> dict[int, list[int]]:
    """What a selector's hold takes now: checkpoint ids by stage id. Only checkpoints of which
    a copy can still be kept."""
    rows = tx.execute(
        f"""
        SELECT k.stage_id, array_agg(k.checkpoint_id ORDER BY k.generation, k.sequence) AS ids
          FROM holds h
          JOIN checkpoints k ON k.project = h.project
          JOIN stages s ON s.stage_id = k.stage_id
         WHERE h.project = %s AND h.hold_id = %s AND {_SELECTED}
           AND EXISTS (SELECT 1 FROM copies c WHERE c.checkpoint_id = k.checkpoint_id
                          AND c.state IN ('present', 'quarantined'))
         GROUP BY k.stage_id ORDER BY k.stage_id
        """,
        (project, hold_id),
    )
    return {row["stage_id"]: row["ids"] for row in rows}


def unknown_name(tx: Transaction, project: str, selector: Selector) -> str | None:
    """The workload or stage of a selector that the project has not, in words: it may be mistyped,
    or not opened yet."""
    for column, name in (("workload", selector.workload), ("stage", selector.stage)):
        if name is None:
            continue
        known = tx.execute(
            f"SELECT {column} AS name FROM stages WHERE project = %s GROUP BY 1 ORDER BY 1",
            (project,),
        ).fetchall()
        names = [row["name"] for row in known]
        if name not in names:
            alike = get_close_matches(name, names, n=1)
            hint = f"; did you mean {alike[0]!r}?" if alike else ""
            return f"project {project} has no {column} {name!r}{hint}"
    return None


def take(
    tx: Transaction, hold_id: UUID, stage_id: int, checkpoint_ids: Sequence[int], *, actor: str
) -> history.Event:
    """Let a hold take checkpoints of one stage, whose row this transaction has locked."""
    event = history.record(
        tx,
        stage_id,
        "held",
        actor=actor,
        facts={"hold_id": str(hold_id), "checkpoint_ids": list(checkpoint_ids)},
    )
    _take(tx, event, [(hold_id, checkpoint_id) for checkpoint_id in checkpoint_ids])
    return event


def apply_standing_selectors(tx: Transaction, checkpoint_id: int) -> list[UUID]:
    """Let every standing hold with a selector take a checkpoint that this transaction commits.

    The commit holds the project's lock shared and the stage's row, so a hold by selector is placed
    either before (and found here) or after (and finds the checkpoint).
    """
    rows = tx.execute(
        f"""
        INSERT INTO hold_checkpoints (hold_id, checkpoint_id, project, stage_id, recorded_at)
        SELECT h.hold_id, k.checkpoint_id, k.project, k.stage_id, k.recorded_at
          FROM checkpoints k
          JOIN stages s ON s.stage_id = k.stage_id
          JOIN holds h ON h.project = k.project AND h.selector IS NOT NULL
          LEFT JOIN hold_releases r USING (hold_id)
         WHERE k.checkpoint_id = %s AND {STANDING} AND {_SELECTED}
        ON CONFLICT DO NOTHING
        RETURNING hold_id
        """,
        (checkpoint_id,),
    ).fetchall()
    return [row["hold_id"] for row in rows]


def release(
    tx: Transaction, hold: Hold, *, released_by: str, because: str, actor: str
) -> list[history.Event]:
    """End a hold whose stages (`stages_of`) this transaction has locked; one event for each of
    them. One by selector is over the project: its lock is held exclusively. Raises Conflict if it
    was released before."""
    if hold.released_at is not None:
        raise errors.Conflict(
            reason=f"hold {hold.hold_id} was released by {hold.released_by} at"
            f" {instant_text(hold.released_at)}"
        )
    facts = {"hold_id": str(hold.hold_id), "because": because}
    events = [
        history.record(tx, stage_id, "hold-released", actor=actor, facts=facts)
        for stage_id in stages_of(tx, hold.project, hold.hold_id)
    ]
    tx.execute(
        "INSERT INTO hold_releases (hold_id, project, released_by, because, recorded_at)"
        " VALUES (%s, %s, %s, %s, %s)",
        (
            hold.hold_id,
            hold.project,
            released_by,
            because,
            history.close(tx, hold.project)
            if hold.selector is not None or not events
            else max(event.recorded_at for event in events),
        ),
    )
    return events


def get(tx: Transaction, project: str, hold_id: UUID) -> Hold:
    """Raises NotFound if the project has no such hold."""
    row = tx.execute(
        _SELECT + " WHERE h.project = %s AND h.hold_id = %s", (project, hold_id)
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="hold", name=str(hold_id))
    return Hold(**row)


def project_of(tx: Transaction, hold_id: UUID) -> str:
    """Whose hold it is. Raises NotFound."""
    row = tx.execute("SELECT project FROM holds WHERE hold_id = %s", (hold_id,)).fetchone()
    if row is None:
        raise errors.NotFound(what="hold", name=str(hold_id))
    project: str = row["project"]
    return project


def standing(tx: Transaction, project: str) -> list[Hold]:
    """The holds of a project that are neither released nor expired, oldest first."""
    rows = tx.execute(
        _SELECT + f" WHERE h.project = %s AND {STANDING} ORDER BY h.recorded_at, h.hold_id",
        (project,),
    )
    return [Hold(**row) for row in rows]


def everything(tx: Transaction, project: str) -> list[Hold]:
    """Every hold that a project ever had, oldest first."""
    rows = tx.execute(
        _SELECT + " WHERE h.project = %s ORDER BY h.recorded_at, h.hold_id", (project,)
    )
    return [Hold(**row) for row in rows]


def stages_of(tx: Transaction, project: str, hold_id: UUID) -> list[int]:
    """The stages in which a hold has taken checkpoints."""
    rows = tx.execute(
        "SELECT DISTINCT stage_id FROM hold_checkpoints WHERE project = %s AND hold_id = %s"
        " ORDER BY stage_id",
        (project, hold_id),
    )
    return [row["stage_id"] for row in rows]


def on_checkpoint(tx: Transaction, project: str, checkpoint_id: int) -> list[Hold]:
    """The standing holds that have taken a checkpoint."""
    rows = tx.execute(
        _SELECT
        + f""" JOIN hold_checkpoints hc USING (hold_id)
               WHERE h.project = %s AND hc.checkpoint_id = %s AND {STANDING}
               ORDER BY h.recorded_at, h.hold_id""",
        (project, checkpoint_id),
    )
    return [Hold(**row) for row in rows]


def _take(tx: Transaction, event: history.Event, taken: Iterable[tuple[UUID, int]]) -> None:
    tx.executemany(
        """
        INSERT INTO hold_checkpoints (hold_id, checkpoint_id, project, stage_id, recorded_at)
        VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        [(*one, event.project, event.stage_id, event.recorded_at) for one in taken],
    )
