"""Stores: what each was found to do, and asking it anew."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lastgood.catalog import projects, store_profiles
from lastgood.coordinator.operators.context import Changer, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.flows import store_profile

router = APIRouter(tags=["stores"])


@router.get("/stores")
def list_stores(request: Request, _: Reader) -> JSONResponse:
    """Every store as it is configured, and when it was last probed."""
    with services_of(request).catalog.transaction() as tx:
        rows = projects.stores(tx)
        kept = {row.name: store_profiles.newest(tx, row) for row in rows}
    return answer(
        {
            "stores": [
                {
                    "store": row.name,
                    "kind": row.kind,
                    "failure_domain": row.failure_domain,
                    "tier": row.tier,
                    "probed_at": None if found is None else found.recorded_at,
                }
                for row in rows
                for found in [kept[row.name]]
            ]
        }
    )


@router.get("/stores/{store}/profile")
def show_profile(request: Request, _: Reader, store: str) -> JSONResponse:
    """What a store was found to do, and what is done by it: 404 if it was never probed."""
    services = services_of(request)
    kept = store_profile.newest(services.catalog, store)
    return answer(store_profile.document(kept, store_profile.unfit(services.catalog, kept)))


@router.post("/stores/{store}/probe")
def probe(request: Request, operator: Changer, store: str) -> JSONResponse:
    """Ask a store anew, by doing, below a scratch prefix; the answers are kept."""
    services = services_of(request)
    kept = store_profile.probe(services.catalog, store, actor=operator.actor)
    return answer(
        store_profile.document(kept, store_profile.unfit(services.catalog, kept)), status_code=201
    )
