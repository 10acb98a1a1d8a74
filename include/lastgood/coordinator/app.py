"""The coordinator as an app: mounted in Airflow's api-server by the plugin, or served alone."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.concurrency import run_in_threadpool

import lastgood.coordinator
from lastgood.coordinator import (
    auth,
    health,
    operator_auth,
    runner_checkpoints,
    runner_generations,
    runner_objects,
    runner_readers,
)
from lastgood.coordinator.problems import add_problem_handlers
from lastgood.coordinator.services import LazyServices

_RUNNER = (runner_generations, runner_checkpoints, runner_objects, runner_readers)


def create_app(catalog_dsn: str | None = None) -> FastAPI:
    """The app, to be mounted at /lastgood. The catalog is `catalog_dsn`, else where
    `catalog.connect` finds it; it is opened by the first request. Operator routes are there only
    where somebody could pass their guard."""
    services = LazyServices(catalog_dsn)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(services.close)

    app = FastAPI(title="lastgood coordinator", version=version("lastgood"), lifespan=lifespan)
    app.state.lastgood = services
    app.state.operator_guard = operator_auth.guard_here()
    add_problem_handlers(app)
    app.include_router(health.router)
    for module in _RUNNER:
        app.include_router(module.router)
    for router in _operator_routers(with_guarded=app.state.operator_guard is not None):
        app.include_router(router)
    return app


auth.guard("operator who may read")(operator_auth.reading)
auth.guard("operator who may change")(operator_auth.changing)


def _operator_routers(*, with_guarded: bool) -> Iterator[APIRouter]:
    for found in pkgutil.iter_modules(lastgood.coordinator.__path__):
        is_operators = found.name.startswith("operator_") or found.name == "pages"
        if found.name == "metrics" or (with_guarded and is_operators):
            module = importlib.import_module(f"{lastgood.coordinator.__name__}.{found.name}")
            router = getattr(module, "router", None)
            if isinstance(router, APIRouter):
                yield router
