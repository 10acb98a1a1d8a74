"""Removing what lies below a prefix that has a tombstone, and asking the store again.

The completion marker goes first: from then on the store itself says that nothing here is a
checkpoint. Then the objects, and last the manifest, which says what the objects were. Every step
may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lastgood.catalog import history, tombstones
from lastgood.catalog.db import Catalog
from lastgood.catalog.tombstones import KeyRecord, Tombstone
from lastgood.errors import Unavailable
from lastgood.faults import point
from lastgood.rules.layout import AttemptKey, AttemptPart, parse_key
from lastgood.stores.base import Outcome, Prefix, Store, StoredObject

BATCH_KEYS = 1000
NOT_OURS = "lastgood did not write it"


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of a prefix. `gone`: a later complete listing found nothing. `left` are the keys
    that are still there, `refused` those that the store would not delete; at most a few of each."""

    gone: bool
    keys: int
    freed_bytes: int
    refused: Mapping[str, str]
    left: tuple[str, ...]

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
    key, and list again. What is not ours stays and is named. Raises StoreError or Unavailable
    where the store does not tell: then nothing is proven, and the next run goes on."""
    found = listed(store, tombstone.prefix)
    ours = {part: [one for one in found if _part(one, tombstone) is part] for part in AttemptPart}
    removing = _Removing(catalog, store, tombstone)
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
    removing.note_foreign([one for one in left if _part(one, tombstone) is None])
    _reach(points.listing)
    return Removal(
        gone=not left,
        keys=removing.keys,
        freed_bytes=removing.freed_bytes,
        refused=removing.refused,
        left=tuple(one.key for one in left[:20]),
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

    def delete(self, objects: Sequence[StoredObject]) -> None:
        for start in range(0, len(objects), BATCH_KEYS):
            batch = objects[start : start + BATCH_KEYS]
            self._note(list(self._outcomes(batch)))

    def note_foreign(self, objects: Sequence[StoredObject]) -> None:
        """Write down what is not ours as refused: it keeps the tombstone open until somebody
        looks."""
        self._note(
            [
                KeyRecord(one.key, one.version_id, one.size_bytes, "refused", NOT_OURS)
                for one in objects
            ]
        )

    def _outcomes(self, batch: Sequence[StoredObject]) -> Iterator[KeyRecord]:
        for one, outcome in zip(batch, self._store.delete(batch), strict=True):
            yield KeyRecord(
                one.key, one.version_id, one.size_bytes, outcome.outcome.value, outcome.reason
            )
            if outcome.outcome is Outcome.GONE:
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
