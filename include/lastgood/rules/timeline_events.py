"""What happened to a stage, as values in the order of time, and the history that it makes.

Applied up to an instant, the events make the very history that a mark of this instant decides over:
the same checkpoints with the same receipts, and the same facts beside them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from lastgood.rules.decision import StageFacts
from lastgood.rules.names import ManifestDigest
from lastgood.rules.retention_rules import Candidate, Level, Position, ReceiptVerdict

K = TypeVar("K")
_position = attrgetter("position")


@dataclass(frozen=True, slots=True)
class Committed:
    """A copy of a checkpoint came to be. `size_bytes` is the checkpoint's."""

    at: datetime
    copy_id: int
    stored_bytes: int
    candidate: Candidate
    resumed_from: Position | None = None
    depends_on: Sequence[ManifestDigest] = ()


@dataclass(frozen=True, slots=True)
class Received:
    """A receipt of a copy."""

    at: datetime
    copy_id: int
    level: Level
    verdict: ReceiptVerdict


@dataclass(frozen=True, slots=True)
class Moved:
    """A copy came to a state."""

    at: datetime
    copy_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Referred:
    """A hold or a reader came to stand on a checkpoint, or went. `kind` is hold or reader."""

    at: datetime
    kind: str
    position: Position
    name: str
    stands: bool


@dataclass(frozen=True, slots=True)
class Writing:
    """A generation began, or ended."""

    at: datetime
    generation: int
    resumed_from: Position | None
    stands: bool


@dataclass(frozen=True, slots=True)
class Needed:
    """A manifest of another stage that needs one of this stage came to live, or went."""

    at: datetime
    manifest: ManifestDigest
    dependent: str
    stands: bool


@dataclass(frozen=True, slots=True)
class Based:
    """Something that a manifest of this stage depends on, however far, was found damaged or went;
    or (`whole`) all of it is sound again."""

    at: datetime
    manifest: ManifestDigest
    whole: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A retirement of the stage came to the end of its grace, or was undone."""

    at: datetime
    retirement: str
    stands: bool


@dataclass(frozen=True, slots=True)
class Pressed:
    """The project came to stand above soft since `since`, or (None) to stand open."""

    at: datetime
    since: datetime | None


Event = Committed | Received | Moved | Referred | Writing | Needed | Based | Ended | Pressed


@dataclass(slots=True)
class _Copy:
    copy_id: int
    stored_bytes: int
    state: str = "present"
    receipts: dict[Level, ReceiptVerdict] = field(default_factory=dict)
    failed: bool = False

    @property
    def exists(self) -> bool:
        return self.state in ("present", "quarantined")

    @property
    def usefulness(self) -> tuple[bool, bool, int]:
        return self.state != "present", self.failed, self.copy_id


@dataclass(slots=True)
class _Checkpoint:
    base: Candidate
    copies: list[_Copy]


class StageState:
    """One stage as of the events applied so far. `history` is what a mark would read.

    `appended` are the checkpoints that came to its end since they were last looked at, `changed`
    says that anything else of the history did.
    """

    def __init__(self) -> None:
        self.history: list[Candidate] = []
        self.appended: list[Candidate] = []
        self.changed = False
        self.in_order = True  # every checkpoint was committed after those before it
        self.bytes_of: dict[Position, int] = {}  # stored, of all copies that exist
        self.copies_of: dict[Position, list[_Copy]] = {}
        self.holds: dict[Position, list[str]] = {}
        self.readers: dict[Position, list[str]] = {}
        self.resumed_from: dict[Position, Position] = {}
        self.depends_on: dict[ManifestDigest, Sequence[ManifestDigest]] = {}
        self.needed_elsewhere: dict[ManifestDigest, list[str]] = {}
        self.pressed_since: datetime | None = None
        self._checkpoints: dict[Position, _Checkpoint] = {}
        self._by_copy: dict[int, tuple[_Checkpoint, _Copy]] = {}
        self._writing: dict[int, Position | None] = {}
        self._newest: dict[int, Position] = {}  # of each generation, whatever became of it
        self._damaged: set[ManifestDigest] = set()  # they depend on something that is not sound
        self._ended: set[str] = set()

    @property
    def seen(self) -> int:
        """How many checkpoints the stage ever had."""
        return len(self._checkpoints)

    @property
    def retired(self) -> bool:
        """An operator ended the stage's life, and nobody writes it."""
        return bool(self._ended) and not self._writing

    @property
    def special(self) -> bool:
        """Something is at work that no rule knows of by itself."""
        return bool(
            self.retired
            or self.pressed_since
            or self.depends_on
            or self.needed_elsewhere
            or not self.in_order
        )

    @property
    def active(self) -> dict[Position, list[str]]:
        """What the generations refer to that are being written: where each began, and its newest
        checkpoint."""
        found: dict[Position, set[int]] = {}
        for generation, origin in self._writing.items():
            for position in (origin, self._newest.get(generation)):
                if position is not None:
                    found.setdefault(position, set()).add(generation)
        return {
            position: [f"generation {writer}" for writer in sorted(writers)]
            for position, writers in found.items()
        }

    def facts(self) -> StageFacts:
        """What keeps checkpoints beside the policy."""
        there = self.bytes_of
        manifests = {one.manifest for one in self.history}
        return StageFacts(
            holds={at: names for at, names in self.holds.items() if at in there},
            readers={at: names for at, names in self.readers.items() if at in there},
            active={at: names for at, names in self.active.items() if at in there},
            depends_on={at: needs for at, needs in self.depends_on.items() if at in manifests},
            needed_elsewhere={
                at: names for at, names in self.needed_elsewhere.items() if at in manifests
            },
            resumed_from={at: origin for at, origin in self.resumed_from.items() if at in there},
            retired=self.retired,
            pressed_since=self.pressed_since,
        )

    def apply(self, event: Event) -> None:
        """What happened next."""
        match event:
            case Committed():
                self._commit(event)
            case Received():
                self._receive(event)
            case Moved():
                self._move(event)
            case Referred():
                standing = self.holds if event.kind == "hold" else self.readers
                _turn(standing, event.position, event.name, event.stands)
            case Writing():
                if event.stands:
                    self._writing[event.generation] = event.resumed_from
                else:
                    self._writing.pop(event.generation, None)
            case Needed():
                _turn(self.needed_elsewhere, event.manifest, event.dependent, event.stands)
            case Based():
                self._rest(event)
            case Ended():
                (self._ended.add if event.stands else self._ended.discard)(event.retirement)
            case Pressed():
                self.pressed_since = event.since

    def _commit(self, event: Committed) -> None:
        base = event.candidate
        position = base.position
        copy = _Copy(event.copy_id, event.stored_bytes)
        known = self._checkpoints.get(position)
        if known is None:
            known = self._checkpoints[position] = _Checkpoint(base, [])
            if position > self._newest.get(base.generation, (0, -1)):
                self._newest[base.generation] = position
            if event.resumed_from is not None:
                self.resumed_from[position] = event.resumed_from
            if event.depends_on:
                self.depends_on[base.manifest] = event.depends_on
        known.copies.append(copy)
        self._by_copy[copy.copy_id] = known, copy
        self._look_again(known)

    def _receive(self, event: Received) -> None:
        known, copy = self._by_copy[event.copy_id]
        conclusive = event.verdict is not ReceiptVerdict.INCONCLUSIVE
        if conclusive or copy.receipts.get(event.level) in (None, ReceiptVerdict.INCONCLUSIVE):
            copy.receipts[event.level] = event.verdict
        if conclusive:
            copy.failed = event.verdict is ReceiptVerdict.FAIL
        self._look_again(known)

    def _rest(self, event: Based) -> None:
        (self._damaged.discard if event.whole else self._damaged.add)(event.manifest)
        for known in self._checkpoints.values():
            if known.base.manifest == event.manifest:
                self._look_again(known)

    def _move(self, event: Moved) -> None:
        known, copy = self._by_copy[event.copy_id]
        copy.state = event.state
        self._look_again(known)

    def _look_again(self, known: _Checkpoint) -> None:
        """Take a checkpoint into the history as it is now."""
        position = known.base.position
        existing = [copy for copy in known.copies if copy.exists]
        if not existing:
            if self.bytes_of.pop(position, None) is not None:
                self.copies_of.pop(position)
                self.history = [one for one in self.history if one.position != position]
                self.changed = True
            return
        best = min(existing, key=lambda copy: copy.usefulness)
        base = known.base
        now = Candidate(
            base.generation,
            base.sequence,
            base.step,
            base.committed_at,
            base.manifest,
            base.size_bytes,
            base.metrics,
            dict(best.receipts),
            best.failed,
            best.state == "present",
            best.state == "quarantined",
            base.manifest not in self._damaged,
        )
        was_there = position in self.bytes_of
        self.bytes_of[position] = sum(copy.stored_bytes for copy in existing)
        self.copies_of[position] = existing
        if not was_there:
            self._insert(now)
        elif self.appended and self.appended[-1].position == position:
            self.appended[-1] = self.history[-1] = now  # nobody has looked at it yet
        else:
            number = bisect_left(self.history, position, key=_position)
            if self.history[number] != now:  # another pass says nothing new
                self.history[number] = now
                self.changed = True

    def _insert(self, candidate: Candidate) -> None:
        before = self.history[-1] if self.history else None
        if before is None or candidate.position > before.position:
            if before is not None and candidate.committed_at < before.committed_at:
                self.in_order = False
            self.history.append(candidate)
            self.appended.append(candidate)
            return
        insort(self.history, candidate, key=_position)
        self.changed = True
        times = [one.committed_at for one in self.history]
        if times != sorted(times):
            self.in_order = False

    def looked(self) -> None:
        """Whoever decides has taken in what changed."""
        self.appended = []
        self.changed = False


def _turn(standing: dict[K, list[str]], where: K, name: str, stands: bool) -> None:
    names = set(standing.pop(where, ()))
    (names.add if stands else names.discard)(name)
    if names:
        standing[where] = sorted(names)
