"""What a sweep would take to the gate: a value that is printed, tested and refused.

It names copies by the newest live mark and by their states; whether each may go is judged later.
Each step asks for its own approval. What is past its grace was let into quarantine by the guards,
or by somebody's word: that others are asked about there keeps no bytes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lastgood import errors
from lastgood.catalog import history
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.retention import marks
from lastgood.catalog.retention.marks import Mark
from lastgood.catalog.settings import policies, policy_versions
from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.catalog.sweeping import approvals, takings
from lastgood.catalog.sweeping.approvals import Request
from lastgood.catalog.sweeping.takings import Day
from lastgood.flows import graces
from lastgood.flows.policies import policy_of
from lastgood.flows.policy_change import promotion
from lastgood.rules.canonical import canonical_json
from lastgood.rules.policy import Policy
from lastgood.rules.policy_sections import QuarantinePolicy
from lastgood.rules.quantities import counted, instant_text, rough_size

Step = Literal["delete", "quarantine"]
STEPS: tuple[Step, ...] = ("delete", "quarantine")


@dataclass(frozen=True, slots=True)
class Stops:
    """Why a step must not be taken unless an operator approves it; None where it may."""

    delete: str | None = None
    quarantine: str | None = None

    def __str__(self) -> str:
        return "; ".join(one for one in (self.delete, self.quarantine) if one)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep would take to the gate, under one mark. `stops` says which step waits for an
    operator's approval; `approved` is what still stands of the plans that one has approved."""

    project: str
    mark_id: int | None
    finish: tuple[Copy, ...]  # deletions under way
    delete: tuple[Copy, ...]  # in quarantine for longer than the grace
    quarantine: tuple[Copy, ...]
    take_back: tuple[Copy, ...]  # in quarantine, and no candidate any more
    stops: Stops = Stops()
    policy_digest: str = ""
    approved: tuple[Request, ...] = ()
    cools: str | None = None  # why nothing is taken yet after a promotion, whoever approves

    @property
    def stop(self) -> str | None:
        """Why something of it asks for approval, given or not; None if nothing does."""
        return str(self.stops) or None

    def asked_of(self, step: Step) -> tuple[Copy, ...]:
        """The copies of a step that asks for approval; none of one that does not."""
        found: tuple[Copy, ...] = getattr(self, step)
        return () if getattr(self.stops, step) is None else found

    @property
    def digest(self) -> str:
        """The SHA-256 of what an approval is about, in hex: policy, and copies by step. What may
        go without one is no part of it: a sweep that takes it meanwhile changes nothing."""
        return hashlib.sha256(
            canonical_json(
                {
                    "project": self.project,
                    "policy": self.policy_digest,
                    **{step: [copy.copy_id for copy in self.asked_of(step)] for step in STEPS},
                }
            )
        ).hexdigest()

    @property
    def may_delete(self) -> tuple[Copy, ...]:
        """Of `delete` what needs no approval, or has it; nothing while a promotion cools."""
        return () if self.cools else self._let("delete")

    @property
    def may_quarantine(self) -> tuple[Copy, ...]:
        """Of `quarantine` what needs no approval, or has it; nothing while a promotion cools."""
        return () if self.cools else self._let("quarantine")

    def _let(self, step: Step) -> tuple[Copy, ...]:
        """The copies of a step that need no approval, or have it."""
        found: tuple[Copy, ...] = getattr(self, step)
        if getattr(self.stops, step) is None:
            return found
        ids = {copy_id for request in self.approved for copy_id in getattr(request, f"to_{step}")}
        return tuple(copy for copy in found if copy.copy_id in ids)

    @property
    def waiting(self) -> int:
        """How many copies are not taken before an approval, or while a promotion cools."""
        taken = len(self.may_delete) + len(self.may_quarantine)
        return len(self.delete) + len(self.quarantine) - taken

    @property
    def asks(self) -> str | None:
        """Why something of it must be approved first; None if nothing must, or all of it is."""
        missing: dict[str, str | None] = {
            step: getattr(self.stops, step)
            for step in STEPS
            if len(self._let(step)) < len(getattr(self, step))
        }
        return str(Stops(**missing)) or None

    @property
    def waits(self) -> str | None:
        """Why not all of it is done now: a promotion cools, or an approval is missing."""
        return self.cools or self.asks

    def to_json(self) -> dict[str, Any]:
        return {
            "project": self.project,
            "mark": self.mark_id,
            "stop": self.stop,
            "waits": self.waits,
            "digest": self.digest if self.stop else None,
            **{
                step: [str(copy.checkpoint) for copy in getattr(self, step)]
                for step in ("finish", "delete", "quarantine", "take_back")
            },
        }

    def summary(self, most: int = 50) -> str:
        """What asks for approval in Markdown, with the first copies of each step, and what goes
        without."""
        lines = []
        for step in STEPS:
            found = self.asked_of(step)
            if not found and getattr(self, step):
                lines += ["", f"{step} without approval: {_counted(getattr(self, step))}"]
            if not found:
                continue
            lines += ["", f"**{step}: {_counted(found)}**", ""]
            lines += [
                f"- `{copy.checkpoint}` in `{copy.store}`, {rough_size(copy.stored_bytes)}"
                for copy in found[:most]
            ]
            lines += [f"- … and {len(found) - most} more"] if len(found) > most else []
        return "\n".join([*lines, "", f"digest `{self.digest}`"]).strip()

    def __str__(self) -> str:
        lines = [f"sweep of {self.project} under mark {self.mark_id}"]
        for step in ("finish", "delete", "quarantine", "take_back"):
            found: tuple[Copy, ...] = getattr(self, step)
            lines.append(f"{step.replace('_', ' ')}: {_counted(found)}")
            lines += [f"  {copy.checkpoint} in {copy.store}" for copy in found]
        lines += [f"digest {self.digest}"] if self.stop else []
        lines += [
            f"approved by {request.approved_by}: {request.because}" for request in self.approved
        ]
        lines += [f"waits: {self.cools}"] if self.cools else []
        return "\n".join(lines + ([f"waits for approval: {self.asks}"] if self.asks else []))


def plan(catalog: Catalog, project: str, mark_id: int | None = None) -> Plan:
    """What a sweep would do now. Under no mark at all it only finishes deletions. Raises
    NotFound, and MarkNotSweepable for a mark that is not the newest live one, not of the
    policy in force, or old."""
    with catalog.transaction() as tx:
        version = policy_versions.current(tx, project)
        policy = policy_of(tx, project)
        mark = marks.newest(tx, project) if mark_id is None else marks.get(tx, project, mark_id)
        if mark is not None:
            _require_sweepable(tx, mark, version, policy)
        hidden = copies.in_state(tx, project, State.QUARANTINED)
        taking: list[Copy] = []
        leaving: set[int] = set()
        if mark is not None:
            taking = copies.given_up(tx, project, mark.mark_id, State.PRESENT)
            leaving = copies.given_up_ids(tx, project, mark.mark_id, State.QUARANTINED)
        existing = copies.number(tx, project, State.PRESENT, State.QUARANTINED)
        deleting = copies.in_state(tx, project, State.DELETING)
        now = history.now(tx)
        approved = standing(tx, version)
        day = takings.of_day(tx, project)
        after = promotion.aftermath(tx, project, policy, now)
        waits = graces.of_project(tx, project)
    staying = [copy for copy in hidden if copy.copy_id in leaving]
    due = [copy for copy in staying if waits.ends(copy, copy.state_at) <= now]
    back = [copy for copy in hidden if copy.copy_id not in leaving]
    return Plan(
        project=project,
        mark_id=mark.mark_id if mark else None,
        finish=tuple(deleting),
        delete=tuple(due),
        quarantine=tuple(taking),
        take_back=tuple(back) if mark else (),
        stops=Stops(
            delete=_too_large("delete", due, after.rules),
            quarantine=_too_many(taking, existing, day, after.rules)
            or _too_large("quarantine", taking, after.rules),
        ),
        policy_digest=version.digest,
        approved=tuple(one for one in approved if one.to_quarantine or one.to_delete),
        cools=after.cools,
    )


def standing(
    tx: Transaction, version: PolicyVersion, request_id: int | None = None
) -> list[Request]:
    """What still stands of the plans that were approved under a policy, or of the one that is
    named, approved or not: copies that every live mark since gives up too and nobody took back, for
    as long as the mark shown could itself be swept."""
    max_age = policies.parsed(version).gate.mark_max_age
    since = max(
        history.project_now(tx, version.project) - max_age,
        policy_versions.in_force_since(tx, version),
    )
    return approvals.standing(tx, version.project, version.digest, since, request_id)


def unfinished(catalog: Catalog, project: str) -> Plan:
    """The deletions under way alone: they are finished whatever the marks say."""
    with catalog.transaction() as tx:
        deleting = tuple(copies.in_state(tx, project, State.DELETING))
    return Plan(project, None, deleting, (), (), ())


def _require_sweepable(tx: Transaction, mark: Mark, version: PolicyVersion, policy: Policy) -> None:
    newest = marks.newest(tx, mark.project)
    age = history.project_now(tx, mark.project) - mark.at
    reason = None
    if mark.kind != "live":
        reason = f"it is a {mark.kind} one, and only a live mark may delete"
    elif newest is None or newest.mark_id != mark.mark_id:
        reason = "a newer live mark was made since"
    elif mark.policy_digest != version.digest:
        reason = (
            f"it was made under policy {mark.policy} version {mark.policy_version}, which is no"
        )
        reason += f" more in force; mark again under {version.policy} version {version.version}"
    elif mark.at < (since := policy_versions.in_force_since(tx, version)):
        reason = f"its policy took force again at {instant_text(since)}, after it; mark again"
    elif age > policy.gate.mark_max_age:
        reason = (
            f"it is as of {instant_text(mark.at)}, longer ago than gate.mark_max_age; mark again"
        )
    if reason is not None:
        raise errors.MarkNotSweepable(mark=mark.mark_id, reason=reason)


def _too_many(
    taking: Sequence[Copy], existing: int, day: Day, rules: QuarantinePolicy
) -> str | None:
    """Why quarantine asks for approval: it takes too large a share of the project's copies, alone
    or with what was taken in the last day."""
    if rules.stops_at(len(taking), existing):
        return (
            f"it would take {len(taking)} of {existing} copies, more than quarantine.share_guard"
            " allows; look at the mark, then approve"
        )
    old = sum(copy.recorded_at <= day.since for copy in taking)
    if old and rules.stops_at(day.taken + old, day.existed):
        return (
            f"with the {day.taken} taken in the last day it would take {day.taken + old} of"
            f" {day.existed} copies older than a day, more than quarantine.share_guard allows; look"
            " at the marks, then approve"
        )
    return None


def _too_large(step: Step, found: Sequence[Copy], rules: QuarantinePolicy) -> str | None:
    """Why a step asks for approval: it takes too many bytes."""
    size = sum(copy.stored_bytes for copy in found)
    if rules.approve_above is None or size <= rules.approve_above:
        return None
    return f"it would {step} {_counted(found)}, more than quarantine.approve_above; approve"


def _counted(found: Sequence[Copy]) -> str:
    size = rough_size(sum(copy.stored_bytes for copy in found))
    return f"{counted(len(found), 'copy', 'copies')}, {size}"
