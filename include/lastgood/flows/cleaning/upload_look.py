"""Looking for a project's incomplete uploads in one store, and taking them into the inventory.

What the coordinator recorded before the first part, what the store lists, and the objects of
attempts that lost their lease: each becomes a row. The listing comes first and the catalog is read
after it, so that the attempt of every listed upload is known by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.cleaning.incomplete_uploads import OBJECTS, Entry, Found
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import uploads
from lastgood.catalog.jobs.uploads import Incomplete
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project
from lastgood.flows.sweeping.deletion import listed
from lastgood.rules.layout import (
    INVENTORIES_PREFIX,
    AttemptKey,
    object_key,
    parse_key,
    project_prefix,
)
from lastgood.rules.names import ProjectName
from lastgood.stores.base import EVERYTHING, Key, Part, Store, UploadGone, UploadId
from lastgood.stores.begun import BegunUpload, begun_uploads, several

_OVER = ("committed", "closed")  # of such an attempt no upload can ever be completed
_NOT_EVEN_LISTED = "the store did not list it"


@dataclass(frozen=True, slots=True)
class Look:
    """What a complete look at a store found at `at` (the catalog's clock, before it began). An
    upload's `attempt` is whose prefix it is below, None: nobody's. `foreign` counts the uploads
    below no project's prefix."""

    at: datetime
    begun: Sequence[BegunUpload]
    attempts: Mapping[UploadId, Incomplete | None]
    foreign: int


def take(catalog: Catalog, store: Store, project: str, actor: str) -> Look:
    """Look, and bring the inventory to what was found. Raises StoreError, or Unavailable where a
    listing is not whole: then the inventory stays as it is, and nothing counts as gone."""
    look = _look(catalog, store, project)
    with catalog.transaction() as tx:
        configured = projects.get(tx, project)
        left = uploads.in_state(tx, project, "open", "aborting")
        lapsed = [one for one in left if one.store == store.name and one.is_incomplete(look.at)]
        recorded = {
            one.attempt_id: uploads.recorded_uploads(tx, project, one.attempt_id) for one in lapsed
        }
    found = [*_listed_ones(store, look, configured), *_objects(store, lapsed)]
    named = {(one.key, one.upload_id) for one in found}
    found += [
        one for one in _recorded_ones(lapsed, recorded) if (one.key, one.upload_id) not in named
    ]
    with catalog.transaction() as tx:
        incomplete_uploads.see(tx, project, store.name, found, actor=actor, at=look.at)
        incomplete_uploads.note_foreign(tx, store.name, look.foreign, at=look.at)
        before = incomplete_uploads.left(tx, project, store.name)
    _settle(catalog, store, look, before, actor)
    return look


def _look(catalog: Catalog, store: Store, project: str) -> Look:
    with catalog.transaction() as tx:
        at = history.now(tx)
        prefixes = {name: project_prefix(ProjectName(name)) for name in projects.names(tx)}
    found = begun_uploads(store, EVERYTHING)
    ours = [one for one in found if one.key.startswith(prefixes[project])]
    known_prefixes = (*prefixes.values(), INVENTORIES_PREFIX)
    foreign = sum(not one.key.startswith(known_prefixes) for one in found)
    named = {
        one.upload_id: UUID(key.attempt)
        for one in ours
        if isinstance(key := parse_key(one.key), AttemptKey)
    }
    with catalog.transaction() as tx:
        known = uploads.known(tx, project, set(named.values()))
    owners: dict[UploadId, Incomplete | None] = {}
    for one in ours:
        owner = known.get(named[one.upload_id]) if one.upload_id in named else None
        is_below = owner is not None and one.key.startswith(owner.prefix)
        owners[one.upload_id] = owner if is_below else None
    return Look(at, ours, owners, foreign)


def _listed_ones(store: Store, look: Look, project: Project) -> Iterator[Found]:
    wanted = [one for one in look.begun if _why(look.attempts[one.upload_id], look.at)]
    for one, parts in with_parts(store, wanted):
        attempt = look.attempts[one.upload_id]
        if parts is not None:
            yield Found(
                key=one.key,
                upload_id=one.upload_id,
                attempt_id=None if attempt is None else attempt.attempt_id,
                source="listed",
                owner=finding_owner(project) if attempt is None else attempt.holder,
                initiated_at=one.initiated_at,
                parts=len(parts),
                part_bytes=sum(part.size_bytes for part in parts),
                reason=_why(attempt, look.at),
            )


def _why(attempt: Incomplete | None, at: datetime) -> str:
    """Why an upload is incomplete; empty for one that is being written or committed."""
    if attempt is None:
        return "it is below no attempt's prefix"
    if attempt.state in _OVER:
        return f"left of an attempt that is {attempt.state}"
    if attempt.state == "failed":
        return "part of the evidence of a failed attempt"
    if attempt.is_incomplete(at):
        return f"no live lease since {attempt.lease_expires_at.isoformat()}"
    return ""


def with_parts(
    store: Store, begun: Iterable[BegunUpload]
) -> Iterator[tuple[BegunUpload, Sequence[Part] | None]]:
    """Each upload with the parts that it holds; None for one that ended meanwhile."""

    def ask(one: BegunUpload) -> tuple[BegunUpload, Sequence[Part] | None]:
        try:
            return one, store.parts(one.key, one.upload_id)
        except UploadGone:
            return one, None

    return several(ask, begun, over_network=store.profile.presigns)


def _recorded_ones(
    lapsed: Iterable[Incomplete], recorded: Mapping[UUID, Mapping[str, str]]
) -> Iterator[Found]:
    for attempt in lapsed:
        for path, upload_id in recorded[attempt.attempt_id].items():
            yield Found(
                key=object_key(attempt.prefix, path),
                upload_id=upload_id,
                attempt_id=attempt.attempt_id,
                source="recorded",
                owner=attempt.holder,
                initiated_at=None,
                parts=None,
                part_bytes=None,
                reason=_NOT_EVEN_LISTED,
            )


def _objects(store: Store, lapsed: Iterable[Incomplete]) -> Iterator[Found]:
    """What attempts left beside their uploads: published objects, or what jobs wrote into the
    store themselves."""
    for attempt in lapsed:
        found = listed(store, attempt.prefix)
        if found:
            yield Found(
                key=attempt.prefix,
                upload_id=OBJECTS,
                attempt_id=attempt.attempt_id,
                source="listed",
                owner=attempt.holder,
                initiated_at=None,
                parts=len(found),
                part_bytes=sum(one.size_bytes for one in found),
                reason=f"no live lease since {attempt.lease_expires_at.isoformat()}",
            )


def _settle(
    catalog: Catalog, store: Store, look: Look, before: Sequence[Entry], actor: str
) -> None:
    """What of the inventory is not there any more, or is no longer incomplete. The uploads of an
    attempt that is being cleaned up are not settled here: its closing proves all of them."""
    with catalog.transaction() as tx:
        ids = {one.attempt_id for one in before if one.attempt_id is not None}
        owners = uploads.known(tx, before[0].project, ids) if before else {}
    there = {(one.key, one.upload_id) for one in look.begun}
    went_on: dict[str, list[int]] = {}
    unlisted = []
    for one in before:
        owner = owners.get(one.attempt_id) if one.attempt_id is not None else None
        if owner is not None and not _why(owner, look.at):
            went_on.setdefault(f"its attempt is {owner.state}", []).append(one.entry_id)
        elif one.upload_id == OBJECTS:
            if owner is not None and owner.state == "committed":
                went_on.setdefault("its attempt was committed", []).append(one.entry_id)
            elif owner is not None and owner.state == "closed" and not listed(store, owner.prefix):
                unlisted.append(one)
        elif (owner is None or owner.state in _OVER) and (one.key, one.upload_id) not in there:
            unlisted.append(one)
    with catalog.transaction() as tx:
        for reason, entries in went_on.items():
            incomplete_uploads.move(
                tx, entries, "continued", reason=reason, actor=actor, at=history.now(tx)
            )
    prove_gone(catalog, store, unlisted, listed_at=look.at, actor=actor)


def prove_gone(
    catalog: Catalog, store: Store, unlisted: Sequence[Entry], *, listed_at: datetime, actor: str
) -> int:
    """Close the entries that a complete listing begun at `listed_at` did not show, and of which the
    store says, asked for each, that it knows no such upload. A server that lists too little is
    believed in neither. Answers how many are gone."""
    asked = [one for one in unlisted if one.upload_id != OBJECTS]
    begun = [BegunUpload(Key(one.key), UploadId(one.upload_id), None) for one in asked]
    answers = zip(asked, with_parts(store, begun), strict=True)
    gone = [entry.entry_id for entry, (_, parts) in answers if parts is None]
    gone += [one.entry_id for one in unlisted if one.upload_id == OBJECTS]
    with catalog.transaction() as tx:
        return incomplete_uploads.move(
            tx,
            gone,
            "gone",
            reason="a complete listing does not show it, and the store knows no such upload",
            actor=actor,
            at=history.now(tx),
            facts={"listed_at": listed_at.isoformat(), "asked": "no such upload"},
        )


def finding_owner(project: Project) -> str:
    """Who answers for what belongs to nobody in a project."""
    return str(project.config.get("finding_owner") or project.owner)
