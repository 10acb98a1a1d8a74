"""A store that works on real bytes, but for what a test makes it do: refuse, break off, wait,
lie."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lastgood.stores.base import Key, KeyOutcome, Outcome, Prefix, Store, StoredObject, StoreError


@dataclass
class Faults:
    """What goes wrong, by the end of a key."""

    refuses: str | None = None  # it does not delete these, and says so
    breaks_after: int | None = None  # it fails once it has deleted so many
    keeps: str | None = None  # it says that these are gone, and has them
    omits: str | None = None  # its listings, whole as it says, leave these out
    cuts: str | None = None  # its listings below this end early, and say so
    hides_nothing: bool = False  # it says that it hid a copy, and did not
    answers: Mapping[str, bytes] = field(default_factory=dict)  # other bytes than it holds
    slow: str | None = None  # it answers for these once `go_on` is set


class UnreliableStore:
    """A store around a real one. Without faults it is that store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.faults = Faults()
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.deleted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        for one in objects:
            faults = self.faults
            if faults.slow is not None and one.key.endswith(faults.slow):
                self.reached.set()
                assert self.go_on.wait(60), "nobody let the store go on"
            if faults.breaks_after is not None and len(self.deleted) >= faults.breaks_after:
                raise StoreError(store=self.name, key=one.key, reason="connection reset")
            if faults.refuses is not None and one.key.endswith(faults.refuses):
                yield KeyOutcome(one.key, one.version_id, Outcome.REFUSED, "access denied")
            elif faults.keeps is not None and one.key.endswith(faults.keeps):
                yield KeyOutcome(one.key, one.version_id, Outcome.GONE)
            else:
                yield from self._store.delete([one])
                self.deleted.append(one.key)

    def list(self, prefix: Prefix, *, versions: bool = False) -> Any:
        listing = self._store.list(prefix, versions=versions)
        if not prefix.startswith("checkpoints/"):
            return listing
        cuts = self.faults.cuts
        return _Listing(listing, self.faults, cut=cuts is not None and cuts in prefix)

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        if not self.faults.hides_nothing:
            self._store.quarantine(prefix, objects)

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        return self._other(key) or self._store.read(key, limit_bytes=limit_bytes)

    @contextmanager
    def open(self, key: Key, **options: Any) -> Iterator[BinaryIO]:
        other = self._other(key)
        if other is not None:
            yield io.BytesIO(other)
            return
        with self._store.open(key, **options) as stream:
            yield stream

    def local_path(self, prefix: Prefix) -> str | None:
        return None if self.faults.answers else self._store.local_path(prefix)

    def _other(self, key: Key) -> bytes | None:
        return next(
            (content for end, content in self.faults.answers.items() if key.endswith(end)), None
        )


class _Listing:
    def __init__(self, listing: Any, faults: Faults, *, cut: bool) -> None:
        self._listing, self._faults, self._cut = listing, faults, cut
        self.complete = False

    def __iter__(self) -> Iterator[StoredObject]:
        if self._cut:
            return
        omits = self._faults.omits
        for one in self._listing:
            if omits is None or not one.key.endswith(omits):
                yield one
        self.complete = self._listing.complete
