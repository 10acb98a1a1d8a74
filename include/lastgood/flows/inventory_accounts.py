"""Holding an inventory against the backend's own accounting, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.flows.inventory_tally import Tally
from lastgood.rules import byte_equation
from lastgood.rules.byte_equation import Equation, Line
from lastgood.stores.base import Usage

# What a backend keeps beside the objects and parts that it lists, and where it belongs.
_CAUSE_LINES = {"store-records": Line.CONTROL, "unfinished-parts": Line.OPEN}
LISTED_TWICE = "hard-links"
IN_FLIGHT = "in-flight"


@dataclass(frozen=True, slots=True)
class Account:
    """One scope (a store, or a project in it) as the backend accounts for it and as it was listed.

    The equation's backend total is `backend_bytes` plus the `adjustments`: bytes that a listing
    shows and the backend's sum has not. `unlisted_bytes` is the part of the unexplained line that
    only the accounting shows. An equation that stays open means a listing with more than the
    backend has."""

    backend_bytes: int
    backend_total: int | None
    allocated_bytes: int | None
    how: str
    adjustments: Mapping[str, int]
    unlisted_bytes: int
    equation: Equation

    @property
    def is_exact(self) -> bool:
        """Whether listing and accounting agree, with nothing left to one of them alone."""
        return self.equation.closes() and not self.unlisted_bytes


def account_of(tally: Tally, scope: str | None, usage: Usage, before: Usage | None) -> Account:
    """The account of one scope (None: the whole store) from the sums of a pass and the usage after
    it; `before`, the usage before it, tells what a store that is written to may differ by."""
    lines = byte_equation.Tally()
    for (project, line), amount in tally.lines.items():
        if scope in (None, project):
            lines.add(line, amount.size_bytes, amount.objects)
    adjustments: dict[str, int] = {}
    for cause, size_bytes in usage.causes.items():
        if size_bytes >= 0:
            lines.add(_CAUSE_LINES.get(cause, Line.UNEXPLAINED), size_bytes, 0)
        else:
            adjustments[cause] = -size_bytes
    accounted = usage.used_bytes + sum(adjustments.values())
    beyond = lines.equation(accounted).difference_bytes or 0
    if beyond and before is not None and _while_written(beyond, usage, before):
        adjustments[IN_FLIGHT] = -beyond
        accounted, beyond = accounted - beyond, 0
    unlisted = max(0, beyond)
    lines.add(Line.UNEXPLAINED, unlisted, 0)
    return Account(
        backend_bytes=usage.used_bytes,
        backend_total=usage.total_bytes,
        allocated_bytes=usage.allocated_bytes,
        how=usage.how,
        adjustments=adjustments,
        unlisted_bytes=unlisted,
        equation=lines.equation(accounted),
    )


def _while_written(beyond: int, after: Usage, before: Usage) -> bool:
    """Whether the listing lies between the accounting before it and after it."""
    listed = after.used_bytes - beyond
    least, most = sorted((before.used_bytes, after.used_bytes))
    return least != most and least <= listed <= most
