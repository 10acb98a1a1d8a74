"""The pages of policies: versions, promotions, and the differences that they were shown by."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from lastgood.catalog.retention import promotions
from lastgood.catalog.settings import policy_versions, projects
from lastgood.coordinator.operators.context import Changer, Reader
from lastgood.coordinator.pages.rendering import PageRoute, Text, back, page
from lastgood.coordinator.services import services_of
from lastgood.errors import CatalogSetup
from lastgood.flows.policy_change import promotion
from lastgood.reports.policy_difference import shown

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/policies")
def policies_page(request: Request, operator: Reader) -> HTMLResponse:
    """Each project's versions and promotions, and the newest differences."""
    found = []
    with services_of(request).catalog.transaction() as tx:
        for name in projects.names(tx):
            try:
                current = policy_versions.current(tx, name).name
            except CatalogSetup:
                current = None
            found.append(
                {
                    "project": name,
                    "current": current,
                    "versions": policy_versions.of_project(tx, name),
                    "promotions": promotion.listed(tx, name),
                    "differences": promotions.differences(tx, name, limit=20),
                }
            )
    return page(request, operator, "policies.html", found=found)


@router.get("/policies/{project}/differences/{difference}")
def difference_page(
    request: Request, operator: Reader, project: str, difference: int
) -> HTMLResponse:
    """One difference, as its file shows it."""
    with services_of(request).catalog.transaction() as tx:
        found = promotions.difference(tx, project, difference)
    return page(request, operator, "policy_difference_page.html", found=shown(found.document))


@router.post("/policies/approve")
def approve_promotion(
    request: Request,
    operator: Changer,
    project: Text,
    promotion_id: Annotated[int, Form()],
    because: Text,
) -> RedirectResponse:
    """Approve what another operator asked for."""
    promotion.approve(
        services_of(request).catalog,
        project,
        promotion_id,
        because=because,
        actor=operator.actor,
    )
    return back(request, "policies", "promotion-approved")
