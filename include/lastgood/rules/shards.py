"""Shards of a store's key space: what one task of an inventory lists.

A shard is every key after one bound and up to another, by the keys' UTF-8 bytes (which is also the
order of Python's text). Bounds are prefixes; because a shard leaves its lower bound out and takes
its upper one in, shards that chain cover every key exactly once, whatever keys there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Shard:
    """The keys `k` with `after < k <= through`. No key is empty, so the first shard begins after
    ""; the last one has no end (`through` None)."""

    index: int
    after: str
    through: str | None

    def holds(self, key: str) -> bool:
        """Whether a key belongs to this shard."""
        return key > self.after and (self.through is None or key <= self.through)

    def may_hold_below(self, prefix: str) -> bool:
        """Whether any key that begins with `prefix` may belong to this shard."""
        begins_late = self.through is not None and prefix > self.through
        ends_early = prefix < self.after and not self.after.startswith(prefix)
        return not begins_late and not ends_early


WHOLE = Shard(0, "", None)
"""The one shard of a store that is listed in one go."""


def partition(bounds: Iterable[str]) -> tuple[Shard, ...]:
    """The shards between these bounds, in order; repeated and empty bounds are one and none."""
    inner = sorted(set(bounds) - {""})
    starts = ["", *inner]
    ends: list[str | None] = [*inner, None]
    return tuple(
        Shard(index, after, through)
        for index, (after, through) in enumerate(zip(starts, ends, strict=True))
    )


def fault(shards: Sequence[Shard]) -> str | None:
    """Why these shards, in order, do not cover every key exactly once; None if they do."""
    if not shards:
        return "there is no shard"
    if shards[0].after != "":
        return f"no shard holds the keys up to {shards[0].after!r}"
    for before, one in pairwise(shards):
        if before.through != one.after:
            return f"shard {one.index} begins after {one.after!r}, not after {before.through!r}"
        if before.through is None or before.through <= before.after:
            return f"shard {before.index} is empty or has no end"
    if shards[-1].through is not None:
        return f"no shard holds the keys after {shards[-1].through!r}"
    return None
