"""Removing what lies below a prefix that has a tombstone, and asking the store again.

The completion marker goes first: from then on the store itself says that nothing here is a
checkpoint. Then the objects, and last the manifest, which says what the objects were. Every step
may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.sweeping.tombstones import KeyRecord, Tombstone
from lastgood.errors import Unavailable
from lastgood.faults import point
from lastgood.flows.retention import lock_looks
from lastgood.flows.sweeping import named_keys
from lastgood.rules.copy_locks import LockLook
from lastgood.rules.layout import AttemptKey, AttemptPart, parse_key
from lastgood.stores.base import (
    Key,
    Lock,
    ObjectLocked,
    Outcome,
    Prefix,
    Store,
    StoredObject,
    StoreError,
)

BATCH_KEYS = 4000  # of which nothing is written down before all of them were answered
NOT_OURS = "lastgood did not write it"
STILL_THERE = "it is there after its deletion"
NOT_THERE = "neither listed nor found by its name"


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of a prefix. `gone`: a later complete listing found nothing. `left` are the keys
    that are still there, `refused` those that the store would not delete; at most a few of each."""

    gone: bool
    keys: int
    freed_bytes: int
    refused: Mapping[str, str]
    left: tuple[str, ...]
    locked: int = 0  # versions that a lock keeps, or may keep: then nothing was deleted
    look: LockLook | None = None  # where the store was asked for locks

    def require_none_refused(self, store: str) -> None:
        """Raise ObjectLocked where a lock keeps something, StoreError where a key was refused."""
        if not self.refused:
            return
        key, reason = next(iter(self.refused.items()))
        if self.locked:
            raise ObjectLocked(store=store, key=key, count=self.locked, reason=reason)
        raise StoreError(store=store, key=key, reason=f"not deleted: {reason}")

    @property
    def evidence(self) -> dict[str, object]:
        """What proves that the bytes are gone."""
        return {"listing": "complete", "keys_left": len(self.left), "keys_removed": self.keys}


@dataclass(frozen=True, slots=True)
class Points:
    """Where a test may kill the process, in the order of the steps."""

    marker: str | None
    some_objects: str
    objects: str
    manifest: str | None
    listing: str | None


SWEEP = Points(
    "sweep.after-marker",
    "sweep.after-some-objects",
    "sweep.after-objects",
    "sweep.after-manifest",
    "sweep.after-listing",
)
CLEANUP = Points(None, "cleanup.after-some-objects", "cleanup.after-objects", None, None)


def remove(catalog: Catalog, store: Store, tombstone: Tombstone, points: Points) -> Removal:
    """Delete everything of ours below the tombstone's prefix, one recorded outcome for each
    key, list again, and ask for each key that the catalog names. What is not ours stays and is
    named. While a lock keeps one version, all stay, the marker too. Raises StoreError or
    Unavailable where the store does not tell: then nothing is proven, and the next run goes on."""
    named = named_keys.named(catalog, tombstone)
    found = listed(store, tombstone.prefix)
    found += named_keys.unlisted(store, named, found)
    found.sort(key=lambda one: one.is_delete_marker)  # nothing shows again while it goes
    ours = {part: [one for one in found if _part(one, tombstone) is part] for part in AttemptPart}
    removing = _Removing(catalog, store, tombstone)
    look = None
    if store.profile.locks:
        asked = [one for part in ours.values() for one in part]
        locked = store.locked(asked)
        with catalog.transaction() as tx:
            look = lock_looks.told_by(asked, locked, history.now(tx))
        if locked:
            return removing.locked(found, locked, look)
    removing.delete(ours[AttemptPart.MARKER])
    _reach(points.marker)
    objects = ours[AttemptPart.OBJECT]
    removing.delete(objects[:1])
    _reach(points.some_objects)
    removing.delete(objects[1:])
    _reach(points.objects)
    removing.delete(ours[AttemptPart.MANIFEST])
    _reach(points.manifest)
    left = listed(store, tombstone.prefix)
    left += named_keys.unlisted(store, named, left)
    removing.note_left(left)
    if not left:
        removing.note_absent(named)
    _reach(points.listing)
    return Removal(
        gone=not left,
        keys=removing.keys,
        freed_bytes=removing.freed_bytes,
        refused=removing.refused,
        left=tuple(one.key for one in left[:20]),
        look=look,
    )


def listed(store: Store, prefix: str) -> list[StoredObject]:
    """Everything below a prefix, all versions and what is hidden too. Raises Unavailable unless the
    store said that this is all."""
    listing = store.list(Prefix(prefix), versions=store.profile.versioned)
    found = list(listing)
    if not listing.complete:
        raise Unavailable(
            what=f"store {store.name}", reason=f"its listing of {prefix} is not whole"
        )
    return found


class _Removing:
    """Deletes in batches and writes down what became of each key before the next batch."""

    def __init__(self, catalog: Catalog, store: Store, tombstone: Tombstone) -> None:
        self._catalog = catalog
        self._store = store
        self._tombstone = tombstone
        self.keys = 0
        self.freed_bytes = 0
        self.refused: dict[str, str] = {}
        self._gone: set[tuple[str, str | None]] = set()

    def delete(self, objects: Sequence[StoredObject]) -> None:
        for start in range(0, len(objects), BATCH_KEYS):
            told: list[KeyRecord] = []
            try:
                told.extend(self._outcomes(objects[start : start + BATCH_KEYS]))
            finally:
                self._note(told)  # also where the store broke off: what it said before counts

    def locked(
        self,
        found: Sequence[StoredObject],
        locked: Mapping[tuple[Key, str | None], Lock],
        look: LockLook,
    ) -> Removal:
        """Write down which versions are locked, each once however often it is asked for. Nothing
        was deleted."""
        self.refused |= {key: lock.reason for (key, _), lock in locked.items()}
        with self._catalog.transaction() as tx:
            told = tombstones.newest_outcomes(tx, self._tombstone)
        self._note(
            [
                KeyRecord(one.key, one.version_id, one.size_bytes, "refused", lock.reason)
                for one in found
                for lock in [locked.get((one.key, one.version_id))]
                if lock is not None and told.get((one.key, one.version_id)) != "refused"
            ]
        )
        left = tuple(one.key for one in found[:20])
        return Removal(False, 0, 0, self.refused, left, locked=len(locked), look=look)

    def note_left(self, objects: Sequence[StoredObject]) -> None:
        """Write down what is there after the deletion as refused: what is not ours keeps the
        tombstone open until somebody looks, and so does what the store said was gone."""
        records = []
        for one in objects:
            if _part(one, self._tombstone) is None:
                reason = NOT_OURS
            elif one.key in self.refused:
                continue
            else:
                reason = STILL_THERE
                self.freed_bytes -= one.size_bytes if (one.key, one.version_id) in self._gone else 0
            records.append(KeyRecord(one.key, one.version_id, one.size_bytes, "refused", reason))
        self._note(records)

    def note_absent(self, named: Sequence[StoredObject]) -> None:
        """Write down that what nobody answered for, or what was refused before, is not there."""
        with self._catalog.transaction() as tx:
            newest = tombstones.newest_outcomes(tx, self._tombstone)
        answered = {key for key, _ in newest}
        open_ = [at for at, outcome in newest.items() if outcome == "refused"]
        open_ += [(one.key, None) for one in named if one.key not in answered]
        self._note([KeyRecord(key, version, 0, "absent", NOT_THERE) for key, version in open_])

    def _outcomes(self, batch: Sequence[StoredObject]) -> Iterator[KeyRecord]:
        for one, outcome in zip(batch, self._store.delete(batch), strict=True):
            yield KeyRecord(
                one.key, one.version_id, one.size_bytes, outcome.outcome.value, outcome.reason
            )
            if outcome.outcome is Outcome.GONE:
                self._gone.add((one.key, one.version_id))
                self.keys += 1
                self.freed_bytes += one.size_bytes

    def _note(self, records: Sequence[KeyRecord]) -> None:
        if not records:
            return
        for record in records:
            if record.outcome == "refused":
                self.refused[record.key] = record.reason or "no reason given"
        with self._catalog.transaction() as tx:
            tombstones.note(tx, self._tombstone, records, at=history.now(tx))


def _part(one: StoredObject, tombstone: Tombstone) -> AttemptPart | None:
    """Which part of the prefix's attempt a key is; None for what we did not write."""
    key = parse_key(one.key)
    if one.foreign is not None or not isinstance(key, AttemptKey) or key.prefix != tombstone.prefix:
        return None
    return key.part


def _reach(name: str | None) -> None:
    if name is not None:
        point(name)
