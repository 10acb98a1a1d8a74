"""The sections of a policy beside its roles. What a document leaves out has a default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, TypeVar

from lastgood.errors import InvalidInput
from lastgood.rules.document import Node
from lastgood.rules.names import check_name
from lastgood.rules.quantities import (
    duration_text,
    read_duration,
    read_share,
    read_size,
    share_text,
    size_text,
)
from lastgood.rules.retention_rules import Level

S = TypeVar("S")


_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Form:
    """How one value is read from a document and written back. `unwritten`: the default of a key
    that came later; without it, documents of before keep their digest."""

    read: Callable[[Node], Any]
    write: Callable[[Any], Any]
    unwritten: object = _NOTHING


Forms = Mapping[str, Form]


def read_section(kind: type[S], node: Node, forms: Forms) -> S:
    """A section from the keys that its document gives; the others keep their defaults."""
    return kind(**{key: forms[key].read(child) for key, child in node.fields((), forms).items()})


def write_section(section: object, forms: Forms) -> dict[str, Any]:
    """The section with all its keys, defaults included, as far as they are written."""
    values = {key: getattr(section, key) for key in forms}
    return {
        key: form.write(values[key]) for key, form in forms.items() if values[key] != form.unwritten
    }


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What must be proven before a copy may go: see `rules.gate`."""

    level: Level = Level.RESTORE
    receipt_max_age: timedelta = timedelta(days=7)
    mark_max_age: timedelta = timedelta(hours=2)  # an older mark is not swept


@dataclass(frozen=True, slots=True)
class QuarantinePolicy:
    """How long a copy waits before its bytes go, and when a sweep stops and asks.

    A sweep that would take more than `share_guard` of a project's copies, and more than
    `share_guard_min` of them, stops.
    """

    grace: timedelta = timedelta(days=3)
    approve_above: int | None = 50 * 10**12  # bytes
    share_guard: Fraction = Fraction(1, 2)
    share_guard_min: int = 10

    def stops_at(self, taken: int, copies: int) -> bool:
        """Whether a sweep that takes so many of a project's copies must stop and ask."""
        return taken > self.share_guard_min and taken > self.share_guard * copies


@dataclass(frozen=True, slots=True)
class RetirePolicy:
    """What the end of a stage's life asks for: the least grace in which it can be undone, and
    whether somebody else than who asked must approve it."""

    grace: timedelta = timedelta(days=14)
    approve: bool = True


@dataclass(frozen=True, slots=True)
class PromotionPolicy:
    """What another policy has to pass before it takes the place of this one: see
    `rules.promotion`."""

    approve: bool = False  # another operator has to agree
    cooling: timedelta = timedelta(hours=1)  # no sweep takes anything under it until then
    difference_max_age: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class UploadPolicy:
    """When an incomplete upload is given up; `lifecycle_days` is the bucket's later safety net."""

    abort_after: timedelta = timedelta(hours=4)
    margin_over_p99: int | float = 2  # times the measured p99 of uploads
    lifecycle_days: int = 1

    def threshold(self, p99: timedelta | None) -> timedelta:
        """The age above which an upload without a live lease is aborted."""
        return (
            self.abort_after if p99 is None else max(self.abort_after, p99 * self.margin_over_p99)
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of use: a share of what the backend has, or bytes."""

    share: Fraction | None = None
    size_bytes: int | None = None

    def of(self, total_bytes: int | None) -> int | None:
        """The limit in bytes; None for a share of a backend that tells no total."""
        if self.share is None:
            return self.size_bytes
        return None if total_bytes is None else int(self.share * total_bytes)

    def reaches(self, other: Bound) -> bool:
        """Whether it is known, without the backend's total, to be no lower than the other."""
        if self.share is not None and other.share is not None:
            return self.share >= other.share
        if self.size_bytes is not None and other.size_bytes is not None:
            return self.size_bytes >= other.size_bytes
        return False

    def __str__(self) -> str:
        return size_text(self.size_bytes or 0) if self.share is None else share_text(self.share)


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """How much of a store the project may use. `reserve` None: measured, see `rules.capacity`."""

    soft: Bound = Bound(Fraction(3, 4))
    hard: Bound = Bound(Fraction(85, 100))
    reserve: int | None = None  # bytes
    spill_store: str | None = None


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a level is validated: on every commit, at an interval, or never."""

    every_commit: bool = False
    interval: timedelta | None = None

    @property
    def never(self) -> bool:
        return not self.every_commit and self.interval is None

    def __str__(self) -> str:
        if self.every_commit:
            return "every"
        return "never" if self.interval is None else duration_text(self.interval)


_NAMED_INTERVALS = {
    "hourly": timedelta(hours=1),
    "daily": timedelta(days=1),
    "weekly": timedelta(weeks=1),
}
EVERY_COMMIT = Cadence(every_commit=True)
NEVER = Cadence()


@dataclass(frozen=True, slots=True)
class ValidationPolicy:
    """When each level is validated, and what it minds. All bytes are read again within
    `reread_all_within`."""

    checksum: Cadence = EVERY_COMMIT
    format: Cadence = NEVER
    restore: Cadence = NEVER
    reread_all_within: timedelta = timedelta(days=30)
    non_finite: str = "fail"  # what NaN or infinity in a float tensor means: fail, warn, ignore
    unknown_formats: str = "warn"  # what a file of no known format means: fail, warn, ignore
    pickle_globals: tuple[
        str, ...
    ] = ()  # of pickles, beside those that PyTorch's weights_only knows

    def cadence(self, level: Level) -> Cadence:
        cadences = {
            Level.CHECKSUM: self.checksum,
            Level.FORMAT: self.format,
            Level.RESTORE: self.restore,
        }
        return cadences[level]


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a job may lose, how soon it must run again, what checkpoints may cost it, and how long
    an error in training may stay unnoticed, so that something older must be left to go back to."""

    rpo: timedelta = timedelta(minutes=30)
    rto: timedelta = timedelta(minutes=15)
    max_overhead: Fraction = Fraction(5, 100)
    detection: timedelta = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How long each lease lasts without a renewal. A grant ends before the lease that it serves."""

    generation: timedelta = timedelta(minutes=15)
    writer: timedelta = timedelta(minutes=15)
    grant: timedelta = timedelta(minutes=15)
    reader: timedelta = timedelta(hours=1)


def _same(value: Any) -> Any:
    return value


def _read_level(node: Node) -> Level:
    return Level(node.one_of(list(Level)))


def _read_optional_size(node: Node) -> int | None:
    return None if node.value is None else read_size(node)


def _write_optional_size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else size_text(size_bytes)


def _read_bound(node: Node) -> Bound:
    is_share = isinstance(node.value, str) and node.value.endswith("%")
    return Bound(read_share(node)) if is_share else Bound(None, read_size(node))


def _read_reserve(node: Node) -> int | None:
    return None if node.value == "measured" else read_size(node)


def _write_reserve(size_bytes: int | None) -> str:
    return "measured" if size_bytes is None else size_text(size_bytes)


def read_name(node: Node) -> str:
    """A name, as of a policy, a role, a tier or a store."""
    try:
        return check_name(node.value, "")
    except InvalidInput:
        raise node.error(f"{node.shown} is not a name: 1 to 63 of a-z 0-9 . _ -") from None


def _read_optional_name(node: Node) -> str | None:
    return None if node.value is None else read_name(node)


def _read_cadence(node: Node) -> Cadence:
    if node.value == "every":
        return EVERY_COMMIT
    if node.value == "never":
        return NEVER
    named = _NAMED_INTERVALS.get(node.value) if isinstance(node.value, str) else None
    return Cadence(interval=named or read_duration(node))


def _read_margin(node: Node) -> int | float:
    margin = node.number()
    if not 1 <= margin <= 1000:
        raise node.error("give a factor from 1 to 1000")
    return margin


def _read_globals(node: Node) -> tuple[str, ...]:
    names = [(item, item.text(200)) for item in node.items(1000)]
    for item, name in names:
        if not all(part.isidentifier() for part in name.split(".")) or "." not in name:
            raise item.error(f"{name!r} is no global's full name, as in package.module.Class")
    return tuple(name for _, name in names)


DURATION = Form(read_duration, duration_text)
SHARE = Form(read_share, share_text)
LEVEL = Form(_read_level, str)
_CADENCE = Form(_read_cadence, str)
_BOUND = Form(_read_bound, str)
_OPTIONAL_SIZE = Form(_read_optional_size, _write_optional_size)

GATE: Forms = {"level": LEVEL, "receipt_max_age": DURATION, "mark_max_age": DURATION}
QUARANTINE: Forms = {
    "grace": DURATION,
    "approve_above": _OPTIONAL_SIZE,
    "share_guard": SHARE,
    "share_guard_min": Form(lambda node: node.integer(0), _same),
}
RETIRE: Forms = {"grace": DURATION, "approve": Form(lambda node: node.flag(), _same)}
_PROMOTION = PromotionPolicy()
PROMOTION: Forms = {
    "approve": Form(lambda node: node.flag(), _same, unwritten=_PROMOTION.approve),
    "cooling": Form(
        lambda node: read_duration(node, zero=True), duration_text, unwritten=_PROMOTION.cooling
    ),
    "difference_max_age": Form(
        read_duration, duration_text, unwritten=_PROMOTION.difference_max_age
    ),
}
UPLOADS: Forms = {
    "abort_after": DURATION,
    "margin_over_p99": Form(_read_margin, _same),
    "lifecycle_days": Form(lambda node: node.integer(1, 3650), _same),
}
CAPACITY: Forms = {
    "soft": _BOUND,
    "hard": _BOUND,
    "reserve": Form(_read_reserve, _write_reserve),
    "spill_store": Form(_read_optional_name, _same),
}
VALIDATE: Forms = {
    "checksum": _CADENCE,
    "format": _CADENCE,
    "restore": _CADENCE,
    "reread_all_within": DURATION,
    "non_finite": Form(lambda node: node.one_of(("fail", "warn", "ignore")), _same),
    "unknown_formats": Form(
        lambda node: node.one_of(("fail", "warn", "ignore")), _same, unwritten="warn"
    ),
    "pickle_globals": Form(_read_globals, list),
}
OBJECTIVES: Forms = {
    "rpo": DURATION,
    "rto": DURATION,
    "max_overhead": SHARE,
    "detection": Form(read_duration, duration_text, unwritten=Objectives().detection),
}
LEASES: Forms = {
    "generation": DURATION,
    "writer": DURATION,
    "grant": DURATION,
    "reader": DURATION,
}
