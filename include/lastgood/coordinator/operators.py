"""Mounting what operators see: API, pages and metrics."""

from __future__ import annotations

from fastapi import FastAPI

from lastgood.coordinator import (
    metrics,
    operator_capacity,
    operator_checkpoints,
    operator_drills,
    operator_findings,
    operator_holds,
    operator_inventories,
    operator_policies,
    operator_quarantine,
    operator_reports,
    operator_retirements,
    operator_stages,
    operator_stores,
    operator_uploads,
)
from lastgood.coordinator.operator_auth import OperatorGuard, guard_here
from lastgood.coordinator.pages import routes as pages

API_ROUTERS = (
    operator_capacity.router,
    operator_checkpoints.router,
    operator_drills.router,
    operator_holds.router,
    operator_inventories.router,
    operator_policies.router,
    operator_quarantine.router,
    operator_findings.router,
    operator_reports.router,
    operator_retirements.router,
    operator_stages.router,
    operator_stores.router,
    operator_uploads.router,
)


def include(app: FastAPI, guard: OperatorGuard | None = None) -> bool:
    """Add the operator routes to the coordinator, guarded by `guard`, else by the guard of this
    process. False, and nothing is added, where nobody could be let in."""
    chosen = guard or guard_here()
    if chosen is None:
        return False
    app.state.operator_guard = chosen
    for router in API_ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(metrics.router)
    app.include_router(pages.router, prefix="/pages")
    return True
