"""Reports, and what changed from one to another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from lastgood.catalog.reconciliation import reports
from lastgood.coordinator.operators.context import (
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.flows.reconciliation.report import in_order
from lastgood.flows.reconciliation.report_files import as_csv
from lastgood.reports import html, schema
from lastgood.reports.diff import compare

router = APIRouter(tags=["reports"])

REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
}


@router.get("/reports")
def list_reports(
    request: Request,
    _: Reader,
    project: ProjectFilter = None,
    store: Annotated[str | None, Query(max_length=63)] = None,
    limit: Limit = 100,
) -> JSONResponse:
    """Reports without their documents, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        found = reports.summaries(tx, project=project, store=store, limit=limit)
    return answer({"reports": found})


@router.get("/reports/schema")
def report_schema(_: Reader) -> JSONResponse:
    """The JSON Schema of a report's document."""
    return JSONResponse(schema.document(), media_type="application/schema+json")


@router.get("/reports/{before}/diff/{after}")
def diff_reports(request: Request, _: Reader, before: int, after: int) -> JSONResponse:
    """What changed between two reports of one project in one store."""
    with services_of(request).catalog.transaction() as tx:
        found = compare(reports.get(tx, before).document, reports.get(tx, after).document)
    return answer(found.to_json())


@router.get("/reports/{report}.csv")
def report_csv(request: Request, _: Reader, report: int) -> Response:
    """The lines of a report's equations as CSV."""
    with services_of(request).catalog.transaction() as tx:
        found = reports.get(tx, report)
    name = f"report-{report}.csv"
    return Response(
        as_csv(found.document),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get("/reports/{report}.html")
def report_html(request: Request, _: Reader, report: int) -> HTMLResponse:
    """A report as the file that stands alone."""
    with services_of(request).catalog.transaction() as tx:
        found = reports.get(tx, report)
    return HTMLResponse(html.render(found.document), headers=REPORT_HEADERS)


@router.get("/reports/{report}")
def show_report(request: Request, _: Reader, report: int) -> JSONResponse:
    """A report's document."""
    with services_of(request).catalog.transaction() as tx:
        found = reports.get(tx, report)
    return answer(in_order(found.document))
