"""What two policies keep of a stage over many instants, in one pass over its events.

The instants are those of marks, a step apart. What a stage keeps changes only at one of its events,
or when a checkpoint grows older than a role keeps it; between these nothing is decided. And what a
rule keeps of a history that has grown by newer checkpoints is what it keeps of those that it kept
before and the newer ones: what a rule has given up it never takes back, unless something before
them changed. So the rules of `rules.retention` are asked over few checkpoints, and over the whole
history only where it changed otherwise. Where more than rules decides (see `StageState.special`),
the whole decision is made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lastgood.rules import retention
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import AnyRule, Candidate, Every, Position
from lastgood.rules.timeline_events import Event, StageState


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants of marks: `count` of them from `start` on, a step apart."""

    start: datetime
    step: timedelta
    count: int

    def __getitem__(self, number: int) -> datetime:
        return self.start + number * self.step

    @property
    def last(self) -> datetime:
        """The last one."""
        return self[self.count - 1]

    def at_or_after(self, at: datetime) -> int:
        """The number of the first one that sees what happened at an instant; `count` if none."""
        return min(max(0, -((self.start - at) // self.step)), self.count)

    def after(self, at: datetime) -> int:
        """The number of the first one later than an instant; `count` if none."""
        return min(max(0, (at - self.start) // self.step + 1), self.count)


Span = tuple[int, int]  # from one instant on, until before another


@dataclass(slots=True)
class Kept:
    """What one policy kept: the spans of each checkpoint, and how the stored bytes changed, by
    instant."""

    spans: dict[Position, list[Span]] = field(default_factory=dict)
    changes: list[tuple[int, int]] = field(default_factory=list)
    now: set[Position] = field(default_factory=set)
    since: dict[Position, int] = field(default_factory=dict)
    total_bytes: int = 0

    def take(self, kept: set[Position], total_bytes: int, number: int) -> None:
        """It keeps these from an instant on."""
        if total_bytes != self.total_bytes:
            self.changes.append((number, total_bytes - self.total_bytes))
            self.total_bytes = total_bytes
        if kept == self.now:
            return
        for position in self.now - kept:
            self.spans.setdefault(position, []).append((self.since.pop(position), number))
        for position in kept - self.now:
            self.since[position] = number
        self.now = kept

    def end(self, count: int) -> None:
        """No instant follows."""
        for position, since in self.since.items():
            self.spans.setdefault(position, []).append((since, count))
        self.since = {}


@dataclass(slots=True)
class Compared:
    """A stage under both policies, and as it was at the last instant. `decided` is how often a
    decision was made."""

    state: StageState
    current: Kept
    candidate: Kept
    decided: int = 0

    def differing(self) -> Iterator[tuple[Position, Sequence[Span], Sequence[Span]]]:
        """The checkpoints that were not kept alike at every instant, each with its spans."""
        ours, theirs = self.current.spans, self.candidate.spans
        for position in sorted(ours.keys() | theirs.keys()):
            pair = ours.get(position, []), theirs.get(position, [])
            if pair[0] != pair[1]:
                yield (position, *pair)


def compare(
    events: Sequence[Event], current: Policy, candidate: Policy, instants: Instants
) -> Compared:
    """Decide over a stage under two policies at every instant. The policies are those of the stage
    (see `Policy.for_stage`); the events are all of it, in the order of time and of their making."""
    state = StageState()
    deciders = _Deciders(state)
    sides = [
        (_Decider(deciders, current), Kept()),
        (_Decider(deciders, candidate), Kept()),
    ]
    found = Compared(state, sides[0][1], sides[1][1])
    number, read = 0, 0
    while True:
        at = instants[number]
        while read < len(events) and events[read].at <= at:
            state.apply(events[read])
            read += 1
        deciders.follow(at)
        for decider, kept in sides:
            positions = decider.keeps(at)
            kept.take(positions, sum(map(state.bytes_of.__getitem__, positions)), number)
        state.looked()
        found.decided += 1
        following = instants.at_or_after(events[read].at) if read < len(events) else instants.count
        ages_at = deciders.ages_at(at)
        if ages_at is not None:
            following = min(following, max(instants.after(ages_at), number + 1))
        if following >= instants.count:
            break
        number = following
    for _, kept in sides:
        kept.end(instants.count)
    # What happened after the last decision changed nothing that an instant sees.
    return found


class _Tracker:
    """What one rule keeps of the stage, and until when without an event."""

    __slots__ = ("_rule", "_within", "ages_at", "kept", "positions")

    def __init__(self, rule: AnyRule) -> None:
        self._rule = rule
        self._within = rule.within if isinstance(rule, Every) else None
        self.kept: Sequence[Candidate] = ()
        self.positions: frozenset[Position] = frozenset()
        self.ages_at: datetime | None = None  # later than this, it keeps less

    def take(self, among: Sequence[Candidate], at: datetime) -> None:
        self.positions = frozenset(self._rule.keeps(among, at))
        self.kept = [one for one in among if one.position in self.positions]
        if self._within is not None:
            self.ages_at = self.kept[0].committed_at + self._within if self.kept else None


class _Deciders:
    """The rules of both policies over one stage; one that both have is followed once."""

    def __init__(self, state: StageState) -> None:
        self.state = state
        self.trackers: dict[AnyRule, _Tracker] = {}
        self.withins: set[timedelta] = set()
        self._stale = False

    def tracker(self, rule: AnyRule) -> _Tracker:
        if isinstance(rule, Every) and rule.within is not None:
            self.withins.add(rule.within)
        return self.trackers.setdefault(rule, _Tracker(rule))

    def follow(self, at: datetime) -> None:
        """Take in what changed up to an instant."""
        state = self.state
        if state.special:
            self._stale = True
            return
        whole = state.changed or self._stale
        self._stale = False
        new = [one for one in state.appended if one.qualifies]
        for tracker in self.trackers.values():
            if whole:
                tracker.take(state.history, at)
            elif new:
                tracker.take([*tracker.kept, *new], at)
            elif tracker.ages_at is not None and at > tracker.ages_at:
                tracker.take(tracker.kept, at)

    def ages_at(self, at: datetime) -> datetime | None:
        """Until when nothing changes without an event; None: for ever."""
        if not self._stale:
            ends = [one.ages_at for one in self.trackers.values() if one.ages_at is not None]
            return min(ends, default=None)
        times = [one.committed_at for one in self.state.history]
        if not self.state.in_order:
            times.sort()
        ends = []
        for within in self.withins:
            first = bisect_left(times, at - within)
            if first < len(times):
                ends.append(times[first] + within)
        return min(ends, default=None)


class _Decider:
    """What one policy keeps of the stage."""

    def __init__(self, deciders: _Deciders, policy: Policy) -> None:
        self._state = deciders.state
        self._policy = policy
        self._trackers = [deciders.tracker(role.rule) for role in policy.roles]

    def keeps(self, at: datetime) -> set[Position]:
        state = self._state
        if state.special:
            return set(retention.decide(state.history, self._policy, at, state.facts()).kept)
        if not state.history:
            return set()
        kept = {state.history[-1].position}
        kept.update(*[tracker.positions for tracker in self._trackers])
        proven = next((one.position for one in reversed(state.history) if one.proven), None)
        if proven is None:
            return set(state.bytes_of)
        kept.add(proven)
        for referred in (state.holds, state.readers, state.active):
            kept.update(position for position in referred if position in state.bytes_of)
        if self._policy.lineage and state.resumed_from:
            origins = [state.resumed_from.get(position) for position in kept]
            kept.update(one for one in origins if one is not None and one in state.bytes_of)
        return kept
