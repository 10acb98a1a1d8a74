"""What a clean-up would do now: whose uploads may be given up, and what the others wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import uploads
from lastgood.catalog.jobs.uploads import Incomplete
from lastgood.catalog.rebuilding import rebuilds
from lastgood.flows.policies import policy_of
from lastgood.rules.policy import Policy
from lastgood.rules.upload_threshold import Measured, Threshold, threshold


@dataclass(frozen=True, slots=True)
class Plan:
    """What a clean-up would do now: attempts to abort, to go on with, and failed ones whose
    evidence was kept long enough. `waiting` says what the other incomplete ones still wait for,
    and those that can only be fenced before their last grant has ended."""

    project: str
    abort: tuple[Incomplete, ...]
    resume: tuple[Incomplete, ...]
    evidence: tuple[Incomplete, ...]
    waiting: Mapping[UUID, str]


def plan(catalog: Catalog, project: str) -> Plan:
    """What a clean-up would do now. Raises NotFound."""
    with catalog.transaction() as tx:
        policy = policy_of(tx, project)
        measured = uploads.measured(tx, project)
        now = history.now(tx)
        opened = uploads.in_state(tx, project, "open")
        aborting = uploads.in_state(tx, project, "aborting")
        failed = uploads.in_state(tx, project, "failed")
        held = rebuilds.holds_standing(tx, project)
    waits = {each.attempt_id: waits_for(each, policy, measured, now) for each in opened}
    abort = tuple(each for each in opened if waits[each.attempt_id] is None)
    waits |= {each.attempt_id: grant_left(each, now) for each in (*abort, *aborting)}
    return Plan(
        project=project,
        abort=abort,
        resume=tuple(aborting),
        evidence=()
        if held
        else tuple(each for each in failed if evidence_is_old(each, policy, now)),
        waiting={attempt: why for attempt, why in waits.items() if why is not None},
    )


def threshold_of(each: Incomplete, policy: Policy, measured: Mapping[str, Measured]) -> Threshold:
    """The age from which an attempt may be given up, by the rules of its stage and the measured
    uploads of its class."""
    rules = policy.for_stage(each.workload, each.stage).uploads
    return threshold(rules, each.workload_class, measured.get(each.workload_class))


def waits_for(
    each: Incomplete, policy: Policy, measured: Mapping[str, Measured], now: datetime
) -> str | None:
    """Why an open attempt must not be fenced yet; None if nothing speaks for it any more."""
    if each.lease_expires_at > now:
        return f"its writer lease lasts until {each.lease_expires_at.isoformat()}"
    needed = threshold_of(each, policy, measured)
    if now - each.recorded_at < needed.age:
        return f"it is younger than {needed.age} ({needed.because})"
    return None


def grant_left(each: Incomplete, now: datetime) -> str | None:
    """What a fenced attempt's uploads wait for: whoever has a grant may still send."""
    if each.grant_expires_at < now:
        return None
    return f"its last upload grant lasts until {each.grant_expires_at.isoformat()}"


def evidence_is_old(each: Incomplete, policy: Policy, now: datetime) -> bool:
    """Whether a failed attempt was kept long enough to be looked at, and nobody may write to it."""
    rules = policy.for_stage(each.workload, each.stage)
    return now - each.state_at >= rules.forensic_retention and each.quiet_since() <= now
