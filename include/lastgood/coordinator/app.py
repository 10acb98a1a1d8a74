"""The coordinator as an app: mounted in Airflow's api-server by the plugin, or served alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from lastgood.coordinator import health, operator_routes
from lastgood.coordinator.problems import add_problem_handlers
from lastgood.coordinator.runners import checkpoints, generations, objects, readers
from lastgood.coordinator.services import LazyServices

_RUNNERS = (generations, checkpoints, objects, readers)


def create_app(catalog_dsn: str | None = None) -> FastAPI:
    """The app, to be mounted at /lastgood. The catalog is `catalog_dsn`, else where
    `catalog.connect` finds it; it is opened by the first request. Operator routes are there only
    where somebody could pass their guard."""
    services = LazyServices(catalog_dsn)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(services.close)

    app = FastAPI(
        title="lastgood coordinator",
        version=version("lastgood"),
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere; /openapi.json is for tools
        redoc_url=None,
    )
    app.state.lastgood = services
    add_problem_handlers(app)
    app.include_router(health.router)
    for module in _RUNNERS:
        app.include_router(module.router)
    operator_routes.include(app)
    return app
