"""Pending uploads that no attempt continues or cleans up: those left of attempts that are over, and
those that belong to nobody.

What is left of an attempt that is over is aborted once its last grant has ended, but never the
upload that a committed object came from: a server that still lists it would take the object's bytes
with it. An upload of nobody below the project's prefix becomes a finding with an owner first, and
is aborted by a later run, when the finding is past its deadline and nobody explained it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lastgood.catalog import history, locks
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.cleaning.incomplete_uploads import OBJECTS, Entry
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import uploads
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.reconciliation import findings
from lastgood.catalog.reconciliation.findings import Finding, Sighting
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project
from lastgood.flows.cleaning.pending_uploads import abort
from lastgood.flows.cleaning.upload_look import Look, prove_gone
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.inventories.owners import unit_of
from lastgood.rules.quantities import counted
from lastgood.stores.base import EVERYTHING, Store
from lastgood.stores.begun import begun_uploads

_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Strays:
    """What was aborted, how many of those are proven gone, and what waits in a finding."""

    aborted: int
    gone: int
    freed_bytes: int
    unknown: tuple[str, ...]


def clean(catalog: Catalog, store: Store, project: str, look: Look, actor: str) -> Strays:
    """Abort what may go of the inventory's strays, after a look. Raises StoreError or
    Unavailable."""
    with catalog.transaction() as tx:
        left = [
            one
            for one in incomplete_uploads.left(tx, project, store.name)
            if one.upload_id != OBJECTS
        ]
        configured = projects.get(tx, project)
        held = rebuilds.holds_standing(tx, project)
    there = {(one.key, one.upload_id) for one in look.begun}
    seen = [one for one in left if (one.key, one.upload_id) in there]
    unknown = [one for one in seen if one.attempt_id is None]
    overdue = _reported(catalog, store, configured, unknown, look.at, actor)
    if held:  # a rebuilt catalog may not know yet whose they are
        overdue = []
    todo = [*_of_over(catalog, project, seen, look.at), *overdue]
    freed = abort(catalog, store, todo, actor=actor) if todo else 0
    gone = _prove(catalog, store, todo, actor) if todo else 0
    waiting = {one.entry_id for one in unknown} - {one.entry_id for one in overdue}
    return Strays(
        aborted=len(todo),
        gone=gone,
        freed_bytes=freed,
        unknown=tuple(
            f"{store.name}: {one.key} (upload {one.upload_id})"
            for one in unknown
            if one.entry_id in waiting
        ),
    )


def _of_over(catalog: Catalog, project: str, seen: Iterable[Entry], at: datetime) -> list[Entry]:
    """Of committed and closed attempts whose last grant has ended."""
    owned = [one for one in seen if one.attempt_id is not None]
    with catalog.transaction() as tx:
        owners = uploads.known(tx, project, {one.attempt_id for one in owned if one.attempt_id})
        completed = {
            attempt: set(uploads.recorded_uploads(tx, project, attempt).values())
            for attempt, owner in owners.items()
            if owner.state == "committed"
        }
    return [
        one
        for one in owned
        if (owner := owners.get(one.attempt_id)) is not None  # type: ignore[arg-type]
        and owner.state in ("committed", "closed")
        and owner.grant_expires_at < at
        and one.upload_id not in completed.get(owner.attempt_id, ())
    ]


def _reported(
    catalog: Catalog,
    store: Store,
    project: Project,
    unknown: Sequence[Entry],
    at: datetime,
    actor: str,
) -> list[Entry]:
    """Open or carry on the findings of what belongs to nobody; answers what may be aborted now."""
    if not unknown:
        return []
    deadline = project.finding_deadline
    by_unit: dict[str, list[Entry]] = defaultdict(list)
    for one in unknown:
        by_unit[unit_of(one.key)].append(one)
    with catalog.transaction() as tx:
        locks.store_capacity(tx, store.name)  # a reconciliation takes its turn here, too
        now = history.now(tx)
        before = {one.key_range: one for one in _standing(findings.current(
            tx, projects=[project.name], store=store.name
        ))}  # fmt: skip
        findings.note(
            tx,
            project.name,
            store.name,
            [_sighting(unit, entries) for unit, entries in by_unit.items()],
            owners=project.finding_owners,
            deadline=deadline,
            actor=actor,
            at=now,
        )
        incomplete_uploads.move(
            tx,
            [one.entry_id for one in unknown if one.state == "waiting"],
            "reported",
            reason="it belongs to nobody: a finding waits for an explanation",
            actor=actor,
            at=now,
        )
    return [
        one
        for unit, entries in by_unit.items()
        for one in entries
        if unit in before and before[unit].is_overdue(now) and one.first_seen_at + deadline < at
    ]


def _standing(found: Iterable[Finding]) -> list[Finding]:
    return [one for one in found if one.cause == Cause.UNKNOWN_UPLOAD]


def _sighting(unit: str, entries: Sequence[Entry]) -> Sighting:
    return Sighting(
        cause=Cause.UNKNOWN_UPLOAD.value,
        key_range=unit,
        size_bytes=sum(one.part_bytes or 0 for one in entries),
        objects=len(entries),
        samples=[
            {
                "key": one.key,
                "bytes": one.part_bytes or 0,
                "detail": f"upload {one.upload_id}, {counted(one.parts or 0, 'part')}",
            }
            for one in entries[:_SAMPLES]
        ],
    )


def _prove(catalog: Catalog, store: Store, aborted: Sequence[Entry], actor: str) -> int:
    """List again; what is still there is left to the next run."""
    with catalog.transaction() as tx:
        at = history.now(tx)
    there = {(one.key, one.upload_id) for one in begun_uploads(store, EVERYTHING)}
    unlisted = [one for one in aborted if (one.key, one.upload_id) not in there]
    return prove_gone(catalog, store, unlisted, listed_at=at, actor=actor)
