"""What operators change from a page: small forms, each answered by the page that shows the
result."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse

from lastgood.catalog import history
from lastgood.catalog.reconciliation import findings
from lastgood.coordinator.operators.context import Changer
from lastgood.coordinator.operators.findings import close_now
from lastgood.coordinator.operators.holds import new_hold
from lastgood.coordinator.pages.rendering import PageRoute, Text, back
from lastgood.coordinator.services import services_of
from lastgood.errors import InvalidInput
from lastgood.flows import quarantine
from lastgood.flows.keeping import hold as hold_flow
from lastgood.flows.keeping import release as release_flow
from lastgood.flows.keeping import retire
from lastgood.rules.names import CheckpointId

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Kind = Literal["incident", "legal", "research", "milestone"]


@router.post("/holds")
def place_hold(
    request: Request,
    operator: Changer,
    checkpoint: Text,
    kind: Annotated[Kind, Form()],
    reason: Text,
    owner: Annotated[str, Form(max_length=200)] = "",
    expires_on: Annotated[str, Form(max_length=10)] = "",
) -> RedirectResponse:
    """Hold one checkpoint, until a day if one is given."""
    services = services_of(request)
    name = CheckpointId.parse(checkpoint.strip())
    until = _end_of(expires_on) if expires_on else None
    hold = new_hold(kind, owner.strip() or operator.user, reason, operator.actor, until)
    hold_flow.place(services.catalog, services.stores, name.project, hold, name)
    return back(request, f"why/{name}", "held")


@router.post("/holds/release")
def release_hold(
    request: Request,
    operator: Changer,
    project: Text,
    hold: Annotated[UUID, Form()],
    because: Text,
) -> RedirectResponse:
    """End a hold for good."""
    services = services_of(request)
    release_flow.release(
        services.catalog,
        services.stores,
        project,
        hold,
        because=because,
        actor=operator.actor,
    )
    return back(request, "holds", "released")


@router.post("/quarantine/undo")
def undo_quarantine(
    request: Request, operator: Changer, checkpoint: Text, because: Text
) -> RedirectResponse:
    """Take a checkpoint back."""
    services = services_of(request)
    name = CheckpointId.parse(checkpoint.strip())
    quarantine.undo(services.catalog, services.stores, name, because=because, actor=operator.actor)
    return back(request, "quarantine", "taken-back")


@router.post("/retirements/approve")
def approve_retirement(
    request: Request, operator: Changer, project: Text, retirement: Annotated[UUID, Form()]
) -> RedirectResponse:
    """Approve what another operator asked for."""
    services = services_of(request)
    retire.approve(services.catalog, services.stores, project, retirement, actor=operator.actor)
    return back(request, "checkpoints", "retirement-approved")


@router.post("/retirements/undo")
def undo_retirement(
    request: Request,
    operator: Changer,
    project: Text,
    retirement: Annotated[UUID, Form()],
    because: Text,
) -> RedirectResponse:
    """Take a retirement back."""
    services = services_of(request)
    retire.undo(
        services.catalog,
        services.stores,
        project,
        retirement,
        because=because,
        actor=operator.actor,
    )
    return back(request, "checkpoints", "retirement-undone")


@router.post("/findings/explain")
def explain_finding(
    request: Request, operator: Changer, finding: Annotated[UUID, Form()], reason: Text
) -> RedirectResponse:
    """Account for a finding."""
    with services_of(request).catalog.transaction() as tx:
        at = history.now(tx)
        findings.explain(tx, finding, reason=reason, actor=operator.actor, at=at)
    return back(request, "findings", "explained")


@router.post("/findings/assign")
def assign_finding(
    request: Request,
    operator: Changer,
    finding: Annotated[UUID, Form()],
    owner: Text,
    deadline: Annotated[str, Form(max_length=10)],
) -> RedirectResponse:
    """Give a finding another owner, until the end of a day."""
    until = _end_of(deadline)
    with services_of(request).catalog.transaction() as tx:
        at = history.now(tx)
        findings.assign(tx, finding, owner=owner, deadline=until, actor=operator.actor, at=at)
    return back(request, "findings", "assigned")


@router.post("/findings/close")
def close_finding(
    request: Request, operator: Changer, finding: Annotated[UUID, Form()]
) -> RedirectResponse:
    """Close a finding, if a listing of now does not show it any more."""
    close_now(services_of(request), finding, operator.actor)
    return back(request, f"findings/{finding}/history", "closed")


def _end_of(day: str) -> datetime:
    """The last second of a day (`2026-03-01`) in UTC."""
    try:
        date = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise InvalidInput(
            where="date", reason=f"{day!r} is not a date such as 2026-03-01"
        ) from None
    return datetime.combine(date, time(23, 59, 59), tzinfo=UTC)
