"""A stage's history as of an instant: what retention decides over.

It has the checkpoints of which a copy still exists, present or in quarantine: the others are no
matter of retention any more, and so the work grows with what is kept, not with what ever was.
Everything comes from append-only rows with `recorded_at <= as_of`, so that the same instant
always reads the same history. One query answers for a project, stage by stage, or for one stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol, cast

from psycopg.rows import namedtuple_row

from lastgood.catalog.capacity import capacity_states
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import dependencies
from lastgood.catalog.keeping import retirements
from lastgood.catalog.keeping.retirements import Retirement
from lastgood.rules.decision import StageFacts
from lastgood.rules.names import ManifestDigest, StageId
from lastgood.rules.retention_rules import (
    Candidate,
    Level,
    Position,
    ReceiptVerdict,
)

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class StageHistory:
    """One stage as of an instant. `copies` has the id and the stored bytes of each existing
    copy of a checkpoint, `checkpoint_ids` the id of the checkpoint; `retirement` is the one by
    which the stage had reached its end of life."""

    stage_id: int
    stage: StageId
    history: tuple[Candidate, ...]
    facts: StageFacts
    copies: Mapping[Position, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    checkpoint_ids: Mapping[Position, int] = field(default_factory=dict)
    retirement: Retirement | None = None

    def retired(self, by: Retirement | None) -> StageHistory:
        """The same, with its end of life if it has reached it."""
        if by is None:
            return self
        return replace(self, facts=replace(self.facts, retired=True), retirement=by)

    def pressed(self, since: datetime | None) -> StageHistory:
        """The same, with the instant since when the project stands above soft, if it does."""
        return (
            self if since is None else replace(self, facts=replace(self.facts, pressed_since=since))
        )


# A table that was filled since it was last analysed must not look empty to the planner.
FOR_ALL_ROWS = """
    SET LOCAL enable_nestloop = off;
    SET LOCAL work_mem = '64MB'
"""

# A statement prepared once for both uses could serve neither well: it is planned for its values.
QUERY = """
    WITH states AS (
      SELECT DISTINCT ON (copy_id) copy_id, to_state
        FROM copy_transitions
       WHERE project = %(project)s AND recorded_at <= %(as_of)s
         AND (%(stage_id)s::bigint IS NULL OR stage_id = %(stage_id)s)
       ORDER BY copy_id, number DESC
    ), judged AS (   -- inconclusive proves nothing: it stands only where nothing else was said
      SELECT DISTINCT ON (copy_id, level) copy_id, level, verdict
        FROM receipts
       WHERE project = %(project)s AND recorded_at <= %(as_of)s
         AND (%(stage_id)s::bigint IS NULL OR stage_id = %(stage_id)s)
       ORDER BY copy_id, level, (verdict = 'inconclusive'), number DESC
    ), verdicts AS (
      SELECT copy_id, max(verdict) FILTER (WHERE level = 'checksum') AS checksum,
             max(verdict) FILTER (WHERE level = 'format') AS format,
             max(verdict) FILTER (WHERE level = 'restore') AS restore
        FROM judged GROUP BY copy_id
    ), newest AS (
      SELECT DISTINCT ON (copy_id) copy_id, verdict = 'fail' AS failed
        FROM receipts
       WHERE project = %(project)s AND recorded_at <= %(as_of)s AND verdict <> 'inconclusive'
         AND (%(stage_id)s::bigint IS NULL OR stage_id = %(stage_id)s)
       ORDER BY copy_id, number DESC
    ), held AS (
      SELECT c.checkpoint_id, array_agg(h.hold_id::text ORDER BY h.hold_id) AS holds
        FROM hold_checkpoints c
        JOIN holds h USING (hold_id)
        LEFT JOIN hold_releases r ON r.hold_id = h.hold_id AND r.recorded_at <= %(as_of)s
       WHERE c.project = %(project)s AND c.recorded_at <= %(as_of)s AND r.hold_id IS NULL
         AND (h.expires_at IS NULL OR h.expires_at > %(as_of)s)
         AND (%(stage_id)s::bigint IS NULL OR c.stage_id = %(stage_id)s)
       GROUP BY c.checkpoint_id
    ), read AS (
      SELECT l.checkpoint_id, array_agg(l.lease_id::text ORDER BY l.lease_id) AS readers
        FROM reader_leases l
        LEFT JOIN reader_ends e ON e.lease_id = l.lease_id AND e.recorded_at <= %(as_of)s
       WHERE l.project = %(project)s AND l.recorded_at <= %(as_of)s AND e.lease_id IS NULL
         AND (%(stage_id)s::bigint IS NULL OR l.stage_id = %(stage_id)s)
       GROUP BY l.checkpoint_id
    ), writing AS (
      SELECT g.stage_id, g.generation, g.resumed_from_generation, g.resumed_from_sequence
        FROM generations g
       WHERE g.project = %(project)s AND g.recorded_at <= %(as_of)s
         AND (%(stage_id)s::bigint IS NULL OR g.stage_id = %(stage_id)s)
         AND NOT EXISTS (SELECT 1 FROM generation_ends e
                          WHERE e.stage_id = g.stage_id AND e.generation = g.generation
                            AND e.recorded_at <= %(as_of)s)
    ), referred AS (
      SELECT stage_id, resumed_from_generation AS generation, resumed_from_sequence AS sequence,
             generation AS writer
        FROM writing WHERE resumed_from_generation IS NOT NULL
       UNION
      SELECT k.stage_id, k.generation, max(k.sequence), k.generation
        FROM checkpoints k JOIN writing w USING (stage_id, generation)
       WHERE k.recorded_at <= %(as_of)s GROUP BY k.stage_id, k.generation
    ), active AS (
      SELECT stage_id, generation, sequence,
             array_agg('generation ' || writer ORDER BY writer) AS writers
        FROM referred GROUP BY stage_id, generation, sequence
    ), needs AS (
      SELECT manifest, array_agg(depends_on ORDER BY depends_on) AS depends_on
        FROM dependencies WHERE project = %(project)s GROUP BY manifest
    ), live AS (            -- manifests of which a copy still exists, with what they need
      SELECT d.depends_on, k.stage_id, k.manifest
        FROM dependencies d
        JOIN checkpoints k ON k.project = d.project AND k.manifest = d.manifest
       WHERE d.project = %(project)s AND k.recorded_at <= %(as_of)s
         AND EXISTS (SELECT 1 FROM copies c
                      WHERE c.checkpoint_id = k.checkpoint_id
                        AND (SELECT t.to_state FROM copy_transitions t
                              WHERE t.copy_id = c.copy_id AND t.recorded_at <= %(as_of)s
                              ORDER BY t.number DESC LIMIT 1) IN ('present', 'quarantined'))
    ), elsewhere AS (
      SELECT k.checkpoint_id, array_agg(DISTINCT l.manifest ORDER BY l.manifest) AS dependents
        FROM checkpoints k
        JOIN live l ON l.depends_on = k.manifest AND l.stage_id <> k.stage_id
       WHERE k.project = %(project)s GROUP BY k.checkpoint_id
    )
    SELECT k.stage_id, s.workload, s.stage, k.generation, k.sequence, k.checkpoint_id, k.step,
           k.recorded_at, k.manifest, k.total_bytes, nullif(k.metrics, '{}') AS metrics,
           k.resumed_from_generation, k.resumed_from_sequence, c.copy_id, c.control_bytes,
           st.to_state, v.checksum, v.format, v.restore, n.failed, h.holds, r.readers, a.writers,
           d.depends_on, e.dependents
      FROM checkpoints k
      JOIN stages s ON s.stage_id = k.stage_id
      JOIN copies c USING (checkpoint_id)
      JOIN states st USING (copy_id)
      LEFT JOIN verdicts v USING (copy_id)
      LEFT JOIN newest n USING (copy_id)
      LEFT JOIN held h USING (checkpoint_id)
      LEFT JOIN read r USING (checkpoint_id)
      LEFT JOIN active a ON a.stage_id = k.stage_id AND a.generation = k.generation
                        AND a.sequence = k.sequence
      LEFT JOIN needs d ON d.manifest = k.manifest
      LEFT JOIN elsewhere e USING (checkpoint_id)
     WHERE k.project = %(project)s AND k.recorded_at <= %(as_of)s
       AND st.to_state IN ('present', 'quarantined')
       AND (%(stage_id)s::bigint IS NULL OR k.stage_id = %(stage_id)s)
     ORDER BY s.workload COLLATE "C", s.stage COLLATE "C", k.generation, k.sequence, c.copy_id
"""


class Row(Protocol):
    """One copy with its checkpoint, as the query tells it."""

    stage_id: int
    workload: str
    stage: str
    generation: int
    sequence: int
    checkpoint_id: int
    step: int
    recorded_at: datetime
    manifest: ManifestDigest
    total_bytes: int
    metrics: Mapping[str, int | float] | None
    resumed_from_generation: int | None
    resumed_from_sequence: int
    copy_id: int
    control_bytes: int
    to_state: str
    checksum: str | None
    format: str | None
    restore: str | None
    failed: bool | None
    holds: list[str] | None
    readers: list[str] | None
    writers: list[str] | None
    depends_on: list[ManifestDigest] | None
    dependents: list[str] | None


def rows_of(tx: Transaction, project: str, as_of: datetime) -> Iterator[Row]:
    """The rows of a project's history in the order of names. The server sends on while they are
    read, so read them to their end before the transaction does anything else."""
    tx.execute(FOR_ALL_ROWS)
    values = {"project": project, "as_of": as_of, "stage_id": None}
    with tx.connection.cursor(row_factory=namedtuple_row) as cursor:
        yield from cast(
            Iterator[Row], cursor.stream(QUERY, values, binary=True, size=_ROWS_AT_ONCE)
        )


def of_project(tx: Transaction, project: str, as_of: datetime) -> Iterator[StageHistory]:
    """Every stage of a project that has commits, in the order of names: memory is that of one. As
    with `rows_of`, the transaction does nothing else meanwhile."""
    retired = retirements.in_effect(tx, project, as_of)
    pressed = capacity_states.pressed_since(tx, project, as_of)
    damaged = dependencies.on_damage(tx, project, as_of)
    for stage_id, rows in groupby(rows_of(tx, project, as_of), key=attrgetter("stage_id")):
        yield _read_stage(project, rows, damaged).retired(retired.get(stage_id)).pressed(pressed)


def of_stage(tx: Transaction, project: str, stage_id: int, as_of: datetime) -> StageHistory | None:
    """One stage; None if it has no commits."""
    values = {"project": project, "as_of": as_of, "stage_id": stage_id}
    with tx.connection.cursor(row_factory=namedtuple_row) as cursor:
        rows = cast(list[Row], cursor.execute(QUERY, values).fetchall())
    if not rows:
        return None
    retired = retirements.in_effect(tx, project, as_of, stage_id)
    pressed = capacity_states.pressed_since(tx, project, as_of)
    damaged = dependencies.on_damage(tx, project, as_of, stage_id)
    return _read_stage(project, rows, damaged).retired(retired.get(stage_id)).pressed(pressed)


def _read_stage(project: str, rows: Iterable[Row], damaged: Collection[str]) -> StageHistory:
    """`damaged` are the manifests that depend on something that is not sound."""
    reading = _Reading(damaged)
    for row in rows:
        reading.add(row)
    reading.end()
    return StageHistory(
        row.stage_id,
        StageId.of(project, row.workload, row.stage),
        tuple(reading.history),
        StageFacts(
            holds=reading.holds,
            readers=reading.readers,
            active=reading.active,
            depends_on=reading.depends_on,
            needed_elsewhere=reading.needed_elsewhere,
            resumed_from=reading.resumed_from,
        ),
        reading.copies,
        reading.checkpoint_ids,
    )


class _Reading:
    """One stage in the making."""

    def __init__(self, damaged: Collection[str]) -> None:
        self._damaged = damaged
        self.history: list[Candidate] = []
        self.holds: dict[Position, list[str]] = {}
        self.readers: dict[Position, list[str]] = {}
        self.active: dict[Position, list[str]] = {}
        self.depends_on: dict[ManifestDigest, list[ManifestDigest]] = {}
        self.needed_elsewhere: dict[ManifestDigest, list[str]] = {}
        self.resumed_from: dict[Position, Position] = {}
        self.copies: dict[Position, tuple[tuple[int, int], ...]] = {}
        self.checkpoint_ids: dict[Position, int] = {}
        self._checkpoint: list[Row] = []  # the copies of the one that is being read

    def add(self, row: Row) -> None:
        """The next copy."""
        if self._checkpoint and self._checkpoint[0].checkpoint_id != row.checkpoint_id:
            self.end()
        self._checkpoint.append(row)

    def end(self) -> None:
        """A checkpoint has no further copy."""
        copies = self._checkpoint
        self._checkpoint = []
        row = copies[0] if len(copies) == 1 else min(copies, key=_usefulness)
        candidate = _candidate(row, row.manifest not in self._damaged)
        position = candidate.position
        self.history.append(candidate)
        self.checkpoint_ids[position] = row.checkpoint_id
        self.copies[position] = tuple([_copy(each) for each in copies])
        if row.holds:
            self.holds[position] = row.holds
        if row.readers:
            self.readers[position] = row.readers
        if row.writers:
            self.active[position] = row.writers
        if row.depends_on:
            self.depends_on[row.manifest] = row.depends_on
        if row.dependents:
            self.needed_elsewhere[row.manifest] = row.dependents
        if row.resumed_from_generation is not None:
            self.resumed_from[position] = row.resumed_from_generation, row.resumed_from_sequence


_NOTHING: Mapping[str, int | float] = {}


def _usefulness(row: Row) -> tuple[bool, bool, int]:
    """Of several copies the one to decide by: present before quarantined, sound before failed."""
    return row.to_state != "present", bool(row.failed), row.copy_id


def _copy(row: Row) -> tuple[int, int]:
    return row.copy_id, row.total_bytes + row.control_bytes


def _candidate(row: Row, whole: bool) -> Candidate:
    return Candidate(
        row.generation,
        row.sequence,
        row.step,
        row.recorded_at,
        row.manifest,
        row.total_bytes,
        row.metrics or _NOTHING,
        _receipts(row.checksum, row.format, row.restore),
        bool(row.failed),
        row.to_state == "present",
        row.to_state == "quarantined",
        whole,
    )


@cache
def _receipts(*verdicts: str | None) -> Mapping[Level, ReceiptVerdict]:
    """The latest verdict of each level, from the weakest level on; the same few again and again."""
    return MappingProxyType(
        {
            level: ReceiptVerdict(verdict)
            for level, verdict in zip(Level, verdicts, strict=True)
            if verdict is not None
        }
    )
