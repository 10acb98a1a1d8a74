"""Where projects stand in their stores, now, at an instant, and every change."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lastgood.coordinator.operators.context import Limit, ProjectFilter, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.flows import room

router = APIRouter(tags=["capacity"])


@router.get("/capacity")
def show_capacity(
    request: Request, _: Reader, project: ProjectFilter = None, at: datetime | None = None
) -> JSONResponse:
    """State, numbers and the newest proof of reach, now or as recorded at an instant."""
    catalog = services_of(request).catalog
    found = room.now(catalog, project) if at is None else room.as_of(catalog, at, project)
    return answer({"capacity": [one.to_json() for one in found]})


@router.get("/capacity/changes")
def list_changes(
    request: Request, _: Reader, project: ProjectFilter = None, limit: Limit = 200
) -> JSONResponse:
    """The recorded changes of state with their causes, the newest first."""
    found = room.changes(services_of(request).catalog, project, limit=limit)
    return answer({"changes": found})
