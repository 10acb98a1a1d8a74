"""Copies: a checkpoint's objects as they lie in one store. Their states change in
`copy_transitions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from sys import intern
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound
from lastgood.rules.names import CheckpointId, ProjectName, StageName, WorkloadName


class State(StrEnum):
    PRESENT = "present"
    QUARANTINED = "quarantined"
    DELETING = "deleting"
    DELETED = "deleted"
    LOST = "lost"


GONE = (State.DELETING, State.DELETED, State.LOST)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy with what names its checkpoint. `total_bytes` are the objects', `control_bytes` the
    manifest's and the completion marker's beside them."""

    copy_id: int
    stage_id: int
    checkpoint_id: int
    checkpoint: CheckpointId
    step: int
    attempt_id: UUID
    manifest: str
    total_bytes: int
    object_count: int
    committed_at: datetime
    store: str
    prefix: str
    control_bytes: int
    recorded_at: datetime
    state: State
    state_at: datetime
    transition: int  # the number of the newest transition
    carried_out: int  # the transition that the store was last made to follow

    @property
    def project(self) -> str:
        return self.checkpoint.project

    @property
    def stored_bytes(self) -> int:
        """Everything that lies below the prefix."""
        return self.total_bytes + self.control_bytes


@dataclass(frozen=True, slots=True)
class CopyObject:
    """One object of a copy, as it was committed."""

    path: str
    size_bytes: int
    sha256: str
    version_id: str | None


_SELECT = """
    SELECT c.copy_id, c.stage_id, c.checkpoint_id, s.project, s.workload, s.stage, k.generation,
           k.sequence, k.step, k.attempt_id, k.manifest, k.total_bytes, k.object_count,
           k.recorded_at AS committed_at, c.store, c.prefix, c.control_bytes, c.recorded_at,
           c.state, c.state_at, c.carried_out,
           (SELECT max(t.number) FROM copy_transitions t WHERE t.copy_id = c.copy_id) AS transition
      FROM copies c
      JOIN checkpoints k USING (checkpoint_id)
      JOIN stages s ON s.stage_id = c.stage_id
"""
_NAMES = ("project", "workload", "stage")
_ROWS_AT_ONCE = 1000
_IN_ORDER = " ORDER BY c.stage_id, k.generation, k.sequence, c.copy_id"


def get(tx: Transaction, project: str, copy_id: int) -> Copy:
    """Raises NotFound if the project has no such copy."""
    row = tx.execute(
        _SELECT + " WHERE c.copy_id = %s AND c.project = %s", (copy_id, project)
    ).fetchone()
    if row is None:
        raise NotFound(what="copy", name=str(copy_id))
    return _copy(row)


def of_checkpoint(tx: Transaction, checkpoint: CheckpointId) -> list[Copy]:
    """Every copy of a checkpoint, deleted ones included. Raises NotFound for an unknown
    checkpoint."""
    rows = tx.execute(
        _SELECT
        + """ WHERE s.project = %s AND s.workload = %s AND s.stage = %s
                AND k.generation = %s AND k.sequence = %s"""
        + _IN_ORDER,
        (
            checkpoint.project,
            checkpoint.workload,
            checkpoint.stage,
            checkpoint.generation,
            checkpoint.sequence,
        ),
    ).fetchall()
    if not rows:
        raise NotFound(what="checkpoint", name=str(checkpoint))
    return [_copy(row) for row in rows]


def of_stage(tx: Transaction, project: str, stage_id: int) -> list[Copy]:
    """Every copy of a stage that is neither deleted nor lost, oldest checkpoint first."""
    rows = tx.execute(
        _SELECT
        + " WHERE c.project = %s AND c.stage_id = %s AND c.state NOT IN ('deleted', 'lost')"
        + _IN_ORDER,
        (project, stage_id),
    )
    return [_copy(row) for row in rows]


def of_checkpoints(tx: Transaction, project: str, checkpoint_ids: Iterable[int]) -> list[Copy]:
    """Every copy of these checkpoints, deleted ones included."""
    rows = tx.execute(
        _SELECT + " WHERE c.project = %s AND c.checkpoint_id = ANY(%s)" + _IN_ORDER,
        (project, sorted(set(checkpoint_ids))),
    )
    return [_copy(row) for row in rows]


def in_store(tx: Transaction, store: str) -> list[Copy]:
    """Every copy of any project in a store that is neither deleted nor lost, by stage and oldest
    checkpoint first."""
    rows = tx.execute(
        _SELECT + " WHERE c.store = %s AND c.state NOT IN ('deleted', 'lost')" + _IN_ORDER, (store,)
    )
    return [_copy(row) for row in rows]


def lost_in_store(tx: Transaction, store: str) -> int:
    """How many copies, of any project, were lost with a store."""
    row = tx.execute(
        "SELECT count(*) AS number FROM copies WHERE store = %s AND state = 'lost'", (store,)
    ).fetchone()
    assert row is not None
    number: int = row["number"]
    return number


def lost_of_stage(tx: Transaction, project: str, stage_id: int) -> Mapping[str, int]:
    """How many copies of a stage were lost, by store."""
    rows = tx.execute(
        "SELECT store, count(*) AS number FROM copies"
        " WHERE project = %s AND stage_id = %s AND state = 'lost' GROUP BY store ORDER BY store",
        (project, stage_id),
    )
    return {row["store"]: row["number"] for row in rows}


def in_state(tx: Transaction, project: str, *states: State) -> list[Copy]:
    """The project's copies in any of these states, by stage and oldest checkpoint first."""
    return _streamed(
        tx,
        " WHERE c.project = %s AND c.state = ANY(%s)",
        (project, [state.value for state in states]),
    )


def given_up(tx: Transaction, project: str, mark_id: int, state: State) -> list[Copy]:
    """The project's copies in a state that a mark gives up, in the same order: these alone are
    read, of however many there are."""
    return _streamed(
        tx,
        """ JOIN mark_candidates m ON m.copy_id = c.copy_id AND m.mark_id = %s
            WHERE c.project = %s AND c.state = %s""",
        (mark_id, project, state.value),
    )


def given_up_ids(tx: Transaction, project: str, mark_id: int, state: State) -> set[int]:
    """The ids of the same."""
    rows = tx.execute(
        """
        SELECT c.copy_id FROM copies c JOIN mark_candidates m USING (copy_id)
         WHERE m.mark_id = %s AND c.project = %s AND c.state = %s
        """,
        (mark_id, project, state.value),
    )
    return {row["copy_id"] for row in rows}


def hidden_under(tx: Transaction, project: str) -> dict[int, tuple[str, int]]:
    """By id of each copy in quarantine, name and version of the policy of the mark that sent it
    there."""
    rows = tx.execute(
        """
        SELECT c.copy_id, m.policy, m.policy_version
          FROM copies c
          JOIN LATERAL (SELECT t.mark_id FROM copy_transitions t
                         WHERE t.copy_id = c.copy_id ORDER BY t.number DESC LIMIT 1) t ON true
          JOIN marks m ON m.mark_id = t.mark_id
         WHERE c.project = %s AND c.state = 'quarantined'
        """,
        (project,),
    )
    return {row["copy_id"]: (row["policy"], row["policy_version"]) for row in rows}


def number(tx: Transaction, project: str, *states: State) -> int:
    """How many copies of a project are in any of these states."""
    row = tx.execute(
        "SELECT count(*) AS number FROM copies WHERE project = %s AND state = ANY(%s)",
        (project, [state.value for state in states]),
    ).fetchone()
    assert row is not None
    found: int = row["number"]
    return found


def not_carried_out(tx: Transaction, project: str) -> list[Copy]:
    """Present and quarantined copies whose store has not yet followed the newest transition."""
    rows = tx.execute(
        _SELECT
        + """ WHERE c.project = %s AND c.state IN ('present', 'quarantined')
                AND c.carried_out < (SELECT max(t.number) FROM copy_transitions t
                                      WHERE t.copy_id = c.copy_id)"""
        + _IN_ORDER,
        (project,),
    )
    return [_copy(row) for row in rows]


def objects(tx: Transaction, project: str, copy_id: int) -> list[CopyObject]:
    """The objects of a copy by path."""
    rows = tx.execute(
        """
        SELECT path, size_bytes, sha256, version_id FROM copy_objects
         WHERE copy_id = %s AND project = %s ORDER BY path COLLATE "C"
        """,
        (copy_id, project),
    )
    return [CopyObject(**row) for row in rows]


def _streamed(tx: Transaction, where: str, values: Sequence[Any]) -> list[Copy]:
    """For as many copies as there are: the answer is never held whole beside them."""
    with tx.connection.cursor() as cursor:
        rows = cursor.stream(_SELECT + where + _IN_ORDER, values, size=_ROWS_AT_ONCE)
        return [_copy(row) for row in rows]


def _copy(row: Mapping[str, Any]) -> Copy:
    values = dict(row)
    project, workload, stage = map(intern, (values.pop(part) for part in _NAMES))
    values["checkpoint"] = CheckpointId(
        ProjectName(project),
        WorkloadName(workload),
        StageName(stage),
        values.pop("generation"),
        values.pop("sequence"),
    )
    values["store"] = intern(values["store"])
    values["state"] = State(values["state"])
    return Copy(**values)
