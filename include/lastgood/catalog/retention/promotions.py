"""Promotions of policies, the differences that they were shown by, and their approvals.

A rollback is a promotion to an older version. When one took force is read with the versions
themselves (see `policy_versions.current`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from psycopg.types.json import Jsonb

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.retention.marks import Mark
from lastgood.catalog.settings.policy_versions import PolicyVersion

Kind = Literal["promote", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDifference:
    """What two policies would keep otherwise, before it is recorded. `current` and `candidate` are
    versions, or the names of files."""

    project: str
    current: str
    current_digest: str
    candidate: str
    candidate_digest: str
    from_at: datetime
    to_at: datetime
    code_version: str
    time_zone_version: str
    document: Mapping[str, Any]
    recorded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow(NewDifference):
    """A difference as it was recorded."""

    difference_id: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What says whether a difference still shows what a promotion does: by what it was made, when,
    and until when its window goes."""

    difference_id: int
    to_at: datetime
    code_version: str
    time_zone_version: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A promotion as it was asked for, with its approval and the first mark under it where there
    are these. `effective_from` is the instant that was asked for."""

    promotion_id: int
    project: str
    kind: Kind
    policy: str
    version: int
    replaces_policy: str
    replaces_version: int
    difference_id: int
    effective_from: datetime
    cooling_seconds: float
    approve: bool
    because: str
    asked_by: str
    recorded_at: datetime
    approved_by: str | None
    approved_because: str | None
    approved_at: datetime | None
    first_mark: int | None

    @property
    def name(self) -> str:
        """The version that is promoted, such as `default@v7`."""
        return f"{self.policy}@v{self.version}"

    @property
    def replaces(self) -> str:
        """The version that was in force when it was asked for."""
        return f"{self.replaces_policy}@v{self.replaces_version}"

    @property
    def takes_effect(self) -> datetime | None:
        """When; None while it waits for its approval."""
        if not self.approve:
            return self.effective_from
        return max(self.effective_from, self.approved_at) if self.approved_at else None

    @property
    def decided_at(self) -> datetime | None:
        """When everybody had agreed whose word it needs; None while it waits for approval."""
        return self.approved_at if self.approve else self.recorded_at

    @property
    def cooling(self) -> timedelta:
        """How long sweeps wait after that."""
        return timedelta(seconds=self.cooling_seconds)


_DIFFERENCE = """difference_id, project, current, current_digest, candidate, candidate_digest,
    from_at, to_at, code_version, time_zone_version, document, recorded_by, recorded_at"""


def record_difference(tx: Transaction, new: NewDifference) -> DifferenceRow:
    """Append a difference."""
    row = tx.execute(
        f"""
        INSERT INTO policy_differences (project, current, current_digest, candidate,
               candidate_digest, from_at, to_at, code_version, time_zone_version, document,
               recorded_by, recorded_at)
        VALUES (%(project)s, %(current)s, %(current_digest)s, %(candidate)s, %(candidate_digest)s,
                %(from_at)s, %(to_at)s, %(code_version)s, %(time_zone_version)s, %(document)s,
                %(recorded_by)s, catalog_clock())
        RETURNING {_DIFFERENCE}
        """,
        {
            **{name: getattr(new, name) for name in NewDifference.__dataclass_fields__},
            "document": Jsonb(dict(new.document)),
        },
    ).fetchone()
    assert row is not None
    return DifferenceRow(**row)


def difference(tx: Transaction, project: str, difference_id: int) -> DifferenceRow:
    """Raises NotFound if the project has no such difference."""
    row = tx.execute(
        f"SELECT {_DIFFERENCE} FROM policy_differences WHERE project = %s AND difference_id = %s",
        (project, difference_id),
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="difference", name=str(difference_id))
    return DifferenceRow(**row)


def differences(tx: Transaction, project: str, *, limit: int = 100) -> list[dict[str, Any]]:
    """The differences of a project without their documents, the newest first."""
    return list(
        tx.execute(
            """
            SELECT difference_id, project, current, current_digest, candidate, candidate_digest,
                   from_at, to_at, recorded_by, recorded_at
              FROM policy_differences WHERE project = %s
             ORDER BY difference_id DESC LIMIT %s
            """,
            (project, limit),
        )
    )


def between(
    tx: Transaction, project: str, current_digest: str, candidate_digest: str, *, limit: int = 100
) -> list[Shown]:
    """The differences of two policies by their digests, the newest first."""
    rows = tx.execute(
        """
        SELECT difference_id, to_at, code_version, time_zone_version, recorded_at
          FROM policy_differences
         WHERE project = %s AND current_digest = %s AND candidate_digest = %s
         ORDER BY recorded_at DESC, difference_id DESC LIMIT %s
        """,
        (project, current_digest, candidate_digest, limit),
    )
    return [Shown(**row) for row in rows]


def ask(
    tx: Transaction,
    kind: Kind,
    version: PolicyVersion,
    replaces: PolicyVersion,
    *,
    difference_id: int,
    effective_from: datetime | None,
    cooling: timedelta,
    approve: bool,
    because: str,
    asked_by: str,
) -> Promotion:
    """Append a promotion; it takes effect at an instant, or (None) now, and never earlier than
    everything recorded of the project. The caller has locked the project exclusively."""
    at = history.close(tx, version.project)
    row = tx.execute(
        """
        INSERT INTO policy_promotions (project, kind, policy, version, replaces_policy,
               replaces_version, difference_id, effective_from, cooling_seconds, approve, because,
               asked_by, recorded_at)
        VALUES (%(project)s, %(kind)s, %(policy)s, %(version)s, %(replaces_policy)s,
                %(replaces_version)s, %(difference_id)s,
                greatest(%(at)s, coalesce(%(from)s::timestamptz, %(at)s)), %(cooling)s, %(approve)s,
                %(because)s, %(asked_by)s, %(at)s)
        RETURNING promotion_id
        """,
        {
            "project": version.project,
            "kind": kind,
            "policy": version.policy,
            "version": version.version,
            "replaces_policy": replaces.policy,
            "replaces_version": replaces.version,
            "difference_id": difference_id,
            "from": effective_from,
            "cooling": cooling.total_seconds(),
            "approve": approve,
            "because": because,
            "asked_by": asked_by,
            "at": at,
        },
    ).fetchone()
    assert row is not None
    return get(tx, version.project, row["promotion_id"])


def approve(tx: Transaction, promotion: Promotion, *, by: str, because: str) -> Promotion:
    """Append the approval; a second one adds nothing. Locked as for `ask`."""
    tx.execute(
        """
        INSERT INTO promotion_approvals (promotion_id, project, approved_by, because, recorded_at)
        VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (
            promotion.promotion_id,
            promotion.project,
            by,
            because,
            history.close(tx, promotion.project),
        ),
    )
    return get(tx, promotion.project, promotion.promotion_id)


_PROMOTION = """
    SELECT p.promotion_id, p.project, p.kind, p.policy, p.version, p.replaces_policy,
           p.replaces_version, p.difference_id, p.effective_from, p.cooling_seconds, p.approve,
           p.because, p.asked_by, p.recorded_at, a.approved_by, a.because AS approved_because,
           a.recorded_at AS approved_at, m.mark_id AS first_mark
      FROM policy_promotions p
      LEFT JOIN promotion_approvals a USING (promotion_id)
      LEFT JOIN promotion_marks m USING (promotion_id)
"""


def get(tx: Transaction, project: str, promotion_id: int) -> Promotion:
    """Raises NotFound if the project has no such promotion."""
    row = tx.execute(
        _PROMOTION + " WHERE p.project = %s AND p.promotion_id = %s", (project, promotion_id)
    ).fetchone()
    if row is None:
        raise errors.NotFound(what="promotion", name=str(promotion_id))
    return Promotion(**row)


def of_project(tx: Transaction, project: str) -> Sequence[Promotion]:
    """Every promotion of a project, the newest first."""
    rows = tx.execute(_PROMOTION + " WHERE p.project = %s ORDER BY p.promotion_id DESC", (project,))
    return [Promotion(**row) for row in rows]


def in_effect(tx: Transaction, project: str, at: datetime) -> Promotion | None:
    """The promotion by which the policy in force at an instant came to be; None if by none."""
    return next(iter(taken_effect(tx, project, at)), None)


def taken_effect(tx: Transaction, project: str, at: datetime) -> Sequence[Promotion]:
    """The promotions whose policies had been in force up to an instant, since one was last put in
    force without a promotion; the one decided last first."""
    rows = tx.execute(
        _PROMOTION
        + """
         WHERE p.project = %(project)s AND (NOT p.approve OR a.promotion_id IS NOT NULL)
           AND greatest(p.effective_from, a.recorded_at) <= %(at)s
           AND NOT EXISTS (SELECT 1 FROM policy_versions v
                            WHERE v.project = p.project AND v.effective_from <= %(at)s
                              AND v.recorded_at > coalesce(a.recorded_at, p.recorded_at))
         ORDER BY coalesce(a.recorded_at, p.recorded_at) DESC
        """,
        {"project": project, "at": at},
    )
    found: list[Promotion] = []
    until: datetime | None = None
    for promotion in (Promotion(**row) for row in rows):
        effect = promotion.takes_effect
        assert effect is not None
        # One that was to come when another was decided, and took effect, never was in force.
        if until is None or effect < until:
            found.append(promotion)
            until = effect
    return found


def first_taken(tx: Transaction, project: str, since: datetime) -> datetime | None:
    """When a sweep first put a copy into quarantine from an instant on; None if none has."""
    row = tx.execute(
        """
        SELECT min(recorded_at) AS at FROM copy_transitions
         WHERE project = %s AND to_state = 'quarantined' AND mark_id IS NOT NULL
           AND recorded_at >= %s
        """,
        (project, since),
    ).fetchone()
    assert row is not None
    at: datetime | None = row["at"]
    return at


def note_first_mark(tx: Transaction, promotion: Promotion, mark: Mark) -> bool:
    """Record that a live mark is the first under a promotion; False if another was."""
    row = tx.execute(
        """
        INSERT INTO promotion_marks (promotion_id, project, mark_id, recorded_at)
        VALUES (%s, %s, %s, catalog_clock()) ON CONFLICT DO NOTHING RETURNING mark_id
        """,
        (promotion.promotion_id, promotion.project, mark.mark_id),
    ).fetchone()
    return row is not None
