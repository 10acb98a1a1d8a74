"""What proves that it works, and that it did: drills, certificates, daily digests, the audit."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lastgood.catalog.auditing import certificates, daily_digests
from lastgood.catalog.settings import projects
from lastgood.catalog.validation import drills
from lastgood.coordinator.operators.context import Limit, ProjectFilter, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound
from lastgood.flows.auditing import audit

router = APIRouter(tags=["proof"])


@router.get("/drills")
def list_drills(
    request: Request, _: Reader, project: ProjectFilter = None, limit: Limit = 50
) -> JSONResponse:
    """Drills, the newest first; `passed` is null while one is under way, or if it was cut off."""
    with services_of(request).catalog.transaction() as tx:
        if project is not None:
            projects.get(tx, project)
        found = drills.newest(tx, project, limit=limit)
    return answer({"drills": found})


@router.get("/drills/{drill}")
def show_drill(request: Request, _: Reader, drill: UUID) -> JSONResponse:
    """One drill: each stage's restore with its times against the objectives, and the verdict over
    each expectation with what was seen."""
    with services_of(request).catalog.transaction() as tx:
        found = drills.get(tx, drill)
    return answer(found)


@router.get("/audits/{project}")
def audit_project(request: Request, _: Reader, project: str) -> JSONResponse:
    """Audit a project now, from the catalog alone: what was looked at, and every break."""
    return answer(audit.run(services_of(request).catalog, project))


@router.get("/audits/{project}/digests")
def list_digests(request: Request, _: Reader, project: str, limit: Limit = 100) -> JSONResponse:
    """The newest daily digests of a project, the oldest of them first."""
    with services_of(request).catalog.transaction() as tx:
        projects.get(tx, project)
        found = daily_digests.of_project(tx, project, limit=limit)
    return answer({"digests": found})


@router.get("/audits/{project}/certificates/{tombstone}")
def show_certificate(request: Request, _: Reader, project: str, tombstone: UUID) -> JSONResponse:
    """The certificate of a deletion: 404 while its bytes are not proven gone."""
    with services_of(request).catalog.transaction() as tx:
        found = certificates.of_tombstone(tx, project, tombstone)
    if found is None:
        raise NotFound(what="certificate of tombstone", name=str(tombstone))
    return answer(found)
