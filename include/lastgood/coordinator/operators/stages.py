"""Stages, marks and policies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.validation import recovery
from lastgood.catalog.views import operator_records, operator_views
from lastgood.coordinator.operators.context import (
    Because,
    Changer,
    Limit,
    ProjectFilter,
    Reader,
    StagePath,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound
from lastgood.flows.as_json import as_json
from lastgood.flows.validation.unblock import unblock
from lastgood.rules.names import CheckpointId

router = APIRouter(tags=["stages"])


class UnblockBody(BaseModel):
    """The checkpoint to establish, as `generation.sequence`, and why."""

    model_config = ConfigDict(extra="forbid")

    position: Annotated[str, Field(max_length=40)]
    because: Because


@router.get("/stages")
def list_stages(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """Stages with their writer, latest checkpoint and block."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_views.stages(tx, project)
    return answer({"stages": found})


@router.get("/recovery")
def show_recovery(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """How long restores took and how far apart commits are, by class of workloads."""
    with services_of(request).catalog.transaction() as tx:
        found = recovery.measured(tx, project)
    return answer({"recovery": found})


@router.post("/stages/{project}/{workload}/{stage}/unblock")
def unblock_stage(
    request: Request, operator: Changer, name: StagePath, body: UnblockBody
) -> JSONResponse:
    """Establish a checkpoint with a passing receipt, and answer restores again."""
    services = services_of(request)
    established = unblock(
        services.catalog,
        services.stores,
        CheckpointId.parse(f"{name}/{body.position}"),
        because=body.because,
        actor=operator.actor,
    )
    return answer({"established": established.id})


@router.get("/marks")
def list_marks(
    request: Request, _: Reader, project: ProjectFilter = None, limit: Limit = 50
) -> JSONResponse:
    """Marks, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_records.marks(tx, project, limit=limit)
    return answer({"marks": found})


@router.get("/marks/{mark}")
def show_mark(request: Request, _: Reader, mark: int, limit: Limit = 1000) -> JSONResponse:
    """One mark with its candidates, and what changed since the one before it."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_records.mark(tx, mark)
        if found is None:
            raise NotFound(what="mark", name=str(mark))
        candidates = operator_records.mark_candidates(tx, mark, limit=limit)
        changes = operator_records.mark_changes(tx, mark, limit=limit)
    return answer({**as_json(found), "listed": candidates, "changes": changes})


@router.get("/policies")
def list_policies(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """Every version of each project's policies, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in policy_versions.of_project(tx, name)]
    return answer({"policies": found})
