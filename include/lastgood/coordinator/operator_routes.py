"""Mounting what operators see: API, pages and metrics."""

from __future__ import annotations

from fastapi import FastAPI

from lastgood.coordinator import metrics
from lastgood.coordinator.operators import (
    capacity,
    checkpoints,
    drills,
    findings,
    holds,
    inventories,
    policies,
    quarantine,
    reports,
    retirements,
    stages,
    stores,
    uploads,
)
from lastgood.coordinator.operators.auth import OperatorGuard, guard_here
from lastgood.coordinator.pages import routes as pages

API_ROUTERS = (
    capacity.router,
    checkpoints.router,
    drills.router,
    holds.router,
    inventories.router,
    policies.router,
    quarantine.router,
    findings.router,
    reports.router,
    retirements.router,
    stages.router,
    stores.router,
    uploads.router,
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
