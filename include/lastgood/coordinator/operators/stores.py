"""Stores: what each was found to do, asking it anew, and its end."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from lastgood.catalog.settings import projects, store_profiles, store_registrations
from lastgood.coordinator.operators.context import Because, Changer, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.errors import InvalidInput
from lastgood.flows import store_profile, unregister

router = APIRouter(tags=["stores"])


class UnregisterBody(BaseModel):
    """Why a store ends. `lost`: it died with what lay in it; `dry_run` only says what that is."""

    model_config = ConfigDict(extra="forbid")

    because: Because
    lost: bool = False
    dry_run: bool = False


@router.get("/stores")
def list_stores(request: Request, _: Reader) -> JSONResponse:
    """Every store as it is configured, and when it was last probed; those that were unregistered,
    when, by whom and why."""
    with services_of(request).catalog.transaction() as tx:
        rows = projects.stores(tx)
        kept = {row.name: store_profiles.newest(tx, row) for row in rows}
        ended = store_registrations.unregistered(tx)
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
            ],
            "unregistered": ended,
        }
    )


@router.get("/stores/{store}/profile")
def show_profile(request: Request, _: Reader, store: str) -> JSONResponse:
    """What a store was found to do, and what is done by it: 404 if it was never probed."""
    services = services_of(request)
    kept = store_profile.newest(services.catalog, store)
    return answer(store_profile.document(kept, store_profile.unfit(services.catalog, kept)))


@router.get("/stores/{store}/profiles")
def list_profiles(request: Request, _: Reader, store: str) -> JSONResponse:
    """Every probe of a store with what it found otherwise, the newest first."""
    found = store_profile.history(services_of(request).catalog, store)
    return answer({"probes": [one.to_json() for one in found]})


@router.post("/stores/{store}/probe")
def probe(request: Request, operator: Changer, store: str) -> JSONResponse:
    """Ask a store anew, by doing, below a scratch prefix; the answers are kept."""
    services = services_of(request)
    kept = store_profile.probe(services.catalog, store, actor=operator.actor)
    return answer(
        store_profile.document(kept, store_profile.unfit(services.catalog, kept)), status_code=201
    )


@router.post("/stores/{store}/unregister")
def unregister_store(
    request: Request, operator: Changer, store: str, body: UnregisterBody
) -> JSONResponse:
    """Unregister a store that nothing needs any more, or give up one that died with what lay in it:
    409 with all that is in the way."""
    services = services_of(request)
    if body.dry_run and not body.lost:
        raise InvalidInput(where="$.dry_run", reason="it is of `lost`: say that, too")
    if body.lost:
        given_up = unregister.give_up(
            services.catalog,
            services.stores,
            store,
            because=body.because,
            actor=operator.actor,
            dry_run=body.dry_run,
        )
        return answer(given_up.to_json())
    gone = unregister.unregister(
        services.catalog, services.stores, store, because=body.because, actor=operator.actor
    )
    return answer(gone)
