"""Reports and the findings that they follow."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lastgood.catalog import findings, history, reports
from lastgood.coordinator.operator_context import (
    Because,
    Changer,
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.flows.inventory_owners import SHARED
from lastgood.flows.report import finding_json
from lastgood.reports import html

router = APIRouter(tags=["reports"])

REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
}


class ExplainBody(BaseModel):
    """What accounts for the bytes of a finding."""

    model_config = ConfigDict(extra="forbid")

    reason: Because


class AssignBody(BaseModel):
    """Who looks after a finding, and until when."""

    model_config = ConfigDict(extra="forbid")

    owner: Annotated[str, Field(min_length=1, max_length=200)]
    deadline: AwareDatetime


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
    return answer(found.document)


@router.get("/findings")
def list_findings(
    request: Request, _: Reader, project: ProjectFilter = None, closed: bool = False
) -> JSONResponse:
    """Findings by deadline; those of keys that belong to no project are shown with every
    project."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
        wanted = None if project is None else [project, SHARED]
        found = findings.current(tx, projects=wanted, closed=closed)
    return answer({"findings": [finding_json(one, now) for one in found]})


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
