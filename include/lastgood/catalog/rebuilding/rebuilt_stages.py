"""Stages as a rebuild reads them back: their rows, their numbers, and a generation that fences."""

from __future__ import annotations

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import generations, stages
from lastgood.catalog.jobs.stages import UNKNOWN_CLASS, Stage
from lastgood.catalog.rebuilding.rebuilds import ACTOR, Rebuild
from lastgood.rules.names import StageId


def open_locked(tx: Transaction, name: StageId, *, event: int, rebuild: Rebuild) -> Stage:
    """The stage, locked, its history going on above event `event`; opened if the catalog has lost
    it. A stage that the catalog knows keeps its kind and class."""
    tx.execute(
        """
        INSERT INTO stages (project, workload, stage, kind, class, last_event)
             VALUES (%s, %s, %s, 'checkpointed', %s, %s)
        ON CONFLICT DO NOTHING
        """,
        (name.project, name.workload, name.stage, UNKNOWN_CLASS, event),
    )
    opened = tx.rowcount == 1
    stage = stages.find_locked(tx, name)
    tx.execute(
        "UPDATE stages SET last_event = greatest(last_event, %s) WHERE stage_id = %s",
        (event, stage.stage_id),
    )
    if opened:
        facts = {
            "kind": stage.kind,
            "class": stage.workload_class,
            "incarnation": rebuild.incarnation,
        }
        history.record(tx, stage.stage_id, "stage-opened", actor=ACTOR, facts=facts)
    return stage


def ensure_generation(tx: Transaction, stage: Stage, number: int, *, rebuild: Rebuild) -> None:
    """A row for a generation of which the store has a checkpoint. Who held it is lost; it is
    fenced, so that nothing of it writes again."""
    known = tx.execute(
        "SELECT 1 FROM generations WHERE stage_id = %s AND generation = %s",
        (stage.stage_id, number),
    ).fetchone()
    if known is None:
        _record(tx, stage, number, rebuild)


def fence_all(tx: Transaction, stage: Stage, highest: int, *, rebuild: Rebuild) -> int:
    """Begin the generation after the highest that the stores and the catalog know, and end it: no
    writer of before can go on. Answers its number; repeating it is a no-op."""
    known = generations.by_idempotency_key(tx, stage, _newest_key(rebuild))
    if known is not None:
        return known.generation
    reason = f"the catalog was rebuilt: incarnation {rebuild.incarnation}"
    generations.fence_earlier(tx, stage, actor=ACTOR, reason=reason)
    number = max(highest, stage.generation) + 1
    _record(tx, stage, number, rebuild, key=_newest_key(rebuild))
    return number


def _newest_key(rebuild: Rebuild) -> str:
    return f"rebuild {rebuild.rebuild_id}"


def _record(
    tx: Transaction, stage: Stage, number: int, rebuild: Rebuild, *, key: str | None = None
) -> None:
    event = history.record(
        tx,
        stage.stage_id,
        "acquired",
        actor=ACTOR,
        facts={"generation": number, "incarnation": rebuild.incarnation},
    )
    tx.execute(
        """
        INSERT INTO generations (stage_id, generation, project, idempotency_key, holder, fresh,
                                 recorded_at)
             VALUES (%s, %s, %s, %s, 'rebuild', false, %s)
        """,
        (
            stage.stage_id,
            number,
            stage.project,
            key or f"{_newest_key(rebuild)} {number}",
            event.recorded_at,
        ),
    )
    tx.execute(
        "INSERT INTO generation_leases (stage_id, generation, project, expires_at)"
        " VALUES (%s, %s, %s, %s)",
        (stage.stage_id, number, stage.project, event.recorded_at),
    )
    tx.execute(
        "UPDATE stages SET generation = greatest(generation, %s) WHERE stage_id = %s",
        (number, stage.stage_id),
    )
    reason = f"the catalog was rebuilt: incarnation {rebuild.incarnation}"
    generations.fence(tx, stage, number, actor=ACTOR, reason=reason)
