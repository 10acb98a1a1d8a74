"""Aborting pending uploads until a store shows none.

One abort may leave a part that was in flight, so it is repeated until a complete listing is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from lastgood.catalog import history, projects, tombstones, uploads
from lastgood.catalog.db import Catalog
from lastgood.catalog.tombstones import KeyRecord, Tombstone
from lastgood.catalog.uploads import Incomplete
from lastgood.errors import Unavailable
from lastgood.rules.layout import AttemptKey, object_key, parse_key, project_prefix
from lastgood.rules.names import ProjectName
from lastgood.stores.base import Key, Outcome, PendingUpload, Prefix, Store, StoreError, UploadId
from lastgood.stores.open import Stores

ROUNDS = 5
_OVER = ("committed", "closed")  # of such an attempt no upload can ever be completed


@dataclass(frozen=True, slots=True)
class Aborted:
    """`gone`: a complete listing after the last abort showed no upload."""

    gone: bool
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class Strays:
    """Pending uploads outside the attempts that are being cleaned up. `unknown` are below a
    prefix of the project that belongs to no attempt: reported, never touched."""

    aborted: int
    freed_bytes: int
    unknown: tuple[str, ...]
    failed: Mapping[str, str]


def abort_all(catalog: Catalog, store: Store, tombstone: Tombstone) -> Aborted:
    """Abort every upload below the prefix of an attempt: those recorded, and those that the store
    lists. Raises StoreError, or Unavailable where a listing is not whole."""
    assert tombstone.attempt_id is not None
    with catalog.transaction() as tx:
        known = uploads.recorded_uploads(tx, tombstone.project, tombstone.attempt_id)
    pending = {
        (Key(object_key(tombstone.prefix, path)), UploadId(upload_id)): 0
        for path, upload_id in known.items()
    }
    freed = 0
    for _ in range(ROUNDS):
        listed = {
            (one.key, one.upload_id): one.part_bytes_held
            for one in _listed(store, tombstone.prefix)
        }
        freed += sum(listed.values())
        if not listed and not pending:
            return Aborted(True, freed)
        _abort(catalog, store, tombstone, pending | listed)
        pending = {}
    return Aborted(not list(_listed(store, tombstone.prefix)), freed)


def strays(catalog: Catalog, stores: Stores, project: str) -> Strays:
    """Look through every pending upload of a project: abort those of attempts that are over, once
    their grants have ended, and name those that belong to no attempt."""
    with catalog.transaction() as tx:
        names = projects.stores_of(tx, project)
    aborted = freed = 0
    unknown: list[str] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            store = stores[name]
            for one, attempt in _owned(catalog, store, project):
                if attempt is None:
                    unknown.append(f"{name}: {one.key} (upload {one.upload_id})")
                elif (
                    attempt.state in _OVER
                    and _is_quiet(catalog, attempt)
                    and store.abort_upload(one.key, one.upload_id) is Outcome.GONE
                ):
                    aborted += 1
                    freed += one.part_bytes_held
        except (StoreError, Unavailable) as error:
            failed[f"uploads in {name}"] = str(error)
    return Strays(aborted, freed, tuple(unknown), failed)


def _owned(
    catalog: Catalog, store: Store, project: str
) -> Iterator[tuple[PendingUpload, Incomplete | None]]:
    found = list(_listed(store, project_prefix(ProjectName(project))))
    owners = {
        one.upload_id: UUID(key.attempt)
        for one in found
        if isinstance(key := parse_key(one.key), AttemptKey)
    }
    with catalog.transaction() as tx:
        known = uploads.known(tx, project, owners.values())
    for one in found:
        owner = known.get(owners[one.upload_id]) if one.upload_id in owners else None
        yield one, owner if owner is not None and one.key.startswith(owner.prefix) else None


def _is_quiet(catalog: Catalog, attempt: Incomplete) -> bool:
    with catalog.transaction() as tx:
        return attempt.grant_expires_at < history.now(tx)


def _abort(
    catalog: Catalog,
    store: Store,
    tombstone: Tombstone,
    pending: Mapping[tuple[Key, UploadId], int],
) -> None:
    records = [
        KeyRecord(key, None, held, store.abort_upload(key, upload_id).value, f"upload {upload_id}")
        for (key, upload_id), held in pending.items()
    ]
    with catalog.transaction() as tx:
        tombstones.note(tx, tombstone, records, at=history.now(tx))


def _listed(store: Store, prefix: str) -> list[PendingUpload]:
    listing = store.uploads(Prefix(prefix))
    found = list(listing)
    if not listing.complete:
        raise Unavailable(
            what=f"store {store.name}", reason=f"its listing of uploads below {prefix} is not whole"
        )
    return found
