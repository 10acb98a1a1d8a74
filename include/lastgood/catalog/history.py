"""The order of history: what happened to a stage, numbered and timed under its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction


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

    `recorded_at` is later than the stage's last event and the project's last mark, although the
    clock may stand or step back: nothing can appear at or before an instant that a mark has judged.
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
    """The catalog's clock, this instant."""
    row = tx.execute("SELECT catalog_clock() AS now").fetchone()
    assert row is not None
    instant: datetime = row["now"]
    return instant
