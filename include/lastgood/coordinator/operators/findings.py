"""Findings: what is unexplained, who looks after it, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints

from lastgood.catalog import history
from lastgood.catalog.reconciliation import findings, inventories
from lastgood.coordinator.operators.context import (
    Because,
    Changer,
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import LazyServices, services_of
from lastgood.errors import Conflict
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.reconciliation.report import finding_json

router = APIRouter(tags=["findings"])

OBJECTS_LIMIT = 200_000
"""Of a store that is listed while somebody waits, beside everybody else's requests."""


class ExplainBody(BaseModel):
    """What accounts for the bytes of a finding."""

    model_config = ConfigDict(extra="forbid")

    reason: Because


class AssignBody(BaseModel):
    """Who looks after a finding, and until when."""

    model_config = ConfigDict(extra="forbid")

    owner: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    deadline: AwareDatetime


@router.get("/findings")
def list_findings(
    request: Request,
    _: Reader,
    project: ProjectFilter = None,
    closed: bool = False,
    limit: Limit = 200,
    skip: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> JSONResponse:
    """Findings by deadline; those of keys that belong to no project are shown with every
    project. `more` says that others follow: ask again with `skip`."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        wanted = None if project is None else [project, SHARED]
        found = findings.current(tx, projects=wanted, closed=closed, limit=limit + 1, skip=skip)
    shown = [finding_json(one, now) for one in found[:limit]]
    return answer({"findings": shown, "more": len(found) > limit})


@router.get("/findings/{finding}")
def show_finding(request: Request, _: Reader, finding: UUID) -> JSONResponse:
    """One finding with all that happened to it."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = findings.get(tx, finding)
        happened = findings.events(tx, finding)
    return answer({**_document(found, now), "events": happened})


@router.post("/findings/{finding}/close")
def close_finding(request: Request, operator: Changer, finding: UUID) -> JSONResponse:
    """List the store and close the finding, if that shows nothing of it any more. 409 while its
    bytes are there, which are named, and for a store that is too large to list here."""
    found = close_now(services_of(request), finding, operator.actor)
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
    return answer(_document(found, now))


def close_now(services: LazyServices, finding: UUID, actor: str) -> findings.Finding:
    """Close a finding while somebody waits. Raises as `finding_close.close`, and Conflict for a
    store that had too many objects when it was last listed."""
    from lastgood.flows.reconciliation import finding_close

    with services.catalog.transaction() as tx:
        found = findings.get(tx, finding)
        newest = [one for one in inventories.of_store(tx, found.store) if one.state == "completed"]
    if not newest or int(newest[0].facts.get("objects", 0)) > OBJECTS_LIMIT:
        raise Conflict(
            reason=f"store {found.store} may be too large to list while others wait: run"
            f" `lastgood findings close {finding}`"
        )
    return finding_close.close(services.catalog, services.stores, finding, actor=actor)


@router.post("/findings/{finding}/explain")
def explain_finding(
    request: Request, operator: Changer, finding: UUID, body: ExplainBody
) -> JSONResponse:
    """Account for a finding: it is not overdue any more, and opens again if its bytes become
    more."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = findings.explain(tx, finding, reason=body.reason, actor=operator.actor, at=now)
    return answer(_document(found, now))


@router.post("/findings/{finding}/assign")
def assign_finding(
    request: Request, operator: Changer, finding: UUID, body: AssignBody
) -> JSONResponse:
    """Give a finding another owner and deadline."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = findings.assign(
            tx,
            finding,
            owner=body.owner,
            deadline=body.deadline,
            actor=operator.actor,
            at=now,
        )
    return answer(_document(found, now))


def _document(found: findings.Finding, now: Any) -> dict[str, Any]:
    return {"finding": finding_json(found, now)}
