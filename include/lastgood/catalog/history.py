"""The order of history: what happened to a stage, numbered and timed under its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded change of a stage."""

    stage_id: int
    project: str
    number: int
    kind: str
    recorded_at: datetime
    actor: str


def record(
    tx: Transaction, stage_id: int, kind: str, *, actor: str, facts: Mapping[str, object]
) -> Event:
    """Append an event to a stage whose row this transaction has locked, and put it into the outbox.

    `recorded_at` is later than the stage's last event and the project's last mark, or another
    decision over the project (see `close`), although the clock may stand or step back: nothing can
    appear at or before an instant that a mark has judged.
    Rows written for the same change take the event's `recorded_at`.
    """
    tx.execute(
        """
        WITH moved AS (
          UPDATE stages AS s
             SET last_event = s.last_event + 1,
                 last_recorded_at = greatest(catalog_clock(),
                                             s.last_recorded_at + interval '1 microsecond',
                                             p.last_mark_at + interval '1 microsecond')
            FROM projects AS p
           WHERE s.stage_id = %(stage_id)s AND p.project = s.project
          RETURNING s.stage_id, s.project, s.last_event AS number, s.last_recorded_at AS recorded_at
        ), appended AS (
          INSERT INTO events (stage_id, number, project, kind, recorded_at, actor, facts)
          SELECT stage_id, number, project, %(kind)s, recorded_at, %(actor)s, %(facts)s FROM moved
          RETURNING stage_id, project, number, kind, recorded_at, actor
        ), queued AS (
          INSERT INTO outbox (project, stage_id, number, kind)
          SELECT project, stage_id, number, kind FROM appended
        )
        SELECT stage_id, project, number, kind, recorded_at, actor FROM appended
        """,
        {"stage_id": stage_id, "kind": kind, "actor": actor, "facts": Jsonb(dict(facts))},
    )
    row = tx.fetchone()
    assert row is not None, f"stage {stage_id} is locked by the caller, so it exists"
    return Event(**row)


def now(tx: Transaction) -> datetime:
    """The catalog's clock, this instant: by it, and never sooner, runs out what protects for a time
    (a lease, a grace, a hold's `expires_at`)."""
    row = tx.execute("SELECT catalog_clock() AS now").fetchone()
    assert row is not None
    instant: datetime = row["now"]
    return instant


# What a project's history has at its end, whichever table it lies in. Every decision asks for it,
# so each long table answers from the end of an index; for the stages their events do.
_RECORDED = """
        SELECT max(recorded_at) AS at FROM events WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM holds WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM hold_releases WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM retirements WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM retirement_approvals WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM retirement_undos WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM policy_versions WHERE project = %(project)s
        UNION ALL SELECT max(recorded_at) FROM capacity_states WHERE project = %(project)s"""
_LAST_RECORDED = f"""(
    SELECT max(at) FROM (
        SELECT last_mark_at AS at FROM projects WHERE project = %(project)s
        UNION ALL {_RECORDED.lstrip()}
    ) AS recorded)"""
PROJECT_NOW = f"SELECT greatest(catalog_clock(), {_LAST_RECORDED}) AS now"


def project_now(tx: Transaction, project: str) -> datetime:
    """The project's now: the catalog's clock, but never before anything recorded of the project.

    What is decided over a project is decided as of this instant, so that a decision knows all of
    its history, although the clock may have stepped back behind it.
    """
    row = tx.execute(PROJECT_NOW, {"project": project}).fetchone()
    assert row is not None
    instant: datetime = row["now"]
    return instant


def is_recorded_after(tx: Transaction, project: str, at: datetime) -> bool:
    """Whether anything of the project was recorded after an instant; that a decision was taken
    counts for nothing."""
    row = tx.execute(
        f"SELECT coalesce(max(at) > %(at)s, false) AS found FROM ({_RECORDED}) AS recorded",
        {"project": project, "at": at},
    ).fetchone()
    assert row is not None
    found: bool = row["found"]
    return found


def next_instant(tx: Transaction, project: str) -> datetime:
    """An instant later than everything recorded of the project: for what is recorded beside its
    stages."""
    row = tx.execute(
        f"SELECT greatest(catalog_clock(), {_LAST_RECORDED} + interval '1 microsecond') AS next",
        {"project": project},
    ).fetchone()
    assert row is not None
    instant: datetime = row["next"]
    return instant


def close(tx: Transaction, project: str) -> datetime:
    """The same, and nothing can be recorded at or before it any more: for a decision over the
    project, whose lock is held exclusively. Raises NotFound."""
    row = tx.execute(
        "UPDATE projects SET last_mark_at = %s WHERE project = %s RETURNING last_mark_at",
        (next_instant(tx, project), project),
    ).fetchone()
    if row is None:
        raise NotFound(what="project", name=project)
    instant: datetime = row["last_mark_at"]
    return instant
