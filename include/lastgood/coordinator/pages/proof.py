"""The pages of drills: what each showed, as an auditor reads it."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lastgood.catalog import history
from lastgood.catalog.validation import drills
from lastgood.coordinator.operators.context import ProjectFilter, Reader
from lastgood.coordinator.pages.rendering import PageRoute, page
from lastgood.coordinator.services import services_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_PAGE = 100


@router.get("/drills")
def drills_page(request: Request, operator: Reader, project: ProjectFilter = None) -> HTMLResponse:
    """Every drill, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        found = drills.newest(tx, project, limit=_PAGE)
        now = history.now(tx)
    return page(request, operator, "drills.html", drills=found, project=project, now=now)


@router.get("/drills/{drill}")
def drill_page(request: Request, operator: Reader, drill: UUID) -> HTMLResponse:
    """One drill with all that it showed."""
    with services_of(request).catalog.transaction() as tx:
        found = drills.get(tx, drill)
    return page(request, operator, "drill.html", drill=found)
