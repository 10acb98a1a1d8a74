"""The end of life of stages, workloads and projects: asked for, approved, undone."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from lastgood.catalog import history
from lastgood.catalog.keeping import retirements
from lastgood.catalog.keeping.retirements import Retirement
from lastgood.catalog.settings import projects
from lastgood.coordinator.operators.context import Because, Changer, ProjectFilter, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.flows.as_json import as_json
from lastgood.flows.keeping import retire
from lastgood.rules.scope import Scope

router = APIRouter(tags=["retirements"])


class RetireBody(BaseModel):
    """What has reached its end of life (a project, project/workload or stage), and why."""

    model_config = ConfigDict(extra="forbid")

    scope: Annotated[str, Field(max_length=200)]
    reason: Because
    grace_seconds: Annotated[int | None, Field(gt=0, le=10 * 366 * 86_400)] = None


class UndoBody(BaseModel):
    """Why a retirement is taken back."""

    model_config = ConfigDict(extra="forbid")

    because: Because


@router.get("/retirements")
def list_retirements(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """Every retirement, the undone ones too, the oldest first."""
    with services_of(request).catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in retirements.of_project(tx, name, undone=True)]
        now = history.now(tx)
    return answer({"retirements": [{**_document(one), "state": one.state(now)} for one in found]})


@router.post("/retirements")
def ask(request: Request, operator: Changer, body: RetireBody) -> JSONResponse:
    """Ask for a retirement: 422 for a grace shorter than the policy's, 409 if one stands."""
    services = services_of(request)
    recorded = retire.ask(
        services.catalog,
        services.stores,
        Scope.parse(body.scope),
        reason=body.reason,
        actor=operator.actor,
        grace=None if body.grace_seconds is None else timedelta(seconds=body.grace_seconds),
    )
    return answer(_document(recorded), status_code=201)


@router.post("/retirements/{project}/{retirement}/approve")
def approve(request: Request, operator: Changer, project: str, retirement: UUID) -> JSONResponse:
    """Approve what another operator asked for: 403 for who asked."""
    services = services_of(request)
    approved = retire.approve(
        services.catalog, services.stores, project, retirement, actor=operator.actor
    )
    return answer(_document(approved))


@router.post("/retirements/{project}/{retirement}/undo")
def undo(
    request: Request, operator: Changer, project: str, retirement: UUID, body: UndoBody
) -> JSONResponse:
    """Take a retirement back: 409 once its grace is over."""
    services = services_of(request)
    undone = retire.undo(
        services.catalog,
        services.stores,
        project,
        retirement,
        because=body.because,
        actor=operator.actor,
    )
    return answer(_document(undone))


def _document(found: Retirement) -> dict[str, Any]:
    return {**as_json(found), "scope": str(found.scope), "effective_at": found.effective_at}
