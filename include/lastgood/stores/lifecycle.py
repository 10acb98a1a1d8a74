"""What a store's server can be told to do by itself with uploads that nobody ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lastgood.stores.base import StoreError


class LifecycleUnsupported(StoreError):
    """Store {store}: its server has no lifecycle rules ({reason}); the clean-up is the only one
    that ends abandoned uploads there."""

    status = 501
    type = "lifecycle-unsupported"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """All rules of a bucket as they were read; `minimum_size` is what S3 keeps beside them."""

    rules: Sequence[Mapping[str, Any]]
    minimum_size: str | None = None


class LifecycleRules(Protocol):
    """The rules of one bucket, read and written whole: S3 knows no other way."""

    bucket: str
    prefix: str  # what all keys of the store begin with in the bucket

    def read(self) -> Lifecycle:
        """Raises LifecycleUnsupported, AccessRefused, StoreError."""

    def write(self, wanted: Lifecycle) -> None:
        """Replace all rules. Raises LifecycleUnsupported, AccessRefused, StoreError."""


@runtime_checkable
class HasLifecycle(Protocol):
    """A store whose server may end uploads by a rule of its own."""

    def lifecycle(self) -> LifecycleRules:
        """The rules of the store's bucket."""
