"""Chains of records, each of which names the one before it, and certificates of deletions.

Everything here is decided from the records alone, so that an auditor can decide it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from lastgood.rules.gate import GateFacts, Truth

REBUILD = "rebuild"
"""The reason of a tombstone that no gate allowed: the bytes were gone when a rebuild looked."""


@dataclass(frozen=True, slots=True)
class Link:
    """One record of a chain: its number, its digest as it stands there, the one that it names as
    its predecessor, and the digest that its content has."""

    number: int
    digest: str
    previous: str | None
    computed: str


def broken(links: Iterable[Link]) -> Iterator[tuple[int, str]]:
    """What is wrong with a whole chain in the order of its numbers: the number at which it shows,
    and what it is. A record that was taken out shows at the next one."""
    number, digest = 0, None
    for link in links:
        if link.number != number + 1:
            yield link.number, f"numbers {number + 1} to {link.number - 1} are missing"
        if link.previous != digest:
            yield link.number, f"its predecessor has digest {digest}, it names {link.previous}"
        if link.digest != link.computed:
            yield link.number, f"its content has digest {link.computed}, not {link.digest}"
        number, digest = link.number, link.digest


def uncertified(
    facts: Mapping[str, Any], *, mark_id: int | None, rebuilds: Collection[int]
) -> Iterator[str]:
    """Why the facts of a copy's tombstone do not certify its deletion: each fact of the gate must
    be there and true, under a mark; or a rebuild that is on record found the bytes gone."""
    if facts.get("reason") == REBUILD and mark_id is None:
        if facts.get("incarnation") not in rebuilds:
            yield f"no rebuild made incarnation {facts.get('incarnation')}"
        return
    if mark_id is None:
        yield "it names no mark"
    told = facts.get("facts")
    if not isinstance(told, Mapping):
        yield "it has no facts of the gate"
        return
    for field in fields(GateFacts):
        fact = told.get(field.name)
        if not isinstance(fact, Mapping):
            yield f"fact {field.name} is missing"
        elif fact.get("truth") != Truth.TRUE:
            yield f"fact {field.name} is {fact.get('truth')}"
        elif not fact.get("evidence"):
            yield f"fact {field.name} has no evidence"


def differing(said: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    """Where the columns of a record are not what its digested body says."""
    for name, value in recorded.items():
        if said.get(name) != value:
            yield f"{name} is {value!r}, its body says {said.get(name)!r}"
