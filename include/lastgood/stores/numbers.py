"""What a backend accounts beside what a store lists: disk blocks, quotas, its own statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lastgood.rules.accounting import Number, Unreadable
from lastgood.stores.base import Store


@runtime_checkable
class AccountsFurther(Protocol):
    """A store whose backend tells more than `Store.usage`."""

    def numbers(self) -> Sequence[Number | Unreadable]:
        """Every further number that there is. Raises StoreError."""


def numbers_of(store: Store) -> Sequence[Number | Unreadable]:
    """The further numbers of a store, none where its backend tells no more."""
    return store.numbers() if isinstance(store, AccountsFurther) else ()
