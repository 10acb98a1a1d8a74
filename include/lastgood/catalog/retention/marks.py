"""Marks: versioned snapshots of one retention decision over a project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from psycopg.types.json import Jsonb

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Transaction

Kind = Literal["live", "replay", "simulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMark:
    """One decision as of `at`, before it is recorded. `digest` covers the whole of it."""

    project: str
    kind: Kind
    at: datetime
    policy: str
    policy_version: int
    policy_digest: str
    code_version: str
    time_zone_version: str
    digest: str
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(NewMark):
    """A decision as it was recorded."""

    mark_id: int
    recorded_at: datetime


class MarkCandidate(NamedTuple):
    """A copy that a mark found to be kept by nothing. `leaves` is the role that it leaves, or
    `none`."""

    copy_id: int
    stage_id: int
    checkpoint_id: int
    leaves: str
    reasons: Sequence[str]
    bytes: int


_COLUMNS = """mark_id, project, kind, at, policy, policy_version, policy_digest, code_version,
    time_zone_version, digest, counts, recorded_at"""


def choose_instant(tx: Transaction, project: str) -> datetime:
    """The instant of a live mark: later than everything recorded so far, and than nothing
    recorded later. Takes the project's lock exclusively, so call it in a transaction of its
    own, and short."""
    locks.project_exclusive(tx, project)
    return history.close(tx, project)


def close_past(tx: Transaction, project: str, at: datetime, *, where: str = "at") -> None:
    """Make sure that nothing can be recorded at or before `at` any more. Waits for the transactions
    under way. Raises InvalidInput, which names `where`, for an instant in the future."""
    locks.project_exclusive(tx, project)
    row = tx.execute(
        """
        UPDATE projects SET last_mark_at = greatest(last_mark_at, %(at)s)
         WHERE project = %(project)s AND %(at)s <= %(now)s
        RETURNING last_mark_at
        """,
        {"project": project, "at": at, "now": history.project_now(tx, project)},
    ).fetchone()
    if row is None:
        raise errors.InvalidInput(
            where=where, reason=f"{at.isoformat()} has not passed yet; give an instant of the past"
        )


def record(tx: Transaction, mark: NewMark) -> Mark | None:
    """Append a mark; None if the same kind of mark of this instant and policy was recorded
    before."""
    row = tx.execute(
        f"""
        INSERT INTO marks (project, kind, at, policy, policy_version, policy_digest, code_version,
                           time_zone_version, digest, counts, recorded_at)
        VALUES (%(project)s, %(kind)s, %(at)s, %(policy)s, %(policy_version)s, %(policy_digest)s,
                %(code_version)s, %(time_zone_version)s, %(digest)s, %(counts)s, catalog_clock())
        ON CONFLICT (project, kind, policy, policy_version, at) DO NOTHING
        RETURNING {_COLUMNS}
        """,
        {**asdict(mark), "counts": Jsonb(dict(mark.counts))},
    ).fetchone()
    return Mark(**row) if row else None


def add_candidates(tx: Transaction, mark: Mark, candidates: Iterable[MarkCandidate]) -> None:
    """Append the candidates of a mark that this transaction recorded."""
    with tx.copy(
        """
        COPY mark_candidates (mark_id, copy_id, project, stage_id, checkpoint_id, leaves, reasons,
                              bytes) FROM STDIN
        """
    ) as rows:
        # In the order of the key: each row goes to the end of the index.
        for each in sorted(candidates, key=itemgetter(0)):
            rows.write_row(
                (
                    mark.mark_id,
                    each.copy_id,
                    mark.project,
                    each.stage_id,
                    each.checkpoint_id,
                    each.leaves,
                    _reasons(tuple(each.reasons)),
                    each.bytes,
                )
            )


@lru_cache(maxsize=1024)
def _reasons(reasons: tuple[str, ...]) -> str:
    """As JSON; the same few again and again."""
    return json.dumps(reasons)


def add_changes(tx: Transaction, mark: Mark, since: Mark | None) -> None:
    """Append what changed since an earlier mark: checkpoints that became candidates, that are
    none any more, and that were committed after it (all that exist, if there is no earlier
    mark)."""
    tx.execute(
        """
        WITH ours AS (
          SELECT DISTINCT checkpoint_id FROM mark_candidates WHERE mark_id = %(mark_id)s
        ), theirs AS (
          SELECT DISTINCT checkpoint_id FROM mark_candidates WHERE mark_id = %(since)s
        )
        INSERT INTO mark_changes (mark_id, checkpoint_id, project, change)
        SELECT %(mark_id)s, checkpoint_id, %(project)s, 'entered'
          FROM ours WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM theirs)
        UNION ALL
        SELECT %(mark_id)s, checkpoint_id, %(project)s, 'left'
          FROM theirs WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM ours)
        UNION ALL
        SELECT %(mark_id)s, checkpoint_id, %(project)s, 'new'
          FROM checkpoints
         WHERE project = %(project)s AND recorded_at <= %(at)s AND recorded_at > %(since_at)s
           AND checkpoint_id NOT IN (SELECT checkpoint_id FROM ours)
        """,
        {
            "mark_id": mark.mark_id,
            "project": mark.project,
            "at": mark.at,
            "since": since.mark_id if since else None,
            "since_at": since.at if since else "-infinity",
        },
    )


def get(tx: Transaction, project: str, mark_id: int) -> Mark:
    """Raises NotFound if the project has no such mark."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM marks WHERE project = %s AND mark_id = %s", (project, mark_id)
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="mark", name=str(mark_id))
    return Mark(**row)


def project_of(tx: Transaction, mark_id: int) -> str:
    """The project that a mark is of. Raises NotFound."""
    row = tx.execute("SELECT project FROM marks WHERE mark_id = %s", (mark_id,)).fetchone()
    if row is None:
        raise errors.NotFound(what="mark", name=str(mark_id))
    project: str = row["project"]
    return project


def newest(
    tx: Transaction, project: str, kind: Kind = "live", *, before: datetime | None = None
) -> Mark | None:
    """The newest mark of a kind, as of an instant before `before` where one is given."""
    row = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM marks
         WHERE project = %s AND kind = %s AND at < coalesce(%s::timestamptz, 'infinity')
         ORDER BY at DESC, mark_id DESC LIMIT 1
        """,
        (project, kind, before),
    ).fetchone()
    return Mark(**row) if row else None


def recorded(tx: Transaction, mark: NewMark) -> Mark:
    """The mark that was recorded before for the same instant, kind and policy."""
    row = tx.execute(
        f"""
        SELECT {_COLUMNS} FROM marks
         WHERE project = %s AND kind = %s AND policy = %s AND policy_version = %s AND at = %s
        """,
        (mark.project, mark.kind, mark.policy, mark.policy_version, mark.at),
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="mark", name=f"{mark.kind} of {mark.at}")
    return Mark(**row)


def candidate(tx: Transaction, project: str, mark_id: int, copy_id: int) -> MarkCandidate | None:
    """One copy as a candidate of a mark; None if it is none."""
    row = tx.execute(
        """
        SELECT copy_id, stage_id, checkpoint_id, leaves, reasons, bytes FROM mark_candidates
         WHERE project = %s AND mark_id = %s AND copy_id = %s
        """,
        (project, mark_id, copy_id),
    ).fetchone()
    return MarkCandidate(**row) if row else None
