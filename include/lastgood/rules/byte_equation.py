"""The byte equation: every byte of a store is in exactly one line.

backend total = committed + open + sealed + failed evidence + quarantined + incomplete
              + noncurrent + control + unexplained
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lastgood.rules.layout import AttemptKey, ControlKey


class Line(StrEnum):
    COMMITTED = "committed"  # present copies, with their manifests and markers
    OPEN = "open"  # attempts with a live lease
    SEALED = "sealed"  # attempts under verification
    FAILED_EVIDENCE = "failed_evidence"
    QUARANTINED = "quarantined"  # and what is being deleted
    INCOMPLETE = "incomplete"  # attempts whose lease ran out or that are aborting; stale parts
    NONCURRENT = "noncurrent"  # old versions and delete markers
    CONTROL = "control"
    UNEXPLAINED = "unexplained"  # a finding


class AttemptState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"
    COMMITTED = "committed"
    FAILED = "failed"
    ABORTING = "aborting"
    CLOSED = "closed"


class CopyState(StrEnum):
    PRESENT = "present"
    QUARANTINED = "quarantined"
    DELETING = "deleting"
    DELETED = "deleted"
    LOST = "lost"  # with its store, which came back


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What a listing shows of some bytes, and what the catalog knows of them.

    `attempt` and `copy` are None where the catalog knows of none. `expected`: the key (for an
    upload: its id) is one that the catalog has for this attempt, with the same size.
    """

    key: AttemptKey | ControlKey | None
    attempt: AttemptState | None = None
    copy: CopyState | None = None
    expected: bool = False
    lease_live: bool = False
    is_latest: bool = True
    is_delete_marker: bool = False
    pending_upload: bool = False


def classify(facts: KeyFacts) -> Line:
    """The one line that these bytes belong to."""
    if isinstance(facts.key, ControlKey):
        return Line.CONTROL if facts.is_latest else Line.NONCURRENT
    if facts.key is None or facts.attempt is None:
        return Line.NONCURRENT if _is_old_version(facts) else Line.UNEXPLAINED
    # a versioned store hides a quarantined copy below delete markers: the bytes are still its own
    if facts.copy in (CopyState.QUARANTINED, CopyState.DELETING) and facts.expected:
        return Line.QUARANTINED
    if _is_old_version(facts):
        return Line.NONCURRENT
    match facts.attempt:
        case AttemptState.OPEN:
            return Line.OPEN if facts.lease_live else Line.INCOMPLETE
        case AttemptState.ABORTING:
            return Line.INCOMPLETE
        case AttemptState.SEALED:
            return Line.SEALED
        case AttemptState.FAILED:
            return Line.FAILED_EVIDENCE
        case AttemptState.COMMITTED:
            return _in_copy(facts)
        case AttemptState.CLOSED:
            return Line.UNEXPLAINED  # it was found empty before it closed


def _is_old_version(facts: KeyFacts) -> bool:
    return not facts.is_latest or facts.is_delete_marker


def _in_copy(facts: KeyFacts) -> Line:
    if facts.pending_upload:
        return Line.INCOMPLETE  # parts that a late writer sent beside the committed object
    if facts.expected and facts.copy is CopyState.PRESENT:
        return Line.COMMITTED
    return Line.UNEXPLAINED


@dataclass(frozen=True, slots=True)
class LineTotal:
    size_bytes: int = 0
    keys: int = 0


@dataclass
class Tally:
    """Adds up a listing, one key at a time."""

    _bytes: dict[Line, int] = field(default_factory=lambda: dict.fromkeys(Line, 0))
    _keys: dict[Line, int] = field(default_factory=lambda: dict.fromkeys(Line, 0))

    def add(self, line: Line, size_bytes: int, keys: int = 1) -> None:
        self._bytes[line] += size_bytes
        self._keys[line] += keys

    def equation(self, backend_bytes: int | None) -> Equation:
        """The equation against the backend's own total; None: it tells none."""
        totals = {line: LineTotal(self._bytes[line], self._keys[line]) for line in Line}
        return Equation(totals, backend_bytes)


@dataclass(frozen=True, slots=True)
class Equation:
    """All lines of one store (or one project in it) beside the backend's own total."""

    totals: Mapping[Line, LineTotal]
    backend_bytes: int | None

    @property
    def sum_bytes(self) -> int:
        return sum(total.size_bytes for total in self.totals.values())

    @property
    def difference_bytes(self) -> int | None:
        """What the backend accounts beyond all lines; negative where it accounts less."""
        return None if self.backend_bytes is None else self.backend_bytes - self.sum_bytes

    def closes(self) -> bool:
        """To the byte. An unknown backend total closes nothing."""
        return self.difference_bytes == 0

    def faults(self) -> tuple[str, ...]:
        """What is wrong with the equation, in words."""
        found = [f"line {line} is missing" for line in Line if line not in self.totals]
        for line, total in self.totals.items():
            if total.size_bytes < 0 or total.keys < 0:
                found.append(f"line {line} is negative: {total.size_bytes} bytes")
        if self.difference_bytes is None:
            found.append("the backend's own total is unknown")
        elif self.difference_bytes:
            found.append(f"the backend accounts {self.difference_bytes:+} bytes against the lines")
        return tuple(found)

    def to_json(self) -> dict[str, object]:
        return {
            "lines": {
                line.value: {"bytes": total.size_bytes, "keys": total.keys}
                for line, total in self.totals.items()
            },
            "sum_bytes": self.sum_bytes,
            "backend_bytes": self.backend_bytes,
            "difference_bytes": self.difference_bytes,
            "closes": self.closes(),
        }
