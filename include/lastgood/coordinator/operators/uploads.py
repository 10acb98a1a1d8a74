"""Incomplete uploads, and the rules of buckets that end them later."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lastgood.coordinator.operators.context import Changer, Limit, ProjectFilter, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.flows.cleaning import lifecycle
from lastgood.flows.cleaning.upload_overview import upload_history, upload_overview

router = APIRouter(tags=["uploads"])


@router.get("/uploads")
def list_uploads(
    request: Request,
    _: Reader,
    project: ProjectFilter = None,
    ended: bool = False,
    limit: Limit = 200,
) -> JSONResponse:
    """Attempts that are neither committed nor closed, and the inventory of incomplete uploads."""
    with services_of(request).catalog.transaction() as tx:
        return answer(upload_overview(tx, project, ended=ended, limit=limit))


@router.get("/uploads/{project}/{entry}")
def show_upload(request: Request, _: Reader, project: str, entry: int) -> JSONResponse:
    """The states and aborts of one incomplete upload."""
    with services_of(request).catalog.transaction() as tx:
        return answer({"history": upload_history(tx, project, entry)})


@router.get("/stores/{store}/lifecycle")
def check_lifecycle(request: Request, operator: Reader, store: str) -> JSONResponse:
    """The bucket's own rule against abandoned uploads, and what it should be."""
    services = services_of(request)
    found = lifecycle.ensure(
        services.catalog, services.stores, store, apply=False, actor=operator.actor
    )
    return answer(found.to_json())


@router.post("/stores/{store}/lifecycle")
def apply_lifecycle(request: Request, operator: Changer, store: str) -> JSONResponse:
    """Write the proposed rule beside those of others, and read it back."""
    services = services_of(request)
    found = lifecycle.ensure(
        services.catalog, services.stores, store, apply=True, actor=operator.actor
    )
    return answer(found.to_json())
