"""A listing that knows whether it saw everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class StreamedListing(Generic[T]):
    """Entries as they come; `complete` turns true after the last one, and at no other time."""

    def __init__(self, entries: Callable[[], Iterator[T]]) -> None:
        self.complete = False
        self._entries = entries

    def __iter__(self) -> Iterator[T]:
        self.complete = False
        yield from self._entries()
        self.complete = True
