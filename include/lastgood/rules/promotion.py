"""What a promotion of a policy has to wait for, and who has to agree to it.

The terms are the stricter ones of the policy in force and of the candidate: a candidate that asks
for less must not be promoted on its own terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lastgood.rules.policy import Policy
from lastgood.rules.policy_sections import QuarantinePolicy

GUARDED_AFTER_SWEEP = timedelta(days=1)
"""How long the former policy's guards hold beside the new one's, from the first copy on that a
sweep took under it: the window in which many small sweeps count as one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`approve`: another operator has to agree. `cooling`: how long sweeps wait after it took
    effect. `fresh`: how old the difference may be that it was shown by."""

    approve: bool
    cooling: timedelta
    fresh: timedelta


def terms(current: Policy, candidate: Policy) -> Terms:
    """The terms of a promotion."""
    ours, theirs = current.promotion, candidate.promotion
    return Terms(
        approve=ours.approve or theirs.approve,
        cooling=max(ours.cooling, theirs.cooling),
        fresh=min(ours.difference_max_age, theirs.difference_max_age),
    )


def cools_until(effective_from: datetime, cooling: timedelta) -> datetime:
    """Until when no sweep takes anything under a promoted policy."""
    return effective_from + cooling


def guards(rules: QuarantinePolicy, former: QuarantinePolicy) -> QuarantinePolicy:
    """When a sweep stops and asks while both policies' guards hold."""
    bounds = [one for one in (rules.approve_above, former.approve_above) if one is not None]
    return replace(
        rules,
        share_guard=min(rules.share_guard, former.share_guard),
        share_guard_min=min(rules.share_guard_min, former.share_guard_min),
        approve_above=min(bounds, default=None),
    )
