"""Promote a policy: put a recorded version in force, by a fresh difference, a reason and, where the
policies ask for it, another operator's word. A rollback is the same to a version that was in force.

It takes effect at an instant, never earlier than its recording. The first live mark under it says
so; the sweeps after it wait for its cooling period, and until one has taken something for a day
the guards of the former policy hold beside its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.retention import promotions
from lastgood.catalog.retention.promotions import Kind, Promotion, Shown
from lastgood.catalog.settings import policies, policy_versions, projects
from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.flows import sane_clock
from lastgood.flows.retention.mark import made_by
from lastgood.rules.policy import Policy
from lastgood.rules.policy_names import PolicyName
from lastgood.rules.policy_sections import QuarantinePolicy
from lastgood.rules.promotion import GUARDED_AFTER_SWEEP, cools_until, guards, terms
from lastgood.rules.quantities import duration_text, instant_text


def record(catalog: Catalog, project: str, policy: Policy, *, actor: str) -> PolicyVersion:
    """Record a policy as a version that is not in force; the newest one again, if it is the same.
    Raises NotFound, and InvalidInput for a spill store that is not there."""
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, projects.get(tx, project).name)
        spill = policy.capacity.spill_store
        if spill is not None and projects.find_store(tx, spill) is None:
            raise errors.InvalidInput(
                where="capacity.spill_store", reason=f"there is no store {spill}"
            )
        version, _ = policy_versions.record(
            tx, project, policy.name, policy.digest, policy.to_json(), recorded_by=actor
        )
        return version


def promote(
    catalog: Catalog,
    project: str,
    name: str,
    *,
    because: str,
    actor: str,
    at: datetime | None = None,
    kind: Kind = "promote",
) -> Promotion:
    """Ask for a promotion, or for a rollback. Raises NotFound, ClockJump, InvalidInput for an
    instant that has passed, and Conflict: it is in force already, no fresh difference shows what it
    does, or a rollback goes to what was never in force. A rollback to what is in force undoes a
    promotion that is to come, at once and without a difference."""
    sane_clock.require(catalog)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, projects.get(tx, project).name)
        version = policy_versions.get(tx, project, PolicyName.parse(name, "the policy"))
        current = policy_versions.current(tx, project)
        now = history.project_now(tx, project)
        if version.name == current.name:
            return _undo_coming(tx, kind, current, now, at, because=because, actor=actor)
        if at is not None and at <= now:
            raise errors.InvalidInput(
                where="--at", reason=f"{instant_text(at)} has passed; it is {instant_text(now)}"
            )
        if kind == "rollback":
            _require_former(tx, version, now)
        asked = terms(policies.parsed(current), policies.parsed(version))
        shown = _fresh_difference(tx, current, version, now, at, asked.fresh)
        return promotions.ask(
            tx,
            kind,
            version,
            current,
            difference_id=shown.difference_id,
            effective_from=at.astimezone(UTC) if at else None,
            cooling=asked.cooling,
            approve=asked.approve,
            because=because,
            asked_by=actor,
        )


def approve(
    catalog: Catalog, project: str, promotion_id: int, *, because: str, actor: str
) -> Promotion:
    """Approve what another operator asked for; it takes effect now, or later if that was asked for.
    Raises NotFound, ClockJump, Forbidden for who asked, and Conflict if it needs no approval, has
    it, another policy is in force than the one that it was shown against, another promotion was
    decided since, or no difference is fresh any more."""
    sane_clock.require(catalog)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, projects.get(tx, project).name)
        asked = promotions.get(tx, project, promotion_id)
        if not asked.approve or asked.approved_at is not None:
            raise errors.Conflict(reason=f"promotion {promotion_id} waits for nobody")
        if asked.asked_by == actor:
            action = "approve a promotion that they asked for themselves"
            raise errors.Forbidden(user=actor, action=action)
        current = policy_versions.current(tx, project)
        if current.name != asked.replaces:
            raise errors.Conflict(
                reason=f"promotion {promotion_id} was shown against {asked.replaces}, and"
                f" {current.name} is in force now; compare and ask anew"
            )
        _require_last(tx, asked)
        version = policy_versions.get(tx, project, PolicyName.parse(asked.name, "the policy"))
        fresh = terms(policies.parsed(current), policies.parsed(version)).fresh
        now = history.project_now(tx, project)
        _fresh_difference(tx, current, version, now, asked.effective_from, fresh)
        return promotions.approve(tx, asked, by=actor, because=because)


def to_json(promotion: Promotion) -> dict[str, Any]:
    """A promotion as commands and routes tell it."""
    effect = promotion.takes_effect
    return {
        "promotion": promotion.promotion_id,
        "project": promotion.project,
        "kind": promotion.kind,
        "policy": promotion.name,
        "replaces": promotion.replaces,
        "difference": promotion.difference_id,
        "because": promotion.because,
        "asked_by": promotion.asked_by,
        "recorded_at": promotion.recorded_at,
        "waits_for_approval": promotion.approve and promotion.approved_at is None,
        "approved_by": promotion.approved_by,
        "takes_effect": effect,
        "sweeps_wait_until": cools_until(effect, promotion.cooling) if effect else None,
        "first_mark": promotion.first_mark,
    }


def listed(tx: Transaction, project: str) -> list[dict[str, Any]]:
    """Every promotion of a project, the newest first; `overtaken` ones never take effect, since
    another policy was decided later and took effect, or will, no later."""
    taken = policy_versions.times_in_force(tx, project)
    return [
        {**to_json(one), "overtaken": _overtaken(one, taken)}
        for one in promotions.of_project(tx, project)
    ]


def _overtaken(promotion: Promotion, taken: Sequence[PolicyVersion]) -> bool:
    decided, effect = promotion.decided_at, promotion.takes_effect
    if decided is None or effect is None:  # nobody may approve it any more
        return any(one.recorded_at > promotion.recorded_at for one in taken)
    return any(
        one.recorded_at > decided
        and one.effective_from is not None
        and one.effective_from <= effect
        for one in taken
    )


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What a promotion means for a sweep: `cools` says why it takes nothing yet, `rules` are the
    guards that hold."""

    cools: str | None
    rules: QuarantinePolicy


def aftermath(tx: Transaction, project: str, policy: Policy, now: datetime) -> Aftermath:
    """What promotions mean for a sweep now. Each that was in force counts, or a second one would
    lift what the first has to wait for, and its guards."""
    cools, end, rules = None, now, policy.quarantine
    for promotion in promotions.taken_effect(tx, project, now):
        effect = promotion.takes_effect
        assert effect is not None
        if (cooled := cools_until(effect, promotion.cooling)) > end:
            end = cooled
            cools = (
                f"{promotion.name} was promoted and took effect at {instant_text(effect)}; sweeps"
                f" wait until {instant_text(end)}"
            )
        swept = promotions.first_taken(tx, project, effect)
        if swept is None or now < swept + GUARDED_AFTER_SWEEP:
            replaced = PolicyName(promotion.replaces_policy, promotion.replaces_version)
            former = policies.parsed(policy_versions.get(tx, project, replaced))
            rules = guards(rules, former.quarantine)
    return Aftermath(cools, rules)


def _undo_coming(
    tx: Transaction,
    kind: Kind,
    current: PolicyVersion,
    now: datetime,
    at: datetime | None,
    *,
    because: str,
    actor: str,
) -> Promotion:
    """Record that what is in force stays so: of all decisions the last one counts."""
    coming = [
        one
        for one in promotions.of_project(tx, current.project)
        if one.takes_effect is not None
        and one.takes_effect > now
        and one.decided_at is not None
        and one.decided_at > current.recorded_at
    ]
    if not coming:
        raise errors.Conflict(reason=f"{current.name} is in force already")
    newest = coming[0]
    if kind != "rollback":
        raise errors.Conflict(
            reason=f"{current.name} is in force already; `lastgood policy rollback {current.name}"
            f" -p {current.project}` undoes promotion {newest.promotion_id} of {newest.name}, which"
            " is to come"
        )
    if at is not None:
        raise errors.InvalidInput(
            where="--at", reason="what is to come is undone at once; leave the instant out"
        )
    return promotions.ask(
        tx,
        kind,
        current,
        current,
        difference_id=newest.difference_id,
        effective_from=None,
        cooling=timedelta(),
        approve=False,
        because=because,
        asked_by=actor,
    )


def _require_last(tx: Transaction, asked: Promotion) -> None:
    for other in promotions.of_project(tx, asked.project):
        if other.decided_at is not None and other.decided_at > asked.recorded_at:
            raise errors.Conflict(
                reason=f"promotion {other.promotion_id} of {other.name} was decided since promotion"
                f" {asked.promotion_id} was asked for; compare and ask anew"
            )


def _require_former(tx: Transaction, version: PolicyVersion, now: datetime) -> None:
    former = [
        one.name
        for one in policy_versions.times_in_force(tx, version.project)
        if one.effective_from is not None and one.effective_from <= now
    ]
    if version.name not in former:
        raise errors.Conflict(
            reason=f"{version.name} was never in force, so nothing rolls back to it; promote it"
        )


def _fresh_difference(
    tx: Transaction,
    current: PolicyVersion,
    candidate: PolicyVersion,
    now: datetime,
    effect: datetime | None,
    fresh: timedelta,
) -> Shown:
    """The newest difference that shows what a promotion does, made by the code and the time-zone
    data that will decide. It has to be fresh now, and still when the promotion takes effect: nobody
    looks again at that instant. Where none fits, Conflict says why the newest does not."""
    way_out = (
        f"run `lastgood policy diff {current.name} {candidate.name} -p {current.project}` and look"
        " at it"
    )
    found = promotions.between(tx, current.project, current.digest, candidate.digest)
    if not found:
        raise errors.Conflict(
            reason=f"no difference between {current.name}, which is in force, and {candidate.name}"
            f" was recorded; {way_out}"
        )
    for one in found:
        if _unfit(one, now, effect, fresh, way_out) is None:
            return one
    raise errors.Conflict(reason=str(_unfit(found[0], now, effect, fresh, way_out)))


def _unfit(
    shown: Shown, now: datetime, effect: datetime | None, fresh: timedelta, way_out: str
) -> str | None:
    """Why a difference does not show what a promotion does; None if it does."""
    made, now_made = (shown.code_version, shown.time_zone_version), made_by()
    if made != now_made:
        return (
            f"difference {shown.difference_id} was made by code {made[0]} with time-zone"
            f" data {made[1]}, and this is {now_made[0]} with {now_made[1]}; where this one runs,"
            f" {way_out} again"
        )
    seen: Mapping[str, datetime] = {"was recorded": shown.recorded_at, "ends": shown.to_at}
    for verb, at in seen.items():
        if now - at > fresh:
            return (
                f"difference {shown.difference_id} {verb} at {instant_text(at)}, longer ago"
                f" than promotion.difference_max_age of {duration_text(fresh)}; {way_out}"
            )
        if effect is not None and effect - at > fresh:
            return (
                f"difference {shown.difference_id} {verb} at {instant_text(at)}, and the"
                f" promotion is to take effect at {instant_text(effect)}, later than that by more"
                f" than promotion.difference_max_age of {duration_text(fresh)}; {way_out} nearer to"
                " that instant"
            )
    return None
