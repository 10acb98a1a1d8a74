"""What another policy would have kept and would delete, before a byte goes.

Two policies are held against the history of a project at every instant of a window, an hour apart,
in one pass (see `rules.timeline`). What is gone is gone: both are judged by the copies that were
there. The last instant is now, or the one that was asked for; what is said of losses and of the
first sweep is as of then, by whole decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import stage_events
from lastgood.catalog.jobs.stage_events import StageEvents
from lastgood.catalog.retention import marks, promotions
from lastgood.catalog.retention.promotions import DifferenceRow, NewDifference
from lastgood.catalog.settings import policies, policy_versions, projects
from lastgood.catalog.sweeping import takings
from lastgood.catalog.sweeping.takings import Day
from lastgood.flows import sane_clock
from lastgood.flows.policy_change import promotion
from lastgood.flows.retention.mark import made_by
from lastgood.flows.settings.configuration import read_policy
from lastgood.rules.policy import Policy
from lastgood.rules.policy_names import PolicyName
from lastgood.rules.policy_sections import QuarantinePolicy
from lastgood.rules.promotion import guards
from lastgood.rules.quantities import duration_text
from lastgood.rules.retention_rules import Position
from lastgood.rules.timeline import Compared, Instants, Kept, Span, compare
from lastgood.rules.timeline_loss import Ending, Reach, ending, reach, restorable

STEP = timedelta(hours=1)
WINDOW = timedelta(days=30)
MOST_INSTANTS = 24 * 400
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LISTED = 1000
"""Checkpoints that a document lists of each kind; its counts and sizes are of all."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """A policy to compare: a version such as `default@v7`, or a file."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Difference:
    """Two policies over a window, as a document; `recorded` is the row that a promotion asks
    for."""

    document: dict[str, Any]
    recorded: DifferenceRow | None = None


def run(
    catalog: Catalog,
    project: str,
    current: str,
    candidate: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    detection: timedelta | None = None,
    actor: str,
    row: Callable[[Row], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Difference:
    """Compare two policies, each `name@vN`, `name` for its newest version, or a YAML file, and
    record the difference. The window is the last 30 days unless it is given. `row` gets every
    checkpoint that they do not keep alike, `progress` the stages done. `detection` takes the place
    of the policies' own `objectives.detection`. Raises NotFound, InvalidInput for one policy with
    itself and for a window that has not passed or is empty, InvalidConfig for a wrong file, and
    ClockJump: by a wrong clock a window of the future would have passed, and what is recorded later
    has to follow it."""
    sane_clock.require(catalog)
    with catalog.transaction() as tx:
        projects.get(tx, project)
        sides = _side(tx, project, current, "CURRENT"), _side(tx, project, candidate, "CANDIDATE")
        _require_two(*sides)
        instants = _instants(tx, project, since, until)
        marks.close_past(tx, project, instants.last, where="--to")
        day = takings.of_day(tx, project)
        former = promotion.aftermath(tx, project, sides[0].policy, history.now(tx)).rules
    asking = guards(sides[1].policy.quarantine, former)
    comparing = _Comparing(sides[0], sides[1], instants, detection, row, day, asking)
    with catalog.transaction() as tx:
        for number, found in enumerate(stage_events.of_project(tx, project, instants.last), 1):
            comparing.add(found)
            if progress is not None:
                progress(number)
    document = {"project": project, **comparing.to_json()}
    code, time_zones = made_by()
    with catalog.transaction() as tx:
        new = NewDifference(
            project=project,
            current=sides[0].name,
            current_digest=sides[0].policy.digest,
            candidate=sides[1].name,
            candidate_digest=sides[1].policy.digest,
            from_at=instants.start,
            to_at=instants.last,
            code_version=code,
            time_zone_version=time_zones,
            document=document,
            recorded_by=actor,
        )
        recorded = promotions.record_difference(tx, new)
    return Difference({"difference": recorded.difference_id, **document}, recorded)


def project_of(catalog: Catalog, project: str | None) -> str:
    """The project that is meant: the one that is named, or the only one. Raises NotFound, and
    InvalidInput where there are several."""
    with catalog.transaction() as tx:
        if project is not None:
            return projects.get(tx, project).name
        names = projects.names(tx)
    if len(names) != 1:
        raise errors.InvalidInput(
            where="--project", reason=f"name one of {', '.join(names) or 'none yet'}"
        )
    return names[0]


def _side(tx: Transaction, project: str, text: str, where: str) -> Side:
    if text.endswith((".yaml", ".yml")):
        if not Path(text).is_file():
            raise errors.InvalidInput(where=where, reason=f"{text} is not a file")
        return Side(Path(text).name, read_policy(Path(text)))
    version = policy_versions.get(tx, project, PolicyName.parse(text, where))
    return Side(version.name, policies.parsed(version))


def _require_two(current: Side, candidate: Side) -> None:
    """That nothing differs would be taken for an answer."""
    if current == candidate:
        reason = (
            f"both are {current.name}; a name without a number is the newest version that was"
            " recorded, in force or not: `lastgood policy list` shows which is"
        )
        raise errors.InvalidInput(where="CANDIDATE", reason=reason)


def _instants(
    tx: Transaction, project: str, since: datetime | None, until: datetime | None
) -> Instants:
    last = (until or history.project_now(tx, project)).astimezone(UTC)
    if last < _EARLIEST:
        raise errors.InvalidInput(where="--to", reason=f"give an instant from {_EARLIEST:%Y} on")
    first = last - WINDOW if since is None else since.astimezone(UTC)
    if first > last:
        raise errors.InvalidInput(where="--from", reason="it is later than --to, or than now")
    count = (last - first) // STEP + 1
    if count > MOST_INSTANTS:
        most = duration_text(MOST_INSTANTS * STEP)
        raise errors.InvalidInput(where="--from", reason=f"give a window of at most {most}")
    return Instants(last - (count - 1) * STEP, STEP, count)


@dataclass(slots=True)
class _Sum:
    """One policy's side of all stages."""

    changes: list[int]
    kept: int = 0
    kept_bytes: int = 0
    worst: tuple[timedelta, str] = (timedelta(), "")  # the largest gap, and whose it is
    oldest: datetime | None = None
    shallow: list[str] = field(default_factory=list)  # stages with nothing old enough

    def add(self, kept: Kept, found: Reach, stage: str) -> None:
        for number, change in kept.changes:
            self.changes[number] += change
        self.kept += found.kept
        self.kept_bytes += found.kept_bytes
        self.worst = max(self.worst, (found.largest_gap, stage))
        if found.oldest is not None:
            self.oldest = min(self.oldest or found.oldest, found.oldest)
        if not found.old_enough:
            self.shallow.append(stage)

    def to_json(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "largest_gap_seconds": self.worst[0].total_seconds(),
            "largest_gap_stage": self.worst[1] or None,
            "oldest": self.oldest.isoformat() if self.oldest else None,
            "stages_with_nothing_older_than_detection": len(self.shallow),
            "such_stages": self.shallow[:LISTED],
        }


class _Comparing:
    """The difference in the making: what is kept of each stage is a few numbers."""

    def __init__(
        self,
        current: Side,
        candidate: Side,
        instants: Instants,
        detection: timedelta | None,
        row: Callable[[Row], None] | None,
        day: Day,
        asking: QuarantinePolicy,
    ) -> None:
        self._day = day
        self._asking = asking
        self._sides = current, candidate
        self._instants = instants
        self._detection = detection
        self._row = row
        self._sums = _Sum([0] * instants.count), _Sum([0] * instants.count)
        self._stages: list[Row] = []
        self._listed: list[Row] = []
        self._sweep: list[Row] = []
        self._counts: Counter[str] = Counter()
        self._overriding: Counter[str] = Counter()
        self._holds: set[str] = set()

    def add(self, found: StageEvents) -> None:
        """Compare one stage."""
        workload, stage = found.stage.workload, found.stage.stage
        ours, theirs = (side.policy.for_stage(workload, stage) for side in self._sides)
        compared = compare(found.events, ours, theirs, self._instants)
        last = self._instants.last
        end = ending(compared.state, theirs, last)
        if set(end.decision.kept) != compared.candidate.now:
            raise RuntimeError(f"the pass over {found.stage} does not end at its decision")
        reaches = [
            reach(compared.state, kept.now, last, self._detection or rules.objectives.detection)
            for kept, rules in ((compared.current, ours), (compared.candidate, theirs))
        ]
        name = str(found.stage)
        for total, kept, one in zip(
            self._sums, (compared.current, compared.candidate), reaches, strict=True
        ):
            total.add(kept, one, name)
        self._stages.append(self._stage(name, compared, reaches))
        self._take(name, compared, end)

    def _stage(self, name: str, compared: Compared, reaches: Sequence[Reach]) -> Row:
        state = compared.state
        lost = {
            one.position for one in restorable(state.history, compared.current.now)
        } - compared.candidate.now
        differing = 0
        for position, ours, theirs in compared.differing():
            differing += 1
            row = {
                "checkpoint": f"{name}/{_text(position)}",
                "bytes": state.bytes_of.get(position, 0),
                "current": self._spans(ours),
                "candidate": self._spans(theirs),
            }
            if self._row is not None:
                self._row(row)
            if len(self._listed) < LISTED:
                self._listed.append(row)
        lost_bytes = sum(state.bytes_of[position] for position in lost)
        self._counts.update(
            stages=1,
            checkpoints=len(state.history),
            seen=state.seen,
            copies=sum(map(len, state.copies_of.values())),
            bytes=sum(state.bytes_of.values()),
            differing=differing,
            lost=len(lost),
            lost_bytes=lost_bytes,
            decisions=compared.decided,
        )
        return {
            "stage": name,
            "checkpoints": len(state.history),
            "differing": differing,
            "lost": len(lost),
            "lost_bytes": lost_bytes,
            "current": reaches[0].to_json(),
            "candidate": reaches[1].to_json(),
        }

    def _take(self, name: str, compared: Compared, end: Ending) -> None:
        self._overriding.update(end.overriding)
        self._holds |= end.holds
        committed = {one.position: one.committed_at for one in compared.state.history}
        for position, leaves in end.leaving.items():
            copies = [
                copy for copy in compared.state.copies_of[position] if copy.state == "present"
            ]
            size = sum(copy.stored_bytes for copy in copies)
            new = position in compared.current.now
            self._counts.update(
                sweep_copies=len(copies),
                sweep_bytes=size,
                sweep_new=new,
                sweep_new_bytes=size * new,
                sweep_old=len(copies) * (committed[position] <= self._day.since),
            )
            if len(self._sweep) < LISTED:
                self._sweep.append(
                    {
                        "checkpoint": f"{name}/{_text(position)}",
                        "bytes": size,
                        "leaves": leaves,
                        "kept_by_current": new,
                    }
                )
        self._counts["sweep_back"] += len(end.back)

    def _spans(self, spans: Sequence[Span]) -> list[list[str]]:
        """From when until when; a span that was not over at the last instant has no end."""
        at, count = self._instants, self._instants.count
        return [
            [at[since].isoformat(), *([at[until].isoformat()] if until < count else [])]
            for since, until in spans
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole difference."""
        counts, instants = self._counts, self._instants
        current, candidate = self._sides
        stops = self._must_be_approved()
        detection = self._detection or candidate.policy.objectives.detection
        return {
            "current": {"name": current.name, "digest": current.policy.digest},
            "candidate": {"name": candidate.name, "digest": candidate.policy.digest},
            "from": instants.start.isoformat(),
            "to": instants.last.isoformat(),
            "instants": instants.count,
            "decisions": counts["decisions"],
            "detection_seconds": detection.total_seconds(),
            "totals": {
                **{
                    key: counts[key]
                    for key in ("stages", "seen", "checkpoints", "bytes", "differing")
                },
                "current": self._sums[0].to_json(),
                "candidate": self._sums[1].to_json(),
            },
            "curves": {
                "at": [instants[number].isoformat() for number in range(instants.count)],
                "current": list(accumulate(self._sums[0].changes)),
                "candidate": list(accumulate(self._sums[1].changes)),
            },
            "lost": {"checkpoints": counts["lost"], "bytes": counts["lost_bytes"]},
            "overriding": {**dict(self._overriding), "holds": sorted(self._holds)[:LISTED]},
            "first_sweep": {
                "copies": counts["sweep_copies"],
                "bytes": counts["sweep_bytes"],
                "kept_by_current": counts["sweep_new"],
                "kept_by_current_bytes": counts["sweep_new_bytes"],
                "taken_back": counts["sweep_back"],
                "must_be_approved": stops,
                "listed": self._sweep,
            },
            "stages": self._stages,
            "checkpoints": self._listed,
        }

    def _must_be_approved(self) -> bool:
        """Whether the first sweep would stop and ask: by itself, or with what was taken in the last
        day."""
        counts, day, rules = self._counts, self._day, self._asking
        above = rules.approve_above
        with_the_day = counts["sweep_old"] > 0 and rules.stops_at(
            day.taken + counts["sweep_old"], day.existed
        )
        too_large = above is not None and counts["sweep_bytes"] > above
        return with_the_day or too_large or rules.stops_at(counts["sweep_copies"], counts["copies"])


def _text(position: Position) -> str:
    return f"{position[0]}.{position[1]}"
