"""Chains of records, each of which names the one before it.

Everything here is decided from the records alone, so that an auditor can decide it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


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


def differing(said: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    """Where the columns of a record are not what its digested body says."""
    for name, value in recorded.items():
        if said.get(name) != value:
            yield f"{name} is {value!r}, its body says {said.get(name)!r}"
