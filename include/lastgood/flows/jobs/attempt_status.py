"""Where an attempt stands, for its writer to poll and for a rank to resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempt_objects, attempts
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.rules import layout
from lastgood.rules.canonical import digest
from lastgood.stores.base import Key, Part, Store, UploadGone, UploadId
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """An attempt with how far its verification is. `parts` are those that the store holds, by path,
    where they were asked for."""

    attempt: Attempt
    objects: int
    objects_verified: int
    total_bytes: int
    bytes_verified: int
    problems: Sequence[Mapping[str, Any]]
    manifest_digest: str | None
    parts: Mapping[str, Sequence[Part]] | None


def status(
    catalog: Catalog,
    stores: Stores,
    attempt: Attempt,
    *,
    parts: bool,
    path: str | None = None,
) -> AttemptStatus:
    """Read an attempt; `parts` asks its store what it holds of each open upload, or of that of the
    object at `path` alone."""
    with catalog.transaction() as tx:
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        objects = attempt_objects.of(tx, now)
        manifest = attempts.manifest_of(tx, now)
    verified = [item for item in objects if item.verified_at is not None]
    held = None
    if parts:
        store = stores[now.store]
        held = {item.path: _held(store, now, item) for item in objects if path in (None, item.path)}
    return AttemptStatus(
        now,
        len(objects),
        len(verified),
        sum(item.size_bytes for item in objects),
        sum(item.size_bytes for item in verified),
        [{"path": item.path, **item.problem} for item in objects if item.problem is not None],
        None if manifest is None else digest(manifest),
        held,
    )


def _held(store: Store, attempt: Attempt, item: AttemptObject) -> Sequence[Part]:
    if item.upload_id is None or attempt.state is not State.OPEN:
        return ()
    key = Key(layout.object_key(attempt.prefix, item.path))
    try:
        return store.parts(key, UploadId(item.upload_id))
    except UploadGone:
        return ()
