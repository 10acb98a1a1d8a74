"""Adding up an inventory in bounded memory: bytes by line, and differences by cause and place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from lastgood.flows.inventories.merge import Absence, Cause, Entry
from lastgood.flows.inventories.owners import SHARED
from lastgood.rules.byte_equation import Line
from lastgood.rules.layout import INVENTORIES_PREFIX

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
        # The prefixes of all copies with an object that is missing, of another size, or out of
        # sight, by project: each of them has to be validated.
        self.damaged: defaultdict[str, list[str]] = defaultdict(list)
        self.duplicate_keys = 0
        self.others = 0  # entries that are no file of a kept inventory
        self.recognised = 0  # of these, as they should be
        self.absent = 0
        self._places: dict[Cause, int] = {}

    def add_all(self, items: Iterable[Entry | Absence]) -> None:
        """Count every item."""
        for item in items:
            self.add(item)

    def add(self, item: Entry | Absence) -> None:
        if isinstance(item, Entry):
            self.line(item.project, item.line).add(item.size_bytes)
            if not item.unit.startswith(INVENTORIES_PREFIX):
                self.others += 1
                self.recognised += item.cause is None
            if item.unreadable:
                self._damaged(item)
        else:
            self.absent += 1
            self._damaged(item)
        if item.cause is None:
            return
        self.duplicate_keys += item.cause is Cause.DUPLICATE
        if isinstance(item, Entry) and item.cause is Cause.SIZE_DIFFERS:
            self._in_store(item)  # the Absence beside it counts the key
        else:
            self._difference(item).add(item)

    def _damaged(self, item: Entry | Absence) -> None:
        """Note whose it is, once: keys come in their order."""
        known = self.damaged[item.project]
        if not known or known[-1] != item.unit:
            known.append(item.unit)

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

    def agree(self, project: str, line: Line, size_bytes: int, objects: int) -> None:
        """Count objects that lie as the catalog expects them."""
        self.line(project, line).add(size_bytes, objects)
        self.others += objects
        self.recognised += objects

    def gap(self, scope: str | None, size_bytes: int, how: str = "") -> None:
        """Note bytes that no listing shows, of a project or (None) of the whole store; `how` names
        the accounting that shows them, "" the backend's own."""
        project = SHARED if scope is None else scope
        difference = Difference()
        difference.amount.add(size_bytes, 0)
        self.differences[Place(project, Cause.ACCOUNTING_GAP, how)] = difference

    def total_bytes(self, project: str | None = None) -> int:
        """The bytes of all lines, of one project or (None) of the whole store."""
        return sum(
            amount.size_bytes
            for (owner, _), amount in self.lines.items()
            if project in (None, owner)
        )
