"""Mark: decide what a project keeps, as of one instant, and write the decision down.

A live mark decides as of now, under the policy in force, and only a live one can be swept. A
replayed mark decides as of a past instant, by the same code over the same append-only history:
repeated, it gives the same digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal
from zoneinfo import TZPATH

from lastgood import errors
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.retention import marks, promotions, stage_history
from lastgood.catalog.retention.marks import Mark, MarkCandidate, NewMark
from lastgood.catalog.retention.promotions import Promotion
from lastgood.catalog.retention.stage_history import StageHistory
from lastgood.catalog.settings import policies, policy_versions, projects
from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.flows import sane_clock
from lastgood.flows.jobs import lapses
from lastgood.rules import retention
from lastgood.rules.decision import DecisionDigest, StageDecision
from lastgood.rules.policy_names import PolicyName
from lastgood.rules.quantities import instant_text


def run(
    catalog: Catalog,
    project: str,
    at: datetime | None = None,
    kind: Literal["live", "replay"] = "live",
    policy: str | None = None,
) -> dict[str, Any]:
    """Mark a project; answers the mark's id (`mark_id`), digest and counts; of a live one also the
    promotion that it is the first under (`first_under`, else None).

    A live mark takes neither `at` nor `policy`. A replay takes the past instant, and a policy:
    `default@v3` for a version, `default` for its newest one, None for the one that was in force at
    the instant. Replaying the same again answers the same mark. Raises InvalidInput, NotFound,
    Conflict if a replay decides otherwise than the mark recorded before, and ClockJump: made at a
    wrong time a mark would push all history behind it there, too.
    """
    if kind == "live":
        if at is not None or policy is not None:
            raise errors.InvalidInput(
                where="mark",
                reason="a live mark decides as of now under the policy in force; for another"
                " instant or policy ask for a replay",
            )
        sane_clock.require(catalog)
        mark, promotion = _live(catalog, project)
        first = f"promotion {promotion.promotion_id} of {promotion.name}" if promotion else None
        return {**_told(mark), "first_under": first}
    if at is None or at.tzinfo is None:
        raise errors.InvalidInput(where="at", reason="a replay needs an instant with its zone")
    sane_clock.require(catalog)
    return _told(_replay(catalog, project, _plain(at), policy))


def _plain(at: datetime) -> datetime:
    """As the standard library has it: what a scheduler hands over may be of a class whose
    arithmetic loses the zone."""
    utc = at.astimezone(UTC)
    return datetime.combine(utc.date(), utc.time(), UTC)


def _told(mark: Mark) -> dict[str, Any]:
    return {
        "mark_id": mark.mark_id,
        "kind": mark.kind,
        "at": mark.at.isoformat(),
        "policy": f"{mark.policy} version {mark.policy_version}",
        "digest": mark.digest,
        "counts": dict(mark.counts),
    }


def _live(catalog: Catalog, project: str) -> tuple[Mark, Promotion | None]:
    """The mark, with the promotion that it is the first one under, if it is."""
    lapses.observe(catalog, project)
    with catalog.transaction() as tx:
        at = marks.choose_instant(tx, project)
        version = policy_versions.current(tx, project, at)
    with catalog.transaction() as tx:
        decided = _decide(tx, project, at, version)
        mark = marks.record(tx, decided.as_mark("live"))
        assert mark is not None, "no two live marks have the same instant"
        marks.add_candidates(tx, mark, decided.candidates)
        marks.add_changes(tx, mark, marks.newest(tx, project, before=at))
        promotion = promotions.in_effect(tx, project, at)
        if promotion is not None and not promotions.note_first_mark(tx, promotion, mark):
            promotion = None
    return mark, promotion


def _replay(catalog: Catalog, project: str, at: datetime, policy: str | None) -> Mark:
    with catalog.transaction() as tx:
        projects.get(tx, project)
        marks.close_past(tx, project, at)
        version = _version(tx, project, at, policy)
    with catalog.transaction() as tx:
        decided = _decide(tx, project, at, version)
        new = decided.as_mark("replay")
        mark = marks.record(tx, new)
        if mark is not None:
            marks.add_candidates(tx, mark, decided.candidates)
            return mark
        before = marks.recorded(tx, new)
    if before.digest != new.digest:
        raise errors.Conflict(reason=_decides_otherwise(before, new))
    return before


def _decides_otherwise(before: Mark, new: NewMark) -> str:
    """What to do where a replay does not give the mark again."""
    made, now = _made_by(before), _made_by(new)
    name = PolicyName(new.policy, new.policy_version)
    if made == now:
        way_out = (
            f"it was made by {made}, and neither changed since; so the history did, or the code"
            " without its version: run `lastgood audit` and compare the workers' installations"
        )
    else:
        way_out = (
            f"it was made by {made}, and this is {now}; it stands as what was decided by that. For"
            f" what this code decides run `lastgood policy diff {name} {name} -p {new.project}`, or"
            " record the policy under another name and replay that"
        )
    return (
        f"replayed mark {before.mark_id} of {before.project} at {instant_text(before.at)} under"
        f" {name} has digest {before.digest[:12]}, and decided again {new.digest[:12]}; {way_out}"
    )


def _made_by(mark: NewMark) -> str:
    return f"code {mark.code_version} with time-zone data {mark.time_zone_version}"


def _version(tx: Transaction, project: str, at: datetime, policy: str | None) -> PolicyVersion:
    if policy is None:
        taken = policy_versions.times_in_force(tx, project)
        if not any(one.effective_from is not None and one.effective_from <= at for one in taken):
            raise errors.InvalidInput(
                where="at",
                reason=f"no policy of {project} was in force at {instant_text(at)}; give a later"
                " instant, or name a policy",
            )
        return policy_versions.current(tx, project, at)
    return policy_versions.get(tx, project, PolicyName.parse(policy, "policy"))


@dataclass(frozen=True, slots=True)
class _Decided:
    """A whole decision before it is written."""

    project: str
    at: datetime
    version: PolicyVersion
    digest: str
    counts: dict[str, int]
    candidates: list[MarkCandidate]

    def as_mark(self, kind: marks.Kind) -> NewMark:
        return NewMark(
            project=self.project,
            kind=kind,
            at=self.at,
            policy=self.version.policy,
            policy_version=self.version.version,
            policy_digest=self.version.digest,
            code_version=code_version(),
            time_zone_version=time_zone_version(),
            digest=self.digest,
            counts=self.counts,
        )


def _decide(tx: Transaction, project: str, at: datetime, version: PolicyVersion) -> _Decided:
    """Decide stage by stage, each by the rules that the policy has for it; memory is one stage and
    the candidates."""
    policy = policies.parsed(version)
    digest = DecisionDigest()
    counts: Counter[str] = Counter(stages=0, checkpoints=0, kept=0, candidates=0, bytes=0)
    candidates: list[MarkCandidate] = []
    for stage in stage_history.of_project(tx, project, at):
        rules = policy.for_stage(stage.stage.workload, stage.stage.stage)
        decision = retention.decide(stage.history, rules, at, stage.facts)
        digest.add(stage.stage, decision)
        found = list(_candidates(stage, decision))
        candidates += found
        counts["stages"] += 1
        counts["checkpoints"] += len(stage.history)
        counts["kept"] += len(decision.kept)
        counts["candidates"] += len(decision.candidates)
        counts["bytes"] += sum(each.bytes for each in found)
        counts.update(
            f"kept by {kind}"
            for reasons in decision.kept.values()
            for kind in {reason.kind.value for reason in reasons}
        )
    return _Decided(project, at, version, digest.hexdigest(), dict(counts), candidates)


def _candidates(stage: StageHistory, decision: StageDecision) -> Iterator[MarkCandidate]:
    for position, leaving in decision.candidates.items():
        checkpoint_id, reasons = stage.checkpoint_ids[position], (leaving.text,)
        for copy_id, stored_bytes in stage.copies[position]:
            yield MarkCandidate(
                copy_id, stage.stage_id, checkpoint_id, leaving.role_name, reasons, stored_bytes
            )


def made_by() -> tuple[str, str]:
    """What a decision of here is made by: the versions of the code and of the time-zone data."""
    return code_version(), time_zone_version()


@cache
def code_version() -> str:
    """The version of this code."""
    return metadata.version("lastgood")


@cache
def time_zone_version() -> str:
    """The release of the time-zone data that calendar rules use here."""
    for folder in TZPATH:
        data = Path(folder) / "tzdata.zi"
        if data.is_file():
            with data.open(encoding="utf-8") as lines:
                return lines.readline().removeprefix("# version").strip()
    try:
        return f"tzdata {metadata.version('tzdata')}"
    except metadata.PackageNotFoundError:
        return "unknown"
