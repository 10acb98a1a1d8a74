"""Uploads as they were begun, without their parts: on S3 the parts of each cost a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from lastgood.errors import Unavailable
from lastgood.stores.base import Key, Listing, PendingUpload, Prefix, Store, UploadId

A = TypeVar("A")
B = TypeVar("B")
_AT_ONCE = 8
_BATCH = 256


@dataclass(frozen=True, slots=True)
class BegunUpload:
    """A pending upload as a listing names it; `initiated_at` is the store's clock."""

    key: Key
    upload_id: UploadId
    initiated_at: datetime | None


@runtime_checkable
class ListsBegun(Protocol):
    """A store for which looking at parts is work of its own."""

    def begun_uploads(self, prefix: Prefix) -> Listing[BegunUpload]:
        """Every pending upload below the prefix, all pages, by key."""


def begun_uploads(store: Store, prefix: Prefix) -> list[BegunUpload]:
    """Every pending upload below the prefix, all pages, by key. Raises StoreError, or Unavailable
    where the store did not say that nothing follows: what was seen then proves no absence."""
    listing: Listing[BegunUpload] | Listing[PendingUpload]
    listing = (
        store.begun_uploads(prefix) if isinstance(store, ListsBegun) else store.uploads(prefix)
    )
    found = [BegunUpload(one.key, one.upload_id, one.initiated_at) for one in listing]
    if not listing.complete:
        raise Unavailable(
            what=f"store {store.name}", reason=f"its listing of uploads below {prefix} is not whole"
        )
    return found


def several(ask: Callable[[A], B], of: Iterable[A], *, over_network: bool) -> Iterator[B]:
    """What `ask` answers for each, in order; over a network some at once."""
    if not over_network:
        yield from map(ask, of)
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for some in _batches(of):
            yield from threads.map(ask, some)


def _batches(of: Iterable[A]) -> Iterator[Sequence[A]]:
    batch: list[A] = []
    for one in of:
        batch.append(one)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch
