"""Approvals: an operator's word for a plan that a sweep does not follow on its own.

The plan is written down as it was shown; the approval counts for these copies alone, and for each
only while every live mark since gives it up too, under the same policy, and until it is taken back,
which is a later word. Whatever the plan grows by has to be approved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lastgood import errors
from lastgood.catalog.db import Transaction


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A plan as it is shown to whoever approves it, by copy ids."""

    project: str
    mark_id: int
    policy_digest: str
    plan_digest: str
    stop: str
    to_quarantine: Sequence[int]
    to_delete: Sequence[int]


@dataclass(frozen=True, slots=True)
class Request:
    """A plan as it was shown, with its approval where there is one."""

    request_id: int
    project: str
    mark_id: int
    policy_digest: str
    plan_digest: str
    stop: str
    to_quarantine: Sequence[int]
    to_delete: Sequence[int]
    recorded_at: datetime
    approved_by: str | None
    because: str | None
    approved_at: datetime | None


_REQUEST = """q.request_id, q.project, q.mark_id, q.policy_digest, q.plan_digest, q.stop,
    q.recorded_at, a.approved_by, a.because, a.recorded_at AS approved_at"""
_REQUESTS = "sweep_requests q LEFT JOIN sweep_approvals a USING (request_id)"
_SELECT = f"SELECT {_REQUEST}, q.to_quarantine, q.to_delete FROM {_REQUESTS}"
_STILL_GIVEN_UP = """
    ARRAY(SELECT named.copy_id FROM unnest({step}) WITH ORDINALITY AS named (copy_id, place)
           WHERE NOT EXISTS (
             SELECT FROM marks later
              WHERE later.project = q.project AND later.kind = 'live' AND later.at > shown.at
                AND (later.policy_digest <> q.policy_digest OR NOT EXISTS (
                  SELECT FROM mark_candidates c
                   WHERE c.mark_id = later.mark_id AND c.copy_id = named.copy_id)))
             AND NOT EXISTS (
             SELECT FROM copy_transitions back
              WHERE back.copy_id = named.copy_id AND back.to_state = 'present'
                AND back.recorded_at > shown.at)
           ORDER BY named.place)
"""


def record(tx: Transaction, new: NewRequest) -> Request:
    """Append a request; the same plan under the same mark is asked for once."""
    row = tx.execute(
        _SELECT + " WHERE q.project = %s AND q.mark_id = %s AND q.plan_digest = %s"
        " ORDER BY q.request_id DESC LIMIT 1",
        (new.project, new.mark_id, new.plan_digest),
    ).fetchone()
    if row is not None:
        return Request(**row)
    row = tx.execute(
        """
        INSERT INTO sweep_requests (project, mark_id, policy_digest, plan_digest, stop,
                                    to_quarantine, to_delete, recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, catalog_clock())
        RETURNING request_id
        """,
        (
            new.project,
            new.mark_id,
            new.policy_digest,
            new.plan_digest,
            new.stop,
            list(new.to_quarantine),
            list(new.to_delete),
        ),
    ).fetchone()
    assert row is not None
    return get(tx, new.project, row["request_id"])


def approve(tx: Transaction, request: Request, *, by: str, because: str) -> None:
    """Append the approval; a second one of the same request adds nothing."""
    tx.execute(
        """
        INSERT INTO sweep_approvals (request_id, project, approved_by, because, recorded_at)
        VALUES (%s, %s, %s, %s, catalog_clock()) ON CONFLICT DO NOTHING
        """,
        (request.request_id, request.project, by, because),
    )


def get(tx: Transaction, project: str, request_id: int) -> Request:
    """Raises NotFound if the project has no such request."""
    row = tx.execute(
        _SELECT + " WHERE q.project = %s AND q.request_id = %s", (project, request_id)
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="request for approval", name=str(request_id))
    return Request(**row)


def standing(
    tx: Transaction,
    project: str,
    policy_digest: str,
    since: datetime,
    request_id: int | None = None,
) -> list[Request]:
    """The approved requests under a policy whose mark is as of `since` or later, the oldest first;
    with `request_id` this one, approved or not. Each with those of its copies alone that every live
    mark after that one gives up too, under the same policy, and that were not taken back since."""
    rows = tx.execute(
        f"""
        SELECT {_REQUEST},
               {_STILL_GIVEN_UP.format(step="q.to_quarantine")} AS to_quarantine,
               {_STILL_GIVEN_UP.format(step="q.to_delete")} AS to_delete
          FROM {_REQUESTS} JOIN marks shown ON shown.mark_id = q.mark_id
         WHERE q.project = %(project)s AND q.policy_digest = %(policy)s AND shown.at >= %(since)s
           AND (q.request_id = %(request)s
                OR %(request)s::bigint IS NULL AND a.request_id IS NOT NULL)
         ORDER BY q.request_id
        """,
        {"project": project, "policy": policy_digest, "since": since, "request": request_id},
    )
    return [Request(**row) for row in rows]
