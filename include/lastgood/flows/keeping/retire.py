"""Retire: the end of life of a project, a workload or a stage.

One operator asks, another approves where the policy wants it, and until its grace is over the
decision can be undone. Then the policy keeps nothing of it any more: the next marks name its
copies, and they go the way of all others, through the gate, quarantine and its grace. What is held,
read, needed elsewhere or being written stays.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.keeping import retirements
from lastgood.catalog.keeping.retirements import Retirement
from lastgood.catalog.settings import projects
from lastgood.flows import control_keys, quarantine
from lastgood.flows.policies import policy_of
from lastgood.rules.quantities import duration_text, instant_text
from lastgood.rules.scope import Scope
from lastgood.stores.open import Stores


def ask(
    catalog: Catalog,
    stores: Stores,
    scope: Scope,
    *,
    reason: str,
    actor: str,
    grace: timedelta | None = None,
) -> Retirement:
    """Record that a scope has reached its end of life. `grace` may be longer than the policy's.

    Nothing changes before the approval, where the policy wants one. Raises NotFound for a scope
    without a stage, InvalidInput for a shorter grace, Conflict if one for this scope stands.
    """
    control_keys.guard(catalog, stores, scope.project)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, scope.project)
        projects.get(tx, scope.project)
        rules = policy_of(tx, scope.project).retire
        stage_ids = _locked_stages(tx, scope)
        if not stage_ids and scope.workload is not None:
            raise errors.NotFound(what="stage or workload", name=str(scope))
        if grace is not None and grace < rules.grace:
            raise errors.InvalidInput(
                where="grace",
                reason=f"{duration_text(grace)} is shorter than the policy's retire.grace,"
                f" {duration_text(rules.grace)}; it can only be lengthened",
            )
        _require_none(tx, scope)
        recorded = retirements.record(
            tx,
            scope,
            stage_ids,
            reason=reason,
            grace=grace or rules.grace,
            approve=rules.approve,
            asked_by=actor,
        )
    quarantine.publish(catalog, stores, scope.project, stage_ids)
    return recorded


def approve(
    catalog: Catalog, stores: Stores, project: str, retirement_id: UUID, *, actor: str
) -> Retirement:
    """Approve a retirement: its grace begins. Raises NotFound, Forbidden for who asked for it, and
    Conflict if it needs no approval, has one, or was undone."""
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, project)
        found = retirements.get(tx, project, retirement_id)
        _require_standing(found)
        if found.decided_at is not None:
            said = f"approved by {found.approved_by}" if found.approved_by else "in need of no word"
            raise errors.Conflict(reason=f"retirement {retirement_id} is already {said}")
        if found.asked_by == actor:
            raise errors.Forbidden(
                user=actor, action="approve a retirement that they asked for; a second operator may"
            )
        stage_ids = _locked_stages(tx, found.scope)
        retirements.approve(tx, found, stage_ids, by=actor)
        approved = retirements.get(tx, project, retirement_id)
    quarantine.publish(catalog, stores, project, stage_ids)
    return approved


def undo(
    catalog: Catalog,
    stores: Stores,
    project: str,
    retirement_id: UUID,
    *,
    because: str,
    actor: str,
) -> Retirement:
    """Take a retirement back, until its grace is over. Raises NotFound, and Conflict afterwards."""
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, project)
        found = retirements.get(tx, project, retirement_id)
        _require_standing(found)
        if found.effective_at is not None and found.effective_at <= history.now(tx):
            raise errors.Conflict(
                reason=f"the grace of retirement {retirement_id} ended at"
                f" {instant_text(found.effective_at)}; `lastgood hold` keeps what is still there"
            )
        stage_ids = _locked_stages(tx, found.scope)
        retirements.undo(tx, found, stage_ids, by=actor, because=because)
        undone = retirements.get(tx, project, retirement_id)
    quarantine.publish(catalog, stores, project, stage_ids)
    return undone


def _locked_stages(tx: Transaction, scope: Scope) -> list[int]:
    """Nobody can open one meanwhile: the caller holds the project's lock exclusively."""
    stage_ids = retirements.stages_in(tx, scope)
    locks.stages(tx, stage_ids)
    return stage_ids


def _require_standing(found: Retirement) -> None:
    if found.undone_at is not None:
        raise errors.Conflict(
            reason=f"retirement {found.retirement_id} was undone by {found.undone_by}"
        )


def _require_none(tx: Transaction, scope: Scope) -> None:
    for known in retirements.of_project(tx, scope.project):
        if known.scope == scope:
            raise errors.Conflict(reason=f"{scope} has one already: {known}")
