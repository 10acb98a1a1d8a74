"""Commit: from uploaded bytes to a checkpoint that may be restored.

seal -> complete the uploads -> verify -> manifest to the store -> transaction -> completion marker
-> control keys -> answer

Each step may be repeated, and a crash between any two is made good by `finish`, which takes an
attempt from wherever it stands to its end. The manifest lies in the store before the catalog names
it, and the marker comes after, so that a store alone tells what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from lastgood import faults
from lastgood.catalog import locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempt_objects, attempts, checkpoints, copies
from lastgood.catalog.jobs.attempt_objects import AttemptObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.generations import Writer
from lastgood.errors import AttemptState, LastgoodError
from lastgood.flows import control_keys
from lastgood.flows.jobs import commit_transaction, failures, sealing, verify
from lastgood.rules import layout
from lastgood.rules.canonical import parse_canonical
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import ForeignEntry, Key, KeyExists, Prefix, Store
from lastgood.stores.open import Stores

_WAIT, _WAIT_INLINE = timedelta(minutes=1), timedelta(seconds=10)
"""For whoever else reads the same attempt. A worker then reads, too: that one may hang."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a commit stands: committed with its checkpoint, failed with an error, or neither: it is
    sealed, and the reading is left to the workers."""

    attempt: Attempt
    checkpoint: Checkpoint | None = None
    error: LastgoodError | None = None

    def to_json(self) -> Mapping[str, Any]:
        """The outcome, small."""
        document: dict[str, Any] = {
            "attempt": str(self.attempt.attempt_id),
            "checkpoint": str(self.attempt.checkpoint),
            "state": self.attempt.state.value,
        }
        if self.checkpoint is not None:
            document["manifest_digest"] = self.checkpoint.manifest
        if self.error is not None:
            document |= {"error": self.error.type, "detail": str(self.error)}
        return document


def commit(
    catalog: Catalog, stores: Stores, writer: Writer, attempt_id: UUID, manifest: Manifest
) -> Outcome:
    """Commit an attempt with its manifest; the same manifest again gives the same answer. Sealed
    without a checkpoint in the outcome means that verification reads more than a client should wait
    for. Raises what `sealing.seal` raises, IntegrityFailure with every bad object named."""
    attempt = sealing.seal(catalog, writer, attempt_id, manifest)
    faults.point("commit.after-seal")
    outcome = _finish(catalog, stores, attempt, read_limit_bytes=verify.INLINE_BYTES)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def finish(catalog: Catalog, stores: Stores, attempt_id: UUID) -> Mapping[str, Any]:
    """Take a sealed or committed attempt to its end, however much is to be read, and say what
    became of it. Raises AttemptState for an attempt that was never sealed, and StoreError or others
    where something cannot serve now: then it is to be repeated."""
    with catalog.transaction() as tx:
        attempt = attempts.get(tx, None, attempt_id)
    control_keys.guard(catalog, stores, attempt.project)
    return _finish(catalog, stores, attempt, read_limit_bytes=None).to_json()


def _finish(
    catalog: Catalog, stores: Stores, attempt: Attempt, *, read_limit_bytes: int | None
) -> Outcome:
    if attempt.state is State.FAILED:
        return Outcome(attempt, error=failures.error_of(catalog, attempt))
    store = stores[attempt.store]
    if attempt.state is State.COMMITTED:
        return _prove(catalog, stores, store, attempt)
    attempts.require(attempt, State.SEALED, action="finishing its commit")
    if verify.attests(store):
        return _verified(catalog, stores, attempt, read_limit_bytes)
    with catalog.transaction_apart() as reading:
        wait = _WAIT if read_limit_bytes is None else _WAIT_INLINE
        alone = locks.verifying(reading, attempt.attempt_id, wait=wait)
        if not alone and read_limit_bytes is not None:
            return Outcome(attempt)
        with catalog.transaction() as tx:
            attempt = attempts.get(tx, attempt.project, attempt.attempt_id)
        if attempt.state is State.SEALED:
            return _verified(catalog, stores, attempt, read_limit_bytes)
    return _finish(catalog, stores, attempt, read_limit_bytes=read_limit_bytes)


def _verified(
    catalog: Catalog, stores: Stores, attempt: Attempt, read_limit_bytes: int | None
) -> Outcome:
    """Verify a sealed attempt from where its verified objects end, and commit it."""
    store = stores[attempt.store]
    with catalog.transaction() as tx:
        content = attempts.manifest_of(tx, attempt)
        objects = attempt_objects.of(tx, attempt)
    assert content is not None, "an attempt is sealed with its manifest"
    manifest = parse_canonical(content)
    known = verify.Verification.so_far(objects)
    try:
        _verify(catalog, store, attempt, manifest, objects, known, read_limit_bytes)
    except verify.LongRead:
        return Outcome(attempt)
    except ForeignEntry as foreign:
        # A job put something else in the place of a folder: waiting would change nothing.
        found = verify.unexpected(foreign.facts["what"])
        known.problems[f"../{foreign.facts['key']}"] = found
    faults.point("commit.after-verify")
    if not known.problems:
        _put_manifest(catalog, store, attempt, content, known)
    if known.problems:
        attempt, bad = failures.fail_integrity(catalog, attempt, known)
        return Outcome(attempt, error=bad)
    faults.point("commit.after-manifest")
    error = commit_transaction.record(catalog, attempt, manifest, content, known)
    if error is not None:
        with catalog.transaction() as tx:
            now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if isinstance(error, AttemptState):
            error = failures.error_of(catalog, now)
        return Outcome(now, error=error)
    faults.point("commit.after-transaction")
    return _prove(catalog, stores, store, attempt)


def _verify(
    catalog: Catalog,
    store: Store,
    attempt: Attempt,
    manifest: Manifest,
    objects: Sequence[AttemptObject],
    known: verify.Verification,
    read_limit_bytes: int | None,
) -> None:
    """Publish the objects and verify those of which nothing is known."""
    verify.complete_uploads(store, attempt, objects, known)
    faults.point("commit.after-complete")
    if store.profile.direct:
        # Before it is read, so that what was verified is what stays.
        store.protect(Prefix(f"{attempt.prefix}{layout.OBJECTS_NAME}"))
        known.problems |= verify.unexpected_objects(store, attempt, manifest)
    verify.verify(catalog, store, attempt, manifest, known, read_limit_bytes=read_limit_bytes)


def _put_manifest(
    catalog: Catalog, store: Store, attempt: Attempt, content: bytes, known: verify.Verification
) -> None:
    """Only while the attempt is sealed, and never beside a deletion: whoever was stopped before
    this, and goes on after others have ended and deleted it all, writes nothing there again. Where
    jobs write into the store themselves, one may have put another manifest there."""
    with catalog.transaction() as tx:
        locks.carrying_out(tx, attempt.prefix)
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if now.state is not State.SEALED:
            return
        try:
            store.put_new(Key(layout.manifest_key(attempt.prefix)), content)
        except KeyExists:
            known.problems[f"../{layout.MANIFEST_NAME}"] = verify.unexpected("another manifest")


def _prove(catalog: Catalog, stores: Stores, store: Store, attempt: Attempt) -> Outcome:
    """Marker and control keys: what lets a store alone tell that this was committed. A copy that a
    sweep has taken since gets no marker again, however long this waited before it writes."""
    with catalog.transaction() as tx:
        locks.carrying_out(tx, attempt.prefix)
        attempt = attempts.get(tx, attempt.project, attempt.attempt_id)
        checkpoint = checkpoints.of_attempt(tx, attempt)
        copy = next(
            copy
            for copy in copies.of_checkpoints(tx, attempt.project, [checkpoint.checkpoint_id])
            if copy.store == attempt.store
        )
        if attempt.finished_at is not None:
            return Outcome(attempt, checkpoint)
        if copy.state is copies.State.PRESENT:
            marker = layout.marker_bytes(checkpoint.manifest)
            store.put_new(Key(layout.marker_key(attempt.prefix)), marker)
    faults.point("commit.after-marker")
    into = control_keys.stores_for(catalog, stores, attempt.project, attempt.store)
    control_keys.publish(catalog, into, attempt.project, attempt.stage_id)
    faults.point("commit.after-control-key")
    with catalog.transaction() as tx:
        attempts.finished(tx, attempt)
    return Outcome(attempt, checkpoint)
