"""Adding up an inventory in bounded memory: bytes by line, and differences by cause and place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lastgood.flows.inventory_merge import Absence, Cause, Entry
from lastgood.flows.inventory_owners import SHARED
from lastgood.rules.byte_equation import Line

PLACES_LIMIT = 2_000  # per cause; what comes later is gathered more coarsely
SAMPLES_LIMIT = 5  # keys shown per place


@dataclass(slots=True)
class Amount:
    """A number of bytes and of objects."""

    size_bytes: int = 0
    objects: int = 0

    def add(self, size_bytes: int, objects: int = 1) -> None:
        self.size_bytes += size_bytes
        self.objects += objects


@dataclass(frozen=True, slots=True)
class Place:
    """Where a difference lies: followed from day to day as one finding."""

    project: str
    cause: Cause
    key_range: str


@dataclass(slots=True)
class Difference:
    """What of one cause lies in one place. `in_store`: its bytes are in the store, unexplained."""

    amount: Amount = field(default_factory=Amount)
    in_store: Amount = field(default_factory=Amount)
    samples: list[tuple[str, int, str]] = field(default_factory=list)  # key, bytes, detail

    def add(self, item: Entry | Absence) -> None:
        size = item.size_bytes if isinstance(item, Entry) else item.expected_bytes
        self.amount.add(size)
        if isinstance(item, Entry) and item.line is Line.UNEXPLAINED:
            self.in_store.add(size)
        if len(self.samples) < SAMPLES_LIMIT:
            self.samples.append((item.key, size, item.detail))


class Tally:
    """The sums of one pass over a store."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, Line], Amount] = {}
        self.differences: dict[Place, Difference] = {}
        self.duplicate_keys = 0
        self.recognised = 0
        self.absent = 0
        self._places: dict[Cause, int] = {}

    def add_all(self, items: Iterable[Entry | Absence]) -> None:
        """Count every item."""
        for item in items:
            self.add(item)

    def add(self, item: Entry | Absence) -> None:
        if isinstance(item, Entry):
            self.line(item.project, item.line).add(item.size_bytes)
            self.recognised += item.cause is None
        else:
            self.absent += 1
        if item.cause is None:
            return
        self.duplicate_keys += item.cause is Cause.DUPLICATE
        if isinstance(item, Entry) and item.cause is Cause.SIZE_DIFFERS:
            self._in_store(item)  # the Absence beside it counts the key
        else:
            self._difference(item).add(item)

    def line(self, project: str, line: Line) -> Amount:
        """The running sum of one line of one project."""
        return self.lines.setdefault((project, line), Amount())

    def _in_store(self, item: Entry) -> None:
        self._difference(item).in_store.add(item.size_bytes)

    def _difference(self, item: Entry | Absence) -> Difference:
        assert item.cause is not None
        place = Place(item.project, item.cause, item.unit)
        known = self.differences.get(place)
        if known is None and self._places.get(item.cause, 0) >= PLACES_LIMIT:
            place = Place(item.project, item.cause, item.unit.partition("/")[0] + "/…")
            known = self.differences.get(place)
        if known is None:
            self._places[item.cause] = self._places.get(item.cause, 0) + 1
            known = self.differences[place] = Difference()
        return known

    def take_out(self, prefix: str) -> Mapping[Place, Difference]:
        """Remove the differences gathered under exactly this prefix, and answer them. Their bytes
        stay in their lines until they are moved."""
        places = [place for place in self.differences if place.key_range == prefix]
        return {place: self.differences.pop(place) for place in places}

    def reassign(self, place: Place, amount: Amount, fresh: Tally) -> None:
        """Bytes that were unexplained in a first look and are not in a fresh one: they went to the
        line that now holds the place, or they are gone."""
        unexplained = self.line(place.project, Line.UNEXPLAINED)
        unexplained.add(-amount.size_bytes, -amount.objects)
        held = {line: one for (_, line), one in fresh.lines.items() if line is not Line.UNEXPLAINED}
        if held and place.cause is not Cause.DUPLICATE:
            line = max(held, key=lambda one: held[one].size_bytes)
            self.line(place.project, line).add(amount.size_bytes, amount.objects)

    def gap(self, scope: str | None, size_bytes: int) -> None:
        """Note bytes that no listing shows, of a project or (None) of the whole store."""
        project = SHARED if scope is None else scope
        difference = Difference()
        difference.amount.add(size_bytes, 0)
        self.differences[Place(project, Cause.ACCOUNTING_GAP, "")] = difference

    def total_bytes(self, project: str | None = None) -> int:
        """The bytes of all lines, of one project or (None) of the whole store."""
        return sum(
            amount.size_bytes
            for (owner, _), amount in self.lines.items()
            if project in (None, owner)
        )
