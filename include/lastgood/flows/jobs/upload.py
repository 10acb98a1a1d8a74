"""Upload: grants to send parts, and the receiving of parts for stores that take none themselves.

A grant never changes a committed object: parts belong to an upload that only the coordinator
completes, after it sealed the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from urllib.parse import quote
from uuid import UUID

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempt_objects, attempts, generations, stages
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.generations import Writer
from lastgood.errors import GrantExpired, InvalidInput, Unavailable
from lastgood.flows.policies import policy_of
from lastgood.rules import layout
from lastgood.stores.base import Key, Part, Store, UploadGone, UploadId
from lastgood.stores.open import Stores
from lastgood.stores.parts import part_count, part_size

NUMBERS_LIMIT = 1_000
NONE: Mapping[tuple[str, int], str] = MappingProxyType({})
_URL_MARGIN_SECONDS = 1


@dataclass(frozen=True, slots=True)
class PartUrl:
    """Where one part goes. A relative URL is below the coordinator's own API and needs a token."""

    path: str
    number: int
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send parts until `expires_at`."""

    expires_at: datetime
    lease_expires_at: datetime
    urls: Sequence[PartUrl]


@dataclass(frozen=True, slots=True)
class Slot:
    """The place for one part that is about to be received."""

    attempt: Attempt
    store: Store
    key: Key
    upload_id: UploadId
    number: int
    size_bytes: int


def grant(
    catalog: Catalog,
    stores: Stores,
    attempt: Attempt,
    parts: Mapping[str, Sequence[int]],
    digests: Mapping[tuple[str, int], str] = NONE,
) -> Grant:
    """Renew the lease and the grant of an open attempt, and say where these parts go (by path).
    Where the store checks parts against their SHA-256, `digests` names each one's.

    Raises FencedGeneration, LeaseExpired, AttemptState, NotFound for an unknown path, InvalidInput
    for a part that an object does not have, or whose digest is needed and missing.
    """
    asked = sum(len(numbers) for numbers in parts.values())
    if asked > NUMBERS_LIMIT:
        raise InvalidInput(where="$.parts", reason=f"{asked} parts; at most {NUMBERS_LIMIT}")
    started = time.monotonic()
    with catalog.transaction() as tx:
        now = history.now(tx)
        renewed = renew(tx, attempt, with_grant=True)
        objects = attempt_objects.at(tx, attempt, parts)
    elapsed = timedelta(seconds=time.monotonic() - started)
    left = renewed.grant_expires_at - now - elapsed
    urls = [
        _url(stores, renewed, objects[path], number, left, digests.get((path, number)))
        for path, numbers in parts.items()
        for number in numbers
    ]
    return Grant(renewed.grant_expires_at, renewed.lease_expires_at, urls)


def renew(tx: Transaction, attempt: Attempt, *, with_grant: bool) -> Attempt:
    """Extend an open attempt whose generation may still write, under the stage's lock."""
    stage = stages.locked(tx, attempt.project, attempt.stage_id)
    policy = policy_of(tx, attempt.project)
    generations.require_writing(tx, stage, _writer(attempt))
    locks.attempt(tx, attempt.attempt_id)
    now = attempts.get(tx, attempt.project, attempt.attempt_id)
    attempts.require(now, State.OPEN, action="extending it")
    return attempts.renew(
        tx, now, lease=policy.leases.writer, grant=policy.leases.grant if with_grant else None
    )


def slot_for(
    catalog: Catalog, stores: Stores, attempt: Attempt, path: str, number: int, size_bytes: int
) -> Slot:
    """Where a part of this size that comes now goes. Raises GrantExpired, FencedGeneration,
    AttemptState, NotFound, InvalidInput."""
    with catalog.transaction() as tx:
        _require_receiving(tx, attempt)
        item = attempt_objects.at(tx, attempt, [path])[path]
    store = stores[attempt.store]
    _require_part(item, number)
    if item.upload_id is None or item.part_bytes is None:
        reason = "its bytes are not sent to the coordinator: see how the attempt was prepared"
        raise InvalidInput(where=f"object {path!r}", reason=reason)
    expected = part_size(item.size_bytes, item.part_bytes, number)
    if size_bytes != expected:
        reason = f"{size_bytes} bytes announced for part {number}, which has {expected}"
        raise InvalidInput(where="Content-Length", reason=reason)
    key = Key(layout.object_key(attempt.prefix, path))
    return Slot(attempt, store, key, UploadId(item.upload_id), number, size_bytes)


def receive(catalog: Catalog, slot: Slot, chunks: Iterable[bytes]) -> Part:
    """Write a part as it comes. Raises AttemptState or FencedGeneration if that happened while it
    came, and Unavailable where the same part was sent again meanwhile: one of the two is whole, and
    sending it once more settles which."""
    try:
        received = slot.store.write_part(
            slot.key, slot.upload_id, slot.number, slot.size_bytes, chunks
        )
    except UploadGone:
        _confirm(catalog, slot)
        reason = "it was sent again before this was over"
        raise Unavailable(what=f"part {slot.number} of the object", reason=reason) from None
    _confirm(catalog, slot)
    return received


def _confirm(catalog: Catalog, slot: Slot) -> None:
    """After a part was received: was the attempt still open? Its state cannot change while this
    looks, so a part that is confirmed came before the sealing."""
    with catalog.transaction() as tx:
        locks.attempt_shared(tx, slot.attempt.attempt_id)
        now = attempts.get(tx, slot.attempt.project, slot.attempt.attempt_id)
        attempts.require(now, State.OPEN, action="writing to it")
        _require_not_fenced(tx, now)


def _require_receiving(tx: Transaction, attempt: Attempt) -> None:
    _require_not_fenced(tx, attempt)
    now = attempts.get(tx, attempt.project, attempt.attempt_id)
    attempts.require(now, State.OPEN, action="writing to it")
    if not now.grant_live:
        raise GrantExpired(attempt=str(attempt.attempt_id), expires_at=now.grant_expires_at)


def _require_not_fenced(tx: Transaction, attempt: Attempt) -> None:
    stage = stages.get(tx, attempt.project, attempt.stage_id)
    generations.require_writing(tx, stage, _writer(attempt))


def _require_part(item: AttemptObject, number: int) -> None:
    count = 0 if item.part_bytes is None else part_count(item.size_bytes, item.part_bytes)
    if not 1 <= number <= count:
        raise InvalidInput(
            where=f"object {item.path!r}", reason=f"part {number}; it has parts 1 to {count}"
        )


def _writer(attempt: Attempt) -> Writer:
    return Writer(attempt.project, attempt.stage_id, attempt.generation)


def needs_digests(store: Store) -> bool:
    """Whether a part is granted only with its SHA-256: then the store proves it on arrival."""
    return store.profile.presigns and store.profile.attests_sha256


def _url(
    stores: Stores,
    attempt: Attempt,
    item: AttemptObject,
    number: int,
    left: timedelta,
    sha256: str | None,
) -> PartUrl:
    _require_part(item, number)
    store = stores[attempt.store]
    if not store.profile.presigns:
        url = f"{object_url(attempt.attempt_id, item.path)}?part={number}"
        return PartUrl(item.path, number, url)
    if needs_digests(store) and sha256 is None:
        raise InvalidInput(
            where=f"object {item.path!r}",
            reason=f"part {number} is granted for its SHA-256: give `sha256` beside `numbers`",
        )
    if item.upload_id is None:
        raise InvalidInput(
            where=f"object {item.path!r}", reason="prepare was not answered yet; repeat it first"
        )
    seconds = max(1, int(left.total_seconds()) - _URL_MARGIN_SECONDS)
    key = Key(layout.object_key(attempt.prefix, item.path))
    upload_id = UploadId(item.upload_id)
    signed = store.presign_part(key, upload_id, number, seconds, sha256=sha256)
    return PartUrl(item.path, number, signed.url, signed.headers)


def object_url(attempt_id: UUID, path: str) -> str:
    """An object's place below the coordinator, where it is mounted."""
    return f"/lastgood/v1/runner/objects/{attempt_id}/{quote(path, safe='/')}"
