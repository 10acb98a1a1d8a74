"""Holding an inventory against the backend's own accounting, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.flows.inventory_lines import Line
from lastgood.flows.inventory_tally import Tally
from lastgood.stores.base import Usage

# What a backend keeps beside the objects and parts that it lists, and where it belongs.
_CAUSE_LINES = {"store-records": Line.CONTROL, "unfinished-parts": Line.OPEN}
LISTED_TWICE = "hard-links"
IN_FLIGHT = "in-flight"


@dataclass(frozen=True, slots=True)
class Account:
    """One scope (a store, or a project in it) as the backend accounts for it and as it was listed.

    backend_bytes + the sum of `adjustments` + gap_bytes = the sum of `lines`

    `unlisted_bytes` is the part of the unexplained line that only the accounting shows. A gap that
    is not zero means that a listing shows more than the backend accounts for.
    """

    backend_bytes: int
    backend_total: int | None
    allocated_bytes: int | None
    how: str
    lines: Mapping[Line, int]
    adjustments: Mapping[str, int]
    unlisted_bytes: int
    gap_bytes: int


def account_of(tally: Tally, scope: str | None, usage: Usage, before: Usage | None) -> Account:
    """The account of one scope (None: the whole store) from the sums of a pass and the usage after
    it; `before`, the usage before it, tells what a store that is written to may differ by."""
    lines = dict.fromkeys(Line, 0)
    for (project, line), amount in tally.lines.items():
        if scope in (None, project):
            lines[line] += amount.size_bytes
    adjustments: dict[str, int] = {}
    for cause, size_bytes in usage.causes.items():
        if size_bytes >= 0:
            lines[_CAUSE_LINES.get(cause, Line.UNEXPLAINED)] += size_bytes
        else:
            adjustments[cause] = -size_bytes
    gap = sum(lines.values()) - usage.used_bytes - sum(adjustments.values())
    if gap and before is not None and _while_written(gap, usage, before):
        adjustments[IN_FLIGHT] = gap
        gap = 0
    unlisted = max(0, -gap)
    lines[Line.UNEXPLAINED] += unlisted
    return Account(
        backend_bytes=usage.used_bytes,
        backend_total=usage.total_bytes,
        allocated_bytes=usage.allocated_bytes,
        how=usage.how,
        lines=lines,
        adjustments=adjustments,
        unlisted_bytes=unlisted,
        gap_bytes=gap + unlisted,
    )


def _while_written(gap: int, after: Usage, before: Usage) -> bool:
    """Whether the listing lies between the accounting before it and after it."""
    listed = after.used_bytes + gap
    least, most = sorted((before.used_bytes, after.used_bytes))
    return least != most and least <= listed <= most
