"""Approve a large purge: the plan is written down as it is shown, and an operator's word beside it.

The sweep never waits for that word. It does what it may without, and what was approved whenever it
next runs; each copy is judged by the gate all the same.
"""

from __future__ import annotations

from lastgood import errors
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import policy_versions
from lastgood.catalog.sweeping import approvals
from lastgood.catalog.sweeping.approvals import NewRequest, Request
from lastgood.flows.sweeping.plan import Plan, plan, standing


def ask(catalog: Catalog, planned: Plan) -> Request:
    """Write down what waits of a plan, to be approved as it is. Raises Conflict if nothing does."""
    if planned.stop is None or planned.mark_id is None:
        raise errors.Conflict(reason=f"the sweep of {planned.project} needs no approval now")
    new = NewRequest(
        project=planned.project,
        mark_id=planned.mark_id,
        policy_digest=planned.policy_digest,
        plan_digest=planned.digest,
        stop=planned.stop,
        to_quarantine=[copy.copy_id for copy in planned.asked_of("quarantine")],
        to_delete=[copy.copy_id for copy in planned.asked_of("delete")],
    )
    with catalog.transaction() as tx:
        return approvals.record(tx, new)


def approve(
    catalog: Catalog, project: str, request_id: int, *, actor: str, because: str
) -> Request:
    """Approve a plan that was asked for: what of it still stands. Raises NotFound, and Conflict if
    nothing does: the policy changed since, its mark is too old to be swept, or newer live marks
    keep, or operators took back, all of it."""
    with catalog.transaction() as tx:
        request = approvals.get(tx, project, request_id)
        _require_standing(tx, request)
        approvals.approve(tx, request, by=actor, because=because)
        return approvals.get(tx, project, request_id)


def _require_standing(tx: Transaction, request: Request) -> None:
    version = policy_versions.current(tx, request.project)
    found = standing(tx, version, request.request_id)
    if version.digest != request.policy_digest:
        reason = f"policy {version.policy} version {version.version} is in force since"
    elif not found:
        reason = "that mark is older than gate.mark_max_age, or than the policy's last taking force"
    elif not found[0].to_quarantine and not found[0].to_delete:
        reason = "newer marks keep every copy of it, or it was taken back"
    else:
        return
    raise errors.Conflict(
        reason=f"the plan that was shown under mark {request.mark_id} stands no more: {reason};"
        " look at the new plan, then approve that"
    )


def approve_now(
    catalog: Catalog, project: str, *, actor: str, because: str, digest: str | None = None
) -> Request:
    """Approve what a sweep would do now; with `digest`, only if it is the plan with this one.
    Raises MarkNotSweepable, and Conflict if the plan is another or needs no approval."""
    planned = plan(catalog, project)
    if digest is not None and planned.digest != digest:
        raise errors.Conflict(
            reason=f"the plan has changed: its digest is {planned.digest}; look at it again"
        )
    request = ask(catalog, planned)
    return approve(catalog, project, request.request_id, actor=actor, because=because)
