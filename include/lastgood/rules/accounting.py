"""What a backend accounts by one of its ways, held against what was listed.

    accounted = replicas x listed + the named causes + the rest

A cause is positive where the accounting has bytes that no listing shows (block rounding, folders,
snapshots) and negative where it has less (sparse files, further names of one file, what was written
since it was told). The rest is what nobody named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

REPLICATION = "replication-factor"
DELAY = "accounting-delay"
ALLOCATION_CAUSES = ("hard-links", "sparse-files", "symbolic-links", "block-rounding")


class Covers(StrEnum):
    """How far a number reaches. Only of the store's own is a rest unexplained: the others hold what
    is not the store's."""

    STORE = "store"
    BUCKET = "bucket"
    FILE_SYSTEM = "file-system"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a backend, or of an operator. `as_of` None: told beside the listing. `beside`:
    bytes that it has and no listing shows, by cause. `allocated`: it counts blocks on disk.
    `listed_then_bytes`: what was listed at its own time, None where nobody knows."""

    how: str
    size_bytes: int
    covers: Covers
    as_of: datetime | None = None
    beside: Mapping[str, int] = field(default_factory=dict)
    allocated: bool = False
    replicas: int = 1
    because: str = ""
    listed_then_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A number that the backend has and that could not be read; nothing is concluded from that."""

    how: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A number and what it is made of."""

    number: Number
    listed_bytes: int
    causes: Mapping[str, int]

    @property
    def rest_bytes(self) -> int:
        """What the number has beyond the listing and every named cause; negative: less."""
        return self.number.size_bytes - self.listed_bytes - sum(self.causes.values())

    @property
    def gap_bytes(self) -> int:
        """The part of the rest that is unexplained, and so a finding."""
        return max(0, self.rest_bytes) if self.number.covers is Covers.STORE else 0

    def to_json(self) -> dict[str, object]:
        """As reports show it. Instants are RFC 3339."""
        number = self.number
        return {
            "how": number.how,
            "covers": number.covers.value,
            "as_of": None if number.as_of is None else number.as_of.isoformat(),
            "because": number.because,
            "accounted_bytes": number.size_bytes,
            "listed_bytes": self.listed_bytes,
            "causes": dict(self.causes),
            "rest_bytes": self.rest_bytes,
            "unexplained_bytes": self.gap_bytes,
        }


def compare(
    number: Number,
    *,
    listed_bytes: int,
    allocation: Mapping[str, int],
    apparent: Mapping[str, int],
) -> Compared:
    """Hold a number against a listing of `listed_bytes`: one of blocks on disk with what blocks
    differ by from sizes (`allocation`), any other with what a backend's sum of sizes has beside the
    listing (`apparent`), both by cause."""
    causes = {**number.beside, **(allocation if number.allocated else apparent)}
    if number.listed_then_bytes is not None:
        causes[DELAY] = number.listed_then_bytes - listed_bytes
    if number.replicas > 1:
        counted = listed_bytes + causes.get(DELAY, 0)
        causes[REPLICATION] = (number.replicas - 1) * counted
    return Compared(number, listed_bytes, {name: size for name, size in causes.items() if size})
