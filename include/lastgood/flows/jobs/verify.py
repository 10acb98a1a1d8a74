"""Verify: are the bytes of a sealed attempt what its manifest says? Every verdict is kept, so that
a restart goes on where the verified objects end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempt_objects, attempts
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.errors import Unavailable
from lastgood.rules import layout
from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.stores.base import (
    Key,
    KeyExists,
    Part,
    PartInvalid,
    Prefix,
    Store,
    UploadGone,
    UploadId,
)
from lastgood.stores.hashing import ExpectedObject, Verdict, VerifiedObject, verify_as_completed

INLINE_BYTES = 256 << 20
"""What a commit may read while its client waits; more is left to the workers."""

_COMPLETERS = 8
_RECORD_OBJECTS = 256
_RECORD_SECONDS = 2.0
UNEXPECTED_OBJECT = "unexpected-object"

Problem = Mapping[str, Any]  # {problem, expected, found}


class LongRead(Exception):
    """More bytes would have to be read than the caller allowed: the rest is for others."""


@dataclass(slots=True)
class Verification:
    """What is known of an attempt's objects: the good ones with the version that was verified (None
    where the store has no versions), and the bad ones with their problem. `unrecorded` are the
    paths that the catalog does not know this of yet."""

    versions: dict[str, str | None] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    unrecorded: set[str] = field(default_factory=set)

    @classmethod
    def so_far(cls, objects: Sequence[AttemptObject]) -> Verification:
        """As an earlier try recorded it."""
        return cls(
            {item.path: item.version_id for item in objects if item.verified_at is not None},
            {item.path: item.problem for item in objects if item.problem is not None},
        )

    def good(self, path: str, version: str | None) -> None:
        self.versions[path] = version
        self.unrecorded.add(path)

    def bad(self, path: str, problem: Problem) -> None:
        self.problems[path] = problem
        self.unrecorded.add(path)

    def is_open(self, path: str) -> bool:
        """Whether nothing is known of an object."""
        return path not in self.versions and path not in self.problems

    def record(self, tx: Transaction, attempt: Attempt) -> None:
        """Write down what the catalog does not know yet."""
        attempt_objects.record_verified(
            tx,
            attempt,
            {path: self.versions[path] for path in self.unrecorded if path in self.versions},
            {path: self.problems[path] for path in self.unrecorded if path in self.problems},
        )
        self.unrecorded.clear()


def attests(store: Store) -> bool:
    """Whether a store proves what it received, so that nothing need be read to verify it."""
    return store.profile.attests_sha256 and not store.profile.direct


def pending(catalog: Catalog) -> list[UUID]:
    """The attempts that a commit left to be finished, of every project, oldest first: sealed ones,
    and committed ones whose marker or control keys a crash may have prevented."""
    with catalog.transaction() as tx:
        return attempts.unfinished(tx)


def complete_uploads(
    store: Store, attempt: Attempt, objects: Sequence[AttemptObject], known: Verification
) -> None:
    """Publish the objects of a sealed attempt. What lacks parts gets a problem; the others are
    published, so that every bad object can be named."""
    todo = [item for item in objects if item.upload_id is not None and known.is_open(item.path)]
    if not todo:
        return
    with ThreadPoolExecutor(min(_COMPLETERS, len(todo))) as threads:
        found = list(threads.map(lambda item: _complete(store, attempt, item), todo))
    for item, problem in zip(todo, found, strict=True):
        if problem is not None:
            known.bad(item.path, problem)


def _complete(store: Store, attempt: Attempt, item: AttemptObject) -> Problem | None:
    key = Key(layout.object_key(attempt.prefix, item.path))
    upload_id = UploadId(item.upload_id or "")
    try:
        parts = store.parts(key, upload_id)
        problem = _shortage(item, parts)
        if problem is None:
            store.complete_upload(key, upload_id, parts)
            return None
    except PartInvalid as error:
        problem = _other_size(item.size_bytes, str(error))
    except (UploadGone, KeyExists):
        return None  # an earlier call published it, or nobody did: verification tells
    # Parts vanish while another call completes the upload, but not before the object is there.
    return None if store.stat(key) is not None else problem


def _shortage(item: AttemptObject, parts: Sequence[Part]) -> Problem | None:
    held_bytes = sum(part.size_bytes for part in parts)
    if not parts:
        return {"problem": Verdict.MISSING_OBJECT.value, "expected": item.sha256, "found": None}
    return None if held_bytes == item.size_bytes else _other_size(item.size_bytes, held_bytes)


def _other_size(expected: int, found: int | str) -> Problem:
    return {"problem": Verdict.SIZE_MISMATCH.value, "expected": expected, "found": found}


def verify(
    catalog: Catalog,
    store: Store,
    attempt: Attempt,
    manifest: Manifest,
    known: Verification,
    *,
    read_limit_bytes: int | None = None,
) -> None:
    """Verify every object of which nothing is known. What takes long is recorded on the way; the
    rest of the verdicts is the caller's to record. Raises LongRead, with all verdicts recorded, if
    more than `read_limit_bytes` would have to be read."""
    todo = [item for item in manifest.objects if known.is_open(item.path)]
    budget = _Budget(read_limit_bytes)
    recorded = time.monotonic()
    try:
        if not attests(store):
            budget.require(sum(item.size_bytes for item in todo))
        for path, verdict in _verdicts(store, attempt, todo, budget):
            if verdict.ok:
                known.good(path, verdict.version_id)
            else:
                known.bad(path, _problem(verdict))
            late = time.monotonic() - recorded > _RECORD_SECONDS
            if late or len(known.unrecorded) >= _RECORD_OBJECTS:
                _record(catalog, attempt, known)
                recorded = time.monotonic()
    except BaseException:
        _record(catalog, attempt, known)
        raise


class _Budget:
    """How many bytes may still be read."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._read_bytes = 0

    def require(self, size_bytes: int) -> None:
        if self._limit_bytes is not None and self._read_bytes + size_bytes > self._limit_bytes:
            raise LongRead

    def spend(self, size_bytes: int) -> None:
        """Called from many threads; a lost addition only reads a little further."""
        self.require(size_bytes)
        self._read_bytes += size_bytes


def _verdicts(
    store: Store, attempt: Attempt, objects: Sequence[ManifestObject], budget: _Budget
) -> Iterator[tuple[str, VerifiedObject]]:
    paths = {Key(layout.object_key(attempt.prefix, item.path)): item for item in objects}
    expected = [
        ExpectedObject(
            key, item.size_bytes, item.sha256, item.part_bytes, tuple(item.part_sha256 or ())
        )
        for key, item in paths.items()
    ]
    for verdict in verify_as_completed(store, expected, progress=budget.spend):
        yield paths[verdict.key].path, verdict


def unexpected_objects(store: Store, attempt: Attempt, manifest: Manifest) -> dict[str, Problem]:
    """What a job left in its attempt's folder beside the objects of the manifest: it would be part
    of a checkpoint that does not name it. Paths of other places than that of the objects begin with
    `../`. Raises Unavailable if the store does not list it all."""
    named = {layout.object_key(attempt.prefix, item.path) for item in manifest.objects}
    named.add(layout.manifest_key(attempt.prefix))  # from an earlier try of this commit
    objects = f"{attempt.prefix}{layout.OBJECTS_NAME}"
    found: dict[str, Problem] = {}
    listing = store.list(Prefix(attempt.prefix))
    for entry in listing:
        if entry.key in named:
            continue
        outside = not entry.key.startswith(objects)
        path = (
            "../" + entry.key.removeprefix(attempt.prefix) if outside else entry.key[len(objects) :]
        )
        found[path] = unexpected(entry.foreign or entry.size_bytes)
    if not listing.complete:
        reason = f"it did not list all of {attempt.prefix}"
        raise Unavailable(what=f"store {store.name}", reason=reason)
    return found


def unexpected(found: str | int) -> Problem:
    """The problem of something that is in nobody's manifest."""
    return {"problem": UNEXPECTED_OBJECT, "expected": None, "found": found}


def _problem(verdict: VerifiedObject) -> Problem:
    return {
        "problem": verdict.verdict.value,
        "expected": verdict.expected,
        "found": verdict.found,
    }


def _record(catalog: Catalog, attempt: Attempt, known: Verification) -> None:
    if known.unrecorded:
        with catalog.transaction() as tx:
            known.record(tx, attempt)
