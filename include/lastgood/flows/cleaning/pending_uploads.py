"""Aborting pending uploads until a store shows none.

One abort may leave a part that was in flight, or let it come after it, so it is repeated until a
complete listing is empty and the store knows none of the uploads. Each abort is a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lastgood.catalog import history
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.cleaning.incomplete_uploads import Entry, Found, Try
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import uploads
from lastgood.catalog.jobs.uploads import Incomplete
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.sweeping.tombstones import KeyRecord, Tombstone
from lastgood.flows.cleaning.upload_look import with_parts
from lastgood.rules.layout import object_key
from lastgood.stores.base import Key, Prefix, Store, StoreError, UploadId
from lastgood.stores.begun import begun_uploads, several

ROUNDS = 5
_BATCH = 256
Named = tuple[str, str]  # a key, and the id of an upload to it


@dataclass(frozen=True, slots=True)
class Aborted:
    """`gone`: a complete listing after the last abort showed no upload."""

    gone: bool
    freed_bytes: int


def abort_all(
    catalog: Catalog, store: Store, attempt: Incomplete, tombstone: Tombstone, actor: str
) -> Aborted:
    """Abort every upload below the prefix of an attempt: those recorded, and those that the store
    lists. Raises StoreError, or Unavailable where a listing is not whole."""
    project, freed = tombstone.project, 0
    with catalog.transaction() as tx:
        recorded = uploads.recorded_uploads(tx, project, attempt.attempt_id)
        counted = _counted(incomplete_uploads.of_attempt(tx, project, attempt.attempt_id))
    unlisted = [
        _found(attempt, object_key(attempt.prefix, path), upload_id)
        for path, upload_id in recorded.items()
    ]
    for _ in range(ROUNDS):
        listed = list(_listed(store, attempt, counted))
        if not listed and not unlisted:
            return Aborted(True, freed)
        named = {(one.key, one.upload_id) for one in listed}
        todo = [
            *listed, *(one for one in unlisted if (one.key, one.upload_id) not in named)
        ]  # fmt: skip
        with catalog.transaction() as tx:
            at = history.now(tx)
            incomplete_uploads.see(tx, project, store.name, todo, actor=actor, at=at)
            known = incomplete_uploads.of_attempt(tx, project, attempt.attempt_id)
        asked = {(one.key, one.upload_id) for one in todo}
        entries = [one for one in known if (one.key, one.upload_id) in asked]
        freed += abort(catalog, store, entries, actor=actor, tombstone=tombstone)
        unlisted, counted = [], {}
    return Aborted(not begun_uploads(store, Prefix(attempt.prefix)), freed)


def _counted(entries: Iterable[Entry]) -> Mapping[Named, Entry]:
    """Those whose parts were counted when nobody had a grant any more to send another."""
    return {
        (one.key, one.upload_id): one
        for one in entries
        if one.part_bytes is not None
        and one.listed_at is not None
        and one.grant_expires_at is not None
        and one.listed_at > one.grant_expires_at
    }


def _listed(store: Store, attempt: Incomplete, counted: Mapping[Named, Entry]) -> Iterator[Found]:
    """What the store lists now, with its parts: asked for, unless they were `counted`."""
    begun = begun_uploads(store, Prefix(attempt.prefix))
    for one in begun:
        known = counted.get((one.key, one.upload_id))
        if known is not None:
            yield _found(attempt, one.key, one.upload_id, known.parts, known.part_bytes)
    rest = [one for one in begun if (one.key, one.upload_id) not in counted]
    for one, parts in with_parts(store, rest):
        if parts is not None:
            held = sum(part.size_bytes for part in parts)
            yield _found(attempt, one.key, one.upload_id, len(parts), held)


def _found(
    attempt: Incomplete,
    key: str,
    upload_id: str,
    parts: int | None = None,
    part_bytes: int | None = None,
) -> Found:
    return Found(
        key=key,
        upload_id=upload_id,
        attempt_id=attempt.attempt_id,
        source="recorded" if parts is None else "listed",
        owner=attempt.holder,
        initiated_at=None,
        parts=parts,
        part_bytes=part_bytes,
        reason=f"its attempt is {attempt.state}",
    )


def abort(
    catalog: Catalog,
    store: Store,
    entries: Sequence[Entry],
    *,
    actor: str,
    tombstone: Tombstone | None = None,
) -> int:
    """Abort each of these uploads once, and write down what came of each, also of those that the
    store refused. Answers the bytes that their parts held. Raises the first StoreError after
    that."""
    freed = 0
    with catalog.transaction() as tx:
        incomplete_uploads.move(
            tx,
            [one.entry_id for one in entries],
            "aborting",
            reason="nobody continues it",
            actor=actor,
            at=history.now(tx),
        )
    for start in range(0, len(entries), _BATCH):
        batch = entries[start : start + _BATCH]
        answers = list(
            several(lambda one: _ask(store, one), batch, over_network=store.profile.presigns)
        )
        tries = {entry.entry_id: found for entry, (found, _) in zip(batch, answers, strict=True)}
        with catalog.transaction() as tx:
            at = history.now(tx)
            incomplete_uploads.tried(tx, tries, actor=actor, at=at)
            if tombstone is not None:
                tombstones.note(tx, tombstone, _records(batch, tries), at=at)
        freed += sum(one.part_bytes for one in tries.values() if one.outcome == "gone")
        for _, error in answers:
            if error is not None:
                raise error
    return freed


def _ask(store: Store, entry: Entry) -> tuple[Try, StoreError | None]:
    held = entry.part_bytes or 0
    try:
        outcome = store.abort_upload(Key(entry.key), UploadId(entry.upload_id))
    except StoreError as error:
        return Try("failed", held, str(error)), error
    return Try("gone" if outcome.value == "gone" else "absent", held), None


def _records(entries: Sequence[Entry], tries: Mapping[int, Try]) -> Iterator[KeyRecord]:
    for entry in entries:
        one = tries[entry.entry_id]
        outcome = "refused" if one.outcome == "failed" else one.outcome
        reason = one.reason or f"upload {entry.upload_id}"
        yield KeyRecord(entry.key, None, one.part_bytes, outcome, reason)
