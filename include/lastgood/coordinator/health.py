"""Whether the coordinator can serve, for whoever keeps it running."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, Request

from lastgood.catalog import history
from lastgood.coordinator.auth import anybody
from lastgood.coordinator.documents import instant
from lastgood.coordinator.services import services_of

router = APIRouter(tags=["health"])


@router.get("/health", dependencies=[Depends(anybody)])
def health(request: Request) -> dict[str, Any]:
    """200 and the catalog's time while the catalog answers, else 503 with the reason."""
    with services_of(request).catalog.transaction() as tx:
        now = history.now(tx)
    return {"status": "ok", "version": version("lastgood"), "catalog_time": instant(now)}
