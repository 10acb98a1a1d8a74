"""What a validation of any level found, before it becomes a receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lastgood.catalog.validation.receipts import Verdict
from lastgood.rules import layout
from lastgood.stores.base import Key, Store, StoreError

SETTLED = "settled"
"""In the topology of an inconclusive finding: another try of the same validator finds the same."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on a copy, each bad object or tensor, and where and how it was looked for."""

    verdict: Verdict
    reason: str
    bytes_read: int = 0
    problems: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    topology: Mapping[str, Any] = field(default_factory=lambda: {"processes": 1})
    last_lines: Sequence[str] = ()

    def with_process(self, topology: Mapping[str, Any], last_lines: Sequence[str]) -> Finding:
        """The same finding of an isolated process."""
        return replace(self, topology=topology, last_lines=tuple(last_lines))


def absent_or_failed(
    store: Store, reason: str, problems: Sequence[Mapping[str, Any]], bytes_read: int
) -> Finding:
    """Absence proves nothing where the whole store is absent: a disk that is not mounted looks like
    an empty one."""
    try:
        absent = store.stat(Key(layout.CATALOG_KEY)) is None
    except StoreError as error:
        return unreadable(error)
    if absent:
        said = f"{layout.CATALOG_KEY} is not there either: is this the store?"
        return Finding("inconclusive", said, bytes_read)
    return Finding("fail", reason, bytes_read, tuple(problems))


def settled(reason: str) -> Finding:
    """What proves nothing, now or later, for as long as the validator is the same."""
    return Finding("inconclusive", reason, topology={"processes": 1, SETTLED: True})


def unreadable(error: StoreError) -> Finding:
    """A store that cannot be read says nothing about the bytes."""
    return Finding("inconclusive", f"the store could not be read: {error}")
