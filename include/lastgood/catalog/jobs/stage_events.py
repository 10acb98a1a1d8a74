"""What happened to each stage up to an instant, as `rules.timeline` reads it: from the same rows as
`stage_history`, but all of them once instead of their sum as of one instant.

Stages come in the order of names, some hundred at a time: memory is that of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any

from psycopg.rows import tuple_row

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import damage_events
from lastgood.rules.names import ManifestDigest, StageId
from lastgood.rules.retention_rules import Candidate, Level, ReceiptVerdict
from lastgood.rules.timeline_events import (
    Committed,
    Ended,
    Event,
    Moved,
    Needed,
    Pressed,
    Received,
    Referred,
    Writing,
)

_STAGES_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class StageEvents:
    """A stage with everything that happened to it, in the order of time."""

    stage_id: int
    stage: StageId
    events: Sequence[Event]


_STAGES = """
    SELECT stage_id, workload, stage FROM stages WHERE project = %(project)s
     ORDER BY workload COLLATE "C", stage COLLATE "C"
"""
_COMMITTED = """
    SELECT k.stage_id, c.recorded_at, c.copy_id, k.total_bytes + c.control_bytes, k.generation,
           k.sequence, k.step, k.recorded_at, k.manifest, k.total_bytes, nullif(k.metrics, '{}'),
           k.resumed_from_generation, k.resumed_from_sequence
      FROM checkpoints k JOIN copies c USING (checkpoint_id)
     WHERE k.stage_id = ANY(%(stages)s) AND k.recorded_at <= %(until)s
       AND c.recorded_at <= %(until)s
     ORDER BY c.recorded_at, c.copy_id
"""
_MOVED = """
    SELECT stage_id, recorded_at, copy_id, to_state FROM copy_transitions
     WHERE stage_id = ANY(%(stages)s) AND recorded_at <= %(until)s AND number > 1
     ORDER BY recorded_at, copy_id, number
"""
_RECEIVED = """
    SELECT stage_id, recorded_at, copy_id, level, verdict FROM receipts
     WHERE stage_id = ANY(%(stages)s) AND recorded_at <= %(until)s ORDER BY stage_id, number
"""
_HELD = """
    SELECT c.stage_id, 'hold', k.generation, k.sequence, h.hold_id::text, c.recorded_at,
           least(r.recorded_at, h.expires_at)
      FROM hold_checkpoints c
      JOIN holds h USING (hold_id)
      JOIN checkpoints k USING (checkpoint_id)
      LEFT JOIN hold_releases r USING (hold_id)
     WHERE c.stage_id = ANY(%(stages)s) AND c.recorded_at <= %(until)s
    UNION ALL
    SELECT l.stage_id, 'reader', k.generation, k.sequence, l.lease_id::text, l.recorded_at,
           e.recorded_at
      FROM reader_leases l
      JOIN checkpoints k USING (checkpoint_id)
      LEFT JOIN reader_ends e USING (lease_id)
     WHERE l.stage_id = ANY(%(stages)s) AND l.recorded_at <= %(until)s
"""
_WRITING = """
    SELECT g.stage_id, g.generation, g.resumed_from_generation, g.resumed_from_sequence,
           g.recorded_at, (SELECT min(e.recorded_at) FROM generation_ends e
                            WHERE e.stage_id = g.stage_id AND e.generation = g.generation)
      FROM generations g
     WHERE g.stage_id = ANY(%(stages)s) AND g.recorded_at <= %(until)s
"""
_DEPENDS = """
    SELECT DISTINCT d.manifest, d.depends_on
      FROM checkpoints k JOIN dependencies d ON d.project = k.project AND d.manifest = k.manifest
     WHERE k.stage_id = ANY(%(stages)s) AND k.recorded_at <= %(until)s
     ORDER BY d.manifest, d.depends_on
"""
_NEEDED = """
    SELECT DISTINCT k.stage_id, d.depends_on, o.manifest, t.copy_id, t.recorded_at, t.number,
           t.to_state
      FROM checkpoints k
      JOIN dependencies d ON d.project = k.project AND d.depends_on = k.manifest
      JOIN checkpoints o ON o.project = d.project AND o.manifest = d.manifest
                        AND o.stage_id <> k.stage_id
      JOIN copies c ON c.checkpoint_id = o.checkpoint_id
      JOIN copy_transitions t ON t.copy_id = c.copy_id
     WHERE k.stage_id = ANY(%(stages)s) AND t.recorded_at <= %(until)s
       AND o.recorded_at <= %(until)s
     ORDER BY t.recorded_at, t.copy_id, t.number
"""
_ENDED = """
    SELECT s.stage_id, r.retirement_id::text,
           coalesce(a.recorded_at, CASE WHEN NOT r.approve THEN r.recorded_at END)
             + make_interval(secs => r.grace_seconds), u.recorded_at
      FROM retirements r
      JOIN stages s ON s.project = r.project
                   AND s.workload = coalesce(r.workload, s.workload)
                   AND s.stage = coalesce(r.stage, s.stage)
      LEFT JOIN retirement_approvals a USING (retirement_id)
      LEFT JOIN retirement_undos u USING (retirement_id)
     WHERE s.stage_id = ANY(%(stages)s) AND r.recorded_at <= %(until)s
"""
_PRESSED = """
    SELECT recorded_at, store, state FROM capacity_states
     WHERE project = %(project)s AND recorded_at <= %(until)s ORDER BY recorded_at, number
"""


def of_project(tx: Transaction, project: str, until: datetime) -> Iterator[StageEvents]:
    """Every stage that has commits, with all of its events up to an instant that has passed. What
    is read stays the same only if nothing can be recorded at or before it any more (see
    `marks.close_past`)."""
    pressed = _pressed(tx, project, until)
    based = damage_events.of_project(tx, project, until)
    stages = iter(_rows(tx, _STAGES, {"project": project}))
    while chunk := list(islice(stages, _STAGES_AT_ONCE)):
        found = _of_stages(tx, [row[0] for row in chunk], until)
        for stage_id, workload, stage in chunk:
            events = found.pop(stage_id, [])
            manifests = {one.candidate.manifest for one in events if isinstance(one, Committed)}
            if manifests:
                events += pressed
                for manifest in manifests & based.keys():
                    events += based[manifest]
                events.sort(key=attrgetter("at"))  # of one instant, in the order of `_of_stages`
                yield StageEvents(stage_id, StageId.of(project, workload, stage), events)


def _rows(tx: Transaction, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with tx.connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query, values, binary=True).fetchall()


def _of_stages(tx: Transaction, stages: list[int], until: datetime) -> dict[int, list[Event]]:
    values = {"stages": stages, "until": until}
    events: dict[int, list[Event]] = defaultdict(list)
    for stage_id, generation, origin, sequence, at, end in _rows(tx, _WRITING, values):
        resumed_from = None if origin is None else (origin, sequence)
        events[stage_id].append(Writing(at, generation, resumed_from, stands=True))
        if end is not None and end <= until:
            events[stage_id].append(Writing(end, generation, resumed_from, stands=False))
    _add_commits(tx, values, events)
    for stage_id, at, copy_id, state in _rows(tx, _MOVED, values):
        events[stage_id].append(Moved(at, copy_id, state))
    for stage_id, at, copy_id, level, verdict in _rows(tx, _RECEIVED, values):
        events[stage_id].append(Received(at, copy_id, _LEVELS[level], _VERDICTS[verdict]))
    for stage_id, kind, generation, sequence, name, at, end in _rows(tx, _HELD, values):
        position = (generation, sequence)
        if end is None or end > at:
            events[stage_id].append(Referred(at, kind, position, name, stands=True))
            if end is not None and end <= until:
                events[stage_id].append(Referred(end, kind, position, name, stands=False))
    for stage_id, name, at, undone in _rows(tx, _ENDED, values):
        if at is not None and at <= until and (undone is None or undone > at):
            events[stage_id].append(Ended(at, name, stands=True))
            if undone is not None and undone <= until:
                events[stage_id].append(Ended(undone, name, stands=False))
    _add_needed(tx, values, events)
    return events


_LEVELS = {level.value: level for level in Level}
_VERDICTS = {verdict.value: verdict for verdict in ReceiptVerdict}
_NONE: Mapping[str, int | float] = {}


def _add_commits(
    tx: Transaction, values: Mapping[str, Any], events: dict[int, list[Event]]
) -> None:
    needs: dict[ManifestDigest, list[ManifestDigest]] = defaultdict(list)
    for manifest, depends_on in _rows(tx, _DEPENDS, values):
        needs[manifest].append(depends_on)
    for row in _rows(tx, _COMMITTED, values):
        stage_id, at, copy_id, stored, generation, sequence, step, committed_at, *rest = row
        manifest, size, metrics, origin, origin_sequence = rest
        candidate = Candidate(
            generation, sequence, step, committed_at, manifest, size, metrics or _NONE
        )
        resumed_from = None if origin is None else (origin, origin_sequence)
        events[stage_id].append(
            Committed(at, copy_id, stored, candidate, resumed_from, needs.get(manifest, ()))
        )


def _add_needed(tx: Transaction, values: Mapping[str, Any], events: dict[int, list[Event]]) -> None:
    """A manifest lives while one of its copies does."""
    living: dict[tuple[int, str, str], set[int]] = defaultdict(set)
    for stage_id, needed, dependent, copy_id, at, _, state in _rows(tx, _NEEDED, values):
        copies = living[stage_id, needed, dependent]
        lived = bool(copies)
        (copies.add if state in ("present", "quarantined") else copies.discard)(copy_id)
        if bool(copies) != lived:
            events[stage_id].append(Needed(at, needed, dependent, stands=not lived))


def _pressed(tx: Transaction, project: str, until: datetime) -> list[Event]:
    """Since when the project did not stand open in one of its stores, whenever that changed."""
    since: dict[str, datetime] = {}
    found: list[Event] = []
    for at, store, state in _rows(tx, _PRESSED, {"project": project, "until": until}):
        before = min(since.values(), default=None)
        if state == "open":
            since.pop(store, None)
        else:
            since.setdefault(store, at)
        now = min(since.values(), default=None)
        if now != before:
            found.append(Pressed(at, now))
    return found
