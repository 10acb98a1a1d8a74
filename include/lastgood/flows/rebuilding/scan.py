"""What a store shows of itself: its owner, its control keys, and every attempt's prefix.

One complete listing; memory grows with prefixes, not with objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from lastgood.errors import Unavailable
from lastgood.flows import control_keys
from lastgood.rules.layout import (
    AttemptKey,
    AttemptPart,
    ControlKey,
    ControlKind,
    parse_key,
)
from lastgood.rules.names import CheckpointId, StageId
from lastgood.stores.base import EVERYTHING, Store, StoredObject

NAMED_LIMIT = 100
_TELL_EVERY = 1000


@dataclass(slots=True)
class FoundPrefix:
    """What lies below one attempt's prefix, pending uploads included in the bytes."""

    store: str
    checkpoint: CheckpointId
    attempt_id: UUID
    prefix: str
    size_bytes: int = 0
    objects: int = 0
    has_marker: bool = False
    has_manifest: bool = False
    hidden: bool = False  # some of it lies in quarantine

    def add(self, part: AttemptPart, entry: StoredObject) -> None:
        self.size_bytes += entry.size_bytes
        self.hidden = self.hidden or entry.hidden
        self.objects += part is AttemptPart.OBJECT
        self.has_marker = self.has_marker or part is AttemptPart.MARKER
        self.has_manifest = self.has_manifest or part is AttemptPart.MANIFEST


@dataclass(slots=True)
class Scan:
    """One store, listed whole. `foreign` names the first keys that are not lastgood's."""

    store: str
    owner: str | None
    incarnation: int = 0
    keys: int = 0
    prefixes: dict[str, FoundPrefix] = field(default_factory=dict)
    written: dict[StageId, int] = field(default_factory=dict)  # highest generation of a prefix
    generations: dict[StageId, int] = field(default_factory=dict)
    events: dict[StageId, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    foreign_count: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of any stage lies there."""
        return not self.prefixes and not self.generations and not self.events

    def stages(self) -> set[StageId]:
        """Every stage that the store shows anything of."""
        return {*self.written, *self.generations, *self.events}

    def highest_generation(self, stage: StageId) -> int:
        """The highest one that a control key or any attempt's prefix names."""
        return max(self.generations.get(stage, 0), self.written.get(stage, 0))


def scan(store: Store, tell: Callable[[int], None] = lambda keys: None) -> Scan:
    """List a store whole. `tell` hears how many keys were seen. Raises Unavailable where the
    listing is not complete, and StoreError."""
    found = Scan(store.name, control_keys.owner_of(store))
    listing = store.list(EVERYTHING)
    for entry in listing:
        found.keys += 1
        if found.keys % _TELL_EVERY == 0:
            tell(found.keys)
        _add(found, entry)
    uploads = store.uploads(EVERYTHING)
    for upload in uploads:
        key = parse_key(upload.key)
        if isinstance(key, AttemptKey):
            _prefix(found, key).size_bytes += upload.part_bytes_held
    if not listing.complete or not uploads.complete:
        raise Unavailable(what=f"store {store.name}", reason="its listing did not finish")
    tell(found.keys)
    return found


def newest_event(scans: Iterable[Scan], stage: StageId) -> int:
    """The highest number of an event of a stage that any of the stores knows; 0 if none does."""
    return max(one.events.get(stage, 0) for one in scans)


def _add(found: Scan, entry: StoredObject) -> None:
    match None if entry.foreign is not None else parse_key(entry.key):
        case AttemptKey() as key:
            _prefix(found, key).add(key.part, entry)
        case ControlKey(ControlKind.INCARNATION, None, int(number)):
            found.incarnation = max(found.incarnation, number)
        case ControlKey(ControlKind.GENERATION, StageId() as stage, int(number)):
            found.generations[stage] = max(found.generations.get(stage, 0), number)
        case ControlKey(ControlKind.EVENT, StageId() as stage, int(number)):
            found.events[stage] = max(found.events.get(stage, 0), number)
        case None:
            found.foreign_count += 1
            if len(found.foreign) < NAMED_LIMIT:
                found.foreign.append(entry.key)


def _prefix(found: Scan, key: AttemptKey) -> FoundPrefix:
    known = found.prefixes.get(key.prefix)
    if known is None:
        known = FoundPrefix(found.store, key.checkpoint, UUID(key.attempt), key.prefix)
        found.prefixes[key.prefix] = known
        stage = key.checkpoint.stage_id
        found.written[stage] = max(found.written.get(stage, 0), key.checkpoint.generation)
    return known
