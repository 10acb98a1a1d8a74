"""Holding an inventory against the backend's own accounting, to the byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lastgood.flows.inventories.tally import Tally
from lastgood.rules import byte_equation
from lastgood.rules.accounting import Compared, Covers
from lastgood.rules.byte_equation import Equation, Line
from lastgood.stores.base import Usage

# What a backend keeps beside the objects and parts that it lists, and where it belongs.
_CAUSE_LINES = {"store-records": Line.CONTROL, "unfinished-parts": Line.OPEN}
IN_FLIGHT = "in-flight"
_AUTHORITIES = ("operator", "rgw")  # in this order: each tells of bytes that no listing shows


@dataclass(frozen=True, slots=True)
class Told:
    """What one scope is held against: the backend's usage, and what its total has to be adjusted by
    to stand for the sum of the lines."""

    usage: Usage
    adjustments: Mapping[str, int]
    how: str  # whose gap is named so; "" for the backend's own usage


@dataclass(frozen=True, slots=True)
class Account:
    """One scope (a store, or a project in it) as the backend accounts for it and as it was listed.

    The equation's backend total is `backend_bytes` plus the `adjustments`: bytes that a listing
    shows and the backend's sum has not. `unlisted_bytes` is the part of the unexplained line that
    only the accounting shows, `gaps` what shows it. An equation that stays open means a listing
    with more than the backend has."""

    backend_bytes: int
    backend_total: int | None
    allocated_bytes: int | None
    how: str
    adjustments: Mapping[str, int]
    unlisted_bytes: int
    gaps: Mapping[str, int]
    equation: Equation

    @property
    def is_exact(self) -> bool:
        """Whether listing and accounting agree, with nothing left to one of them alone."""
        return self.equation.closes() and not self.unlisted_bytes


def accounted_by(usage: Usage, compared: Sequence[Compared]) -> Told:
    """What a scope is held against: a number that has the listing and more, where there is one,
    else what the backend answered beside the listing."""
    for how in _AUTHORITIES:
        for one in compared:
            if one.number.how == how and one.number.covers is Covers.STORE and one.rest_bytes >= 0:
                beside = {name: -size for name, size in one.causes.items()}
                for name in usage.causes:
                    beside.pop(name, None)
                return Told(replace(usage, used_bytes=one.number.size_bytes, how=how), beside, how)
    return Told(usage, {}, "")


def account_of(tally: Tally, scope: str | None, told: Told, before: Usage | None) -> Account:
    """The account of one scope (None: the whole store) from the sums of an inventory and what it is
    held against; `before`, the usage before it, tells what a store that is written to may differ
    by."""
    lines = byte_equation.Tally()
    for (project, line), amount in tally.lines.items():
        if scope in (None, project):
            lines.add(line, amount.size_bytes, amount.objects)
    usage = told.usage
    adjustments = dict(told.adjustments)
    gaps: dict[str, int] = {}
    for cause, size_bytes in usage.causes.items():
        if size_bytes < 0:
            adjustments[cause] = -size_bytes
            continue
        line = _CAUSE_LINES.get(cause, Line.UNEXPLAINED)
        lines.add(line, size_bytes, 0)
        if line is Line.UNEXPLAINED:
            gaps[cause] = size_bytes
    accounted = usage.used_bytes + sum(adjustments.values())
    beyond = lines.equation(accounted).difference_bytes or 0
    if beyond and before is not None and not told.how and _while_written(beyond, usage, before):
        adjustments[IN_FLIGHT] = -beyond
        accounted, beyond = accounted - beyond, 0
    if beyond > 0:
        gaps[told.how] = beyond
        lines.add(Line.UNEXPLAINED, beyond, 0)
    return Account(
        backend_bytes=usage.used_bytes,
        backend_total=usage.total_bytes,
        allocated_bytes=usage.allocated_bytes,
        how=usage.how,
        adjustments=adjustments,
        unlisted_bytes=sum(gaps.values()),
        gaps=gaps,
        equation=lines.equation(accounted),
    )


def _while_written(beyond: int, after: Usage, before: Usage) -> bool:
    """Whether the listing lies between the accounting before it and after it."""
    listed = after.used_bytes - beyond
    least, most = sorted((before.used_bytes, after.used_bytes))
    return least != most and least <= listed <= most
