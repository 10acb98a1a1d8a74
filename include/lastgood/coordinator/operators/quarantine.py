"""What lies in quarantine, taking it back, and what was deleted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.settings import projects
from lastgood.catalog.views import operator_records
from lastgood.coordinator.operators.context import (
    Because,
    Changer,
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import LazyServices, services_of
from lastgood.flows import quarantine
from lastgood.flows.quarantine import Quarantined
from lastgood.rules.names import CheckpointId

router = APIRouter(tags=["quarantine"])


class UndoBody(BaseModel):
    """Which checkpoint to take back, and why."""

    model_config = ConfigDict(extra="forbid")

    checkpoint: Annotated[str, Field(max_length=300)]
    because: Because


def in_quarantine(services: LazyServices, project: str | None) -> list[Quarantined]:
    """The quarantined copies of one project or of all."""
    with services.catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
    return [one for name in names for one in quarantine.listed(services.catalog, name)]


def copy_document(copy: Copy) -> dict[str, Any]:
    """A copy as the quarantine routes show it."""
    return {
        "copy_id": copy.copy_id,
        "checkpoint": str(copy.checkpoint),
        "project": copy.project,
        "store": copy.store,
        "state": copy.state,
        "state_at": copy.state_at,
        "bytes": copy.stored_bytes,
        "step": copy.step,
        "committed_at": copy.committed_at,
    }


@router.get("/quarantine")
def list_quarantine(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """Copies in quarantine, with the instant before which they are not deleted."""
    found = in_quarantine(services_of(request), project)
    return answer(
        {
            "quarantine": [
                {**copy_document(one.copy), "deletable_at": one.deletable_at} for one in found
            ]
        }
    )


@router.post("/quarantine/undo")
def undo(request: Request, operator: Changer, body: UndoBody) -> JSONResponse:
    """Take a checkpoint back out of quarantine: 410 once its deletion has begun."""
    services = services_of(request)
    taken = quarantine.undo(
        services.catalog,
        services.stores,
        CheckpointId.parse(body.checkpoint),
        because=body.because,
        actor=operator.actor,
    )
    return answer({"copies": [copy_document(copy) for copy in taken]})


@router.get("/tombstones")
def list_tombstones(
    request: Request, _: Reader, project: ProjectFilter = None, limit: Limit = 200
) -> JSONResponse:
    """Deletions, the newest first: mark, policy, the gate's facts, and when the bytes were proven
    gone."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_records.tombstones(tx, project, limit=limit)
    return answer({"tombstones": found})
