"""The pages that operators read."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from lastgood.catalog import history
from lastgood.catalog.keeping import holds, retirements
from lastgood.catalog.reconciliation import findings, reports
from lastgood.catalog.settings import projects
from lastgood.catalog.views import operator_records, operator_views
from lastgood.coordinator.auth import anybody
from lastgood.coordinator.operators.context import CheckpointPath, ProjectFilter, Reader
from lastgood.coordinator.operators.quarantine import in_quarantine
from lastgood.coordinator.pages import changes, policies, proof, timeline
from lastgood.coordinator.pages.rendering import PAGE_ROWS, PageRoute, Rows, Skip, page
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound
from lastgood.flows import room
from lastgood.flows.cleaning.upload_overview import upload_overview
from lastgood.flows.overview import overview
from lastgood.flows.reconciliation.report import finding_json
from lastgood.flows.retention import why as why_flow
from lastgood.reports.diff import compare
from lastgood.reports.html import style

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("", dependencies=[Depends(anybody)])
def without_slash(request: Request) -> RedirectResponse:
    """To the first page: relative links need the slash."""
    return RedirectResponse(request.url.path.rpartition("/")[2] + "/")


@router.get("/style.css", dependencies=[Depends(anybody)])
def style_sheet() -> Response:
    """The one style sheet."""
    return Response(str(style()), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@router.get("/")
def overview_page(request: Request, operator: Reader) -> HTMLResponse:
    """How everything stands."""
    services = services_of(request)
    found = overview(services.catalog, services.stores)
    return page(request, operator, "overview.html", found=found)


@router.get("/reports")
def reports_page(
    request: Request, operator: Reader, project: ProjectFilter = None, skip: Skip = 0
) -> HTMLResponse:
    """Every report, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        if project:
            projects.get(tx, project)
        found = reports.summaries(tx, project=project or None, limit=PAGE_ROWS + 1, skip=skip)
    return page(
        request, operator, "reports.html", reports=Rows.found(found, skip), project=project or None
    )


@router.get("/reports/{before}/diff/{after}")
def diff_page(request: Request, operator: Reader, before: int, after: int) -> HTMLResponse:
    """What changed between two reports."""
    with services_of(request).catalog.transaction() as tx:
        found = compare(reports.get(tx, before).document, reports.get(tx, after).document)
    return page(request, operator, "report_diff.html", diff=found)


@router.get("/reports/{report}")
def report_page(request: Request, operator: Reader, report: int) -> HTMLResponse:
    """One report, as its file shows it."""
    with services_of(request).catalog.transaction() as tx:
        found = reports.get(tx, report)
        before = reports.before(tx, found)
    return page(request, operator, "report_page.html", report=found.document, before=before)


@router.get("/checkpoints")
def stages_page(request: Request, operator: Reader, skip: Skip = 0) -> HTMLResponse:
    """Every stage, to choose one."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = operator_views.stages(tx)
        ending = [one for name in projects.names(tx) for one in retirements.of_project(tx, name)]
    return page(
        request,
        operator,
        "stages.html",
        stages=Rows.of_all(found, skip),
        retirements=ending,
        now=now,
    )


@router.get("/why/{project}/{workload}/{stage}/{position}")
def why_page(request: Request, operator: Reader, name: CheckpointPath) -> HTMLResponse:
    """One checkpoint: what keeps it, each fact of the gate, its holds and receipts."""
    services = services_of(request)
    explained = why_flow.why(services.catalog, services.stores, name).to_json()
    with services.catalog.transaction() as tx:
        now = history.now(tx)
        found = operator_views.checkpoint(tx, name)
        if found is None:
            raise NotFound(what="checkpoint", name=str(name))
        standing = holds.on_checkpoint(tx, name.project, found.checkpoint_id)
        objects = operator_views.objects(tx, name)
    return page(
        request,
        operator,
        "why.html",
        why=explained,
        checkpoint=found,
        holds=standing,
        objects=objects,
        now=now,
    )


@router.get("/holds")
def holds_page(request: Request, operator: Reader, skip: Skip = 0) -> HTMLResponse:
    """Standing holds."""
    with services_of(request).catalog.transaction() as tx:
        names = projects.names(tx)
        found = [one for name in names for one in holds.standing(tx, name)]
    return page(request, operator, "holds.html", holds=Rows.of_all(found, skip))


@router.get("/quarantine")
def quarantine_page(request: Request, operator: Reader, skip: Skip = 0) -> HTMLResponse:
    """What lies in quarantine and can be taken back, and what was deleted."""
    services = services_of(request)
    found = in_quarantine(services, None)
    with services.catalog.transaction() as tx:
        now = history.now(tx)
        deleted = operator_records.tombstones(tx, limit=PAGE_ROWS + 1, skip=skip)
    return page(
        request,
        operator,
        "quarantine.html",
        total=len(found),
        found=Rows.of_all(found, skip),
        deleted=Rows.found(deleted, skip),
        now=now,
    )


@router.get("/uploads")
def uploads_page(
    request: Request, operator: Reader, ended: bool = False, skip: Skip = 0
) -> HTMLResponse:
    """Attempts that are not committed, and the inventory of incomplete uploads."""
    with services_of(request).catalog.transaction() as tx:
        found = upload_overview(tx, ended=ended, limit=PAGE_ROWS + 1, skip=skip)
    return page(
        request,
        operator,
        "uploads.html",
        found=found,
        attempts=Rows.found(found.attempts, skip),
        uploads=Rows.found(found.uploads, skip),
        thresholds=Rows.of_all(found.thresholds, skip),
        now=found.at,
        ended=ended,
    )


@router.get("/capacity")
def capacity_page(
    request: Request, operator: Reader, project: ProjectFilter = None
) -> HTMLResponse:
    """Where every project stands in its stores, with the proofs of reach, and the changes."""
    catalog = services_of(request).catalog
    found = room.now(catalog, project)
    changes = room.changes(catalog, project, limit=PAGE_ROWS)
    return page(request, operator, "capacity.html", rooms=found, changes=changes)


@router.get("/findings/{finding}/history")
def finding_page(request: Request, operator: Reader, finding: UUID) -> HTMLResponse:
    """One finding with all that happened to it."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = findings.get(tx, finding)
        happened = findings.events(tx, finding)
    return page(
        request, operator, "finding.html", finding=finding_json(found, now), events=happened
    )


@router.get("/findings")
def findings_page(
    request: Request, operator: Reader, closed: bool = False, skip: Skip = 0
) -> HTMLResponse:
    """What is unexplained, by deadline."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        found = findings.current(tx, closed=closed, limit=PAGE_ROWS + 1, skip=skip)
        is_looked_at = bool(reports.summaries(tx, limit=1))
    documents = [finding_json(one, now) for one in found]
    return page(
        request,
        operator,
        "findings.html",
        findings=Rows.found(documents, skip),
        closed=closed,
        is_looked_at=is_looked_at,
    )


router.include_router(changes.router)
router.include_router(policies.router)
router.include_router(proof.router)
router.include_router(timeline.router)


@router.get("/{path:path}")
def no_such_page(path: str, _: Reader) -> HTMLResponse:
    """Every other address is a page, too: one that leads back."""
    raise NotFound(what="page", name=path)
