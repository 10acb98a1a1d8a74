"""The coordinator alone, without Airflow: how production carries bytes that pass through it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from lastgood.coordinator.app import create_app

MOUNT = "/lastgood"


def standalone(catalog_dsn: str | None = None) -> FastAPI:
    """The app at the place where Airflow mounts it, so that both have the same URLs."""
    mounted = create_app(catalog_dsn)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mounted.router.lifespan_context(mounted):
            yield

    outer = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    outer.mount(MOUNT, mounted)
    return outer


def serve(host: str, port: int, dsn: str | None = None) -> None:
    """Serve until a signal ends the process. `dsn` as for `create_app`. TLS is ended before us."""
    uvicorn.run(standalone(dsn), host=host, port=port, log_level="info", access_log=False)
