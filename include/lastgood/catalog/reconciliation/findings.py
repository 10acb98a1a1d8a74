"""Findings: what is unexplained, followed from day to day until it is explained or gone.

A finding is one (project, store, cause, key range) for good; its events say how it stands:

    opened -> seen* -> closed          gone, or part of another line by now
    opened -> explained -> closed      an operator accounted for it; more bytes open it again
    closed -> opened                   its bytes came back: a new deadline runs

An owner whom somebody assigned stays, also when it opens again; else the project's rules say who.

Nobody's word closes it: only an inventory that does not show it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from psycopg.types.json import Jsonb

from lastgood.catalog import locks
from lastgood.catalog.db import Transaction
from lastgood.errors import Conflict, InvalidInput, NotFound
from lastgood.rules.finding_owners import Owners

_NAMESPACE = UUID("4f6f2b3e-5d0a-4a6e-9c55-6a1d0f1c7b11")
_STATES = {"opened": "open", "explained": "explained", "closed": "closed"}


@dataclass(frozen=True, slots=True)
class Sighting:
    """What an inventory saw of one cause in one place; `samples` show a few of its keys."""

    cause: str
    key_range: str
    size_bytes: int
    objects: int
    samples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Finding:
    """How a finding stands now. Instants are UTC."""

    finding_id: UUID
    project: str
    store: str
    cause: str
    key_range: str
    owner: str
    deadline: datetime
    state: str  # open | explained | closed
    size_bytes: int
    objects: int
    opened_at: datetime
    seen_at: datetime
    events: int
    note: str
    samples: Sequence[Mapping[str, Any]]

    def is_overdue(self, at: datetime) -> bool:
        """Whether it is still unexplained after its deadline."""
        return self.state == "open" and self.deadline < at


def current(
    tx: Transaction,
    *,
    projects: Sequence[str] | None = None,
    store: str | None = None,
    finding_id: UUID | None = None,
    closed: bool = False,
    limit: int | None = None,
    skip: int = 0,
) -> list[Finding]:
    """Findings as they stand, the oldest deadline first: of some projects, of a store, or one
    alone; all of them, or at most `limit` after the `skip` first. Closed ones only with
    `closed`."""
    rows = tx.execute(
        """
        WITH standing AS (
          SELECT f.finding_id, f.project, f.store, f.cause, f.key_range, s.kind AS state,
                 coalesce(a.facts ->> 'owner', f.owner) AS owner,
                 coalesce((a.facts ->> 'deadline')::timestamptz, f.deadline) AS deadline,
                 coalesce(s.facts ->> 'reason', '') AS note
            FROM findings AS f
            CROSS JOIN LATERAL (SELECT e.kind, e.facts FROM finding_events AS e
              WHERE e.finding_id = f.finding_id AND e.kind IN ('opened', 'explained', 'closed')
              ORDER BY e.number DESC LIMIT 1) AS s
            LEFT JOIN LATERAL (SELECT e.facts FROM finding_events AS e
              WHERE e.finding_id = f.finding_id AND e.facts ? 'deadline'
              ORDER BY e.number DESC LIMIT 1) AS a ON true
           WHERE (%(projects)s::text[] IS NULL OR f.project = ANY(%(projects)s))
             AND (%(store)s::text IS NULL OR f.store = %(store)s)
             AND (%(finding_id)s::uuid IS NULL OR f.finding_id = %(finding_id)s)
             AND (%(closed)s OR s.kind <> 'closed')
           ORDER BY deadline, f.project, f.store, f.cause, f.key_range
           LIMIT %(limit)s OFFSET %(skip)s
        )
        SELECT f.*, l.bytes AS size_bytes, l.objects, o.recorded_at AS opened_at,
               l.recorded_at AS seen_at, l.number AS events,
               coalesce(n.facts -> 'samples', '[]') AS samples
          FROM standing AS f
          CROSS JOIN LATERAL (SELECT e.* FROM finding_events AS e
            WHERE e.finding_id = f.finding_id ORDER BY e.number DESC LIMIT 1) AS l
          CROSS JOIN LATERAL (SELECT e.recorded_at FROM finding_events AS e
            WHERE e.finding_id = f.finding_id AND e.kind = 'opened'
            ORDER BY e.number DESC LIMIT 1) AS o
          LEFT JOIN LATERAL (SELECT e.facts FROM finding_events AS e
            WHERE e.finding_id = f.finding_id AND e.facts ? 'samples'
            ORDER BY e.number DESC LIMIT 1) AS n ON true
         ORDER BY f.deadline, f.project, f.store, f.cause, f.key_range
        """,
        {
            "projects": None if projects is None else list(projects),
            "store": store,
            "finding_id": finding_id,
            "closed": closed,
            "limit": limit,
            "skip": skip,
        },
    )
    return [Finding(**{**row, "state": _STATES[row["state"]]}) for row in rows]


def get(tx: Transaction, finding_id: UUID) -> Finding:
    """One finding, closed or not. Raises NotFound."""
    found = current(tx, finding_id=finding_id, closed=True)
    if not found:
        raise NotFound(what="finding", name=str(finding_id))
    return found[0]


@dataclass(frozen=True, slots=True)
class FindingEvent:
    """One thing that happened to a finding. `reason` and `owner` are there where it has one."""

    number: int
    kind: str  # opened | seen | assigned | explained | closed
    size_bytes: int
    objects: int
    actor: str
    owner: str | None
    deadline: datetime | None
    reason: str | None
    recorded_at: datetime


def events(tx: Transaction, finding_id: UUID) -> list[FindingEvent]:
    """All that happened to a finding, the oldest first. Raises NotFound."""
    get(tx, finding_id)
    rows = tx.execute(
        """
        SELECT number, kind, bytes AS size_bytes, objects, actor, facts ->> 'owner' AS owner,
               (facts ->> 'deadline')::timestamptz AS deadline, facts ->> 'reason' AS reason,
               recorded_at
          FROM finding_events WHERE finding_id = %s ORDER BY number
        """,
        (finding_id,),
    )
    return [FindingEvent(**row) for row in rows]


def follow(
    tx: Transaction,
    project: str,
    store: str,
    sightings: Iterable[Sighting],
    *,
    owners: Owners,
    deadline: timedelta,
    actor: str,
    at: datetime,
) -> None:
    """Carry a complete inventory's sightings on: open what is new, note what is still there, close
    what was not seen any more. `deadline` counts from `at` (UTC) for what is opened, and
    `owners` says who answers for it."""
    known = {
        (one.cause, one.key_range): one
        for one in current(tx, projects=[project], store=store, closed=True)
    }
    for seen in sightings:
        before = known.pop((seen.cause, seen.key_range), None)
        _see(tx, project, store, before, seen, owners, deadline, actor, at)
    for gone in known.values():
        if gone.state != "closed":
            nothing = Sighting(gone.cause, gone.key_range, 0, 0, ())
            _append(tx, gone, "closed", nothing, actor, {"reason": "explained or gone"}, at)


def note(
    tx: Transaction,
    project: str,
    store: str,
    sightings: Iterable[Sighting],
    *,
    owners: Owners,
    deadline: timedelta,
    actor: str,
    at: datetime,
) -> None:
    """As `follow`, for sightings that are not all that there is: nothing is closed, and what stands
    as it stood is not noted again."""
    known = {
        (one.cause, one.key_range): one
        for one in current(tx, projects=[project], store=store, closed=True)
    }
    for seen in sightings:
        before = known.get((seen.cause, seen.key_range))
        if (
            before is None
            or _reopens(before, seen)
            or (before.size_bytes, before.objects) != (seen.size_bytes, seen.objects)
        ):
            _see(tx, project, store, before, seen, owners, deadline, actor, at)


def _see(
    tx: Transaction,
    project: str,
    store: str,
    before: Finding | None,
    seen: Sighting,
    owners: Owners,
    deadline: timedelta,
    actor: str,
    at: datetime,
) -> None:
    facts: dict[str, Any] = {"samples": list(seen.samples)}
    if before is not None and not _reopens(before, seen):
        _append(tx, before, "seen", seen, actor, facts, at)
        return
    owner = owners.of_finding(seen.cause, seen.key_range)
    if before is None:
        before = _create(tx, project, store, seen, owner, at + deadline, at)
    else:
        owner = _assigned_owner(tx, before.finding_id) or owner
    facts |= {"owner": owner, "deadline": (at + deadline).isoformat()}
    _append(tx, before, "opened", seen, actor, facts, at)


def _assigned_owner(tx: Transaction, finding_id: UUID) -> str | None:
    """Whom somebody made answer for a finding last: no rule's answer takes that back."""
    row = tx.execute(
        """
        SELECT facts ->> 'owner' AS owner FROM finding_events
         WHERE finding_id = %s AND kind = 'assigned' ORDER BY number DESC LIMIT 1
        """,
        (finding_id,),
    ).fetchone()
    return None if row is None else str(row["owner"])


def explain(tx: Transaction, finding_id: UUID, *, reason: str, actor: str, at: datetime) -> Finding:
    """Record an operator's account of a finding. It stays listed while its bytes are there, and
    opens again if they become more. Raises NotFound, Conflict for a closed one, InvalidInput for a
    reason of nothing."""
    _require_said(reason, "reason")
    found = _not_closed(tx, finding_id)
    _append(tx, found, "explained", found, actor, {"reason": reason}, at)
    return get(tx, finding_id)


def assign(
    tx: Transaction,
    finding_id: UUID,
    *,
    owner: str,
    deadline: datetime,
    actor: str,
    at: datetime,
) -> Finding:
    """Give a finding another owner and deadline (UTC). Raises NotFound, Conflict for a closed one,
    InvalidInput for an owner of nothing and for a deadline that has passed at `at`."""
    _require_said(owner, "owner")
    if deadline < at:
        reason = f"{deadline.isoformat()} has passed; give one that is to come"
        raise InvalidInput(where="deadline", reason=reason)
    found = _not_closed(tx, finding_id)
    facts = {"owner": owner, "deadline": deadline.isoformat()}
    _append(tx, found, "assigned", found, actor, facts, at)
    return get(tx, finding_id)


def close_all(tx: Transaction, store: str, *, reason: str, actor: str, at: datetime) -> None:
    """Close every finding of a store that nobody looks at any more."""
    for one in current(tx, store=store):
        nothing = Sighting(one.cause, one.key_range, 0, 0, ())
        _append(tx, one, "closed", nothing, actor, {"reason": reason}, at)


def _require_said(text: str, where: str) -> None:
    if not text.strip():
        raise InvalidInput(where=where, reason="it is empty")


def _not_closed(tx: Transaction, finding_id: UUID) -> Finding:
    """Under the lock that a reconciliation takes, so that events follow one another."""
    locks.store_capacity(tx, get(tx, finding_id).store)
    found = get(tx, finding_id)
    if found.state == "closed":
        raise Conflict(reason=f"finding {finding_id} is closed: its bytes are explained or gone")
    return found


def _reopens(before: Finding, seen: Sighting) -> bool:
    if before.state == "explained":
        return seen.size_bytes > before.size_bytes or seen.objects > before.objects
    return before.state == "closed"


def _create(
    tx: Transaction,
    project: str,
    store: str,
    seen: Sighting,
    owner: str,
    deadline: datetime,
    at: datetime,
) -> Finding:
    identity = "\0".join((project, store, seen.cause, seen.key_range))
    finding_id = uuid5(_NAMESPACE, identity)
    tx.execute(
        """
        INSERT INTO findings (finding_id, project, store, cause, key_range, owner, deadline,
                              recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (finding_id) DO NOTHING
        """,
        (finding_id, project, store, seen.cause, seen.key_range, owner, deadline, at),
    )
    return Finding(
        finding_id, project, store, seen.cause, seen.key_range, owner, deadline, "open",
        seen.size_bytes, seen.objects, at, at, 0, "", seen.samples,
    )  # fmt: skip


def _append(
    tx: Transaction,
    finding: Finding,
    kind: str,
    seen: Sighting | Finding,
    actor: str,
    facts: Mapping[str, Any],
    at: datetime,
) -> None:
    """The next event. Two at once are told apart by their number: the second one is refused."""
    tx.execute(
        """
        INSERT INTO finding_events (finding_id, number, project, kind, bytes, objects, actor, facts,
                                    recorded_at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            finding.finding_id,
            finding.events + 1,
            finding.project,
            kind,
            seen.size_bytes,
            seen.objects,
            actor,
            Jsonb(dict(facts)),
            at,
        ),
    )
