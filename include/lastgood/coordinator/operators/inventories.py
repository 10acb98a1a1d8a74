"""Kept inventories, and what operators say that backends account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lastgood.catalog.reconciliation import inventories as catalog_inventories
from lastgood.catalog.settings import projects
from lastgood.coordinator.operators.context import Because, Changer, Reader, answer
from lastgood.coordinator.services import services_of
from lastgood.errors import Conflict

router = APIRouter(tags=["inventories"])

ROWS_LIMIT = 200_000
"""Of inventories that are compared while somebody waits, beside everybody else's requests."""
InventoryName = Annotated[str, Query(max_length=63)]


class AccountingBody(BaseModel):
    """What a backend accounted: in all (`total`), or for one cause."""

    model_config = ConfigDict(extra="forbid")

    bytes: Annotated[int, Field(ge=0, lt=1 << 63)]
    as_of: AwareDatetime
    because: Because
    cause: Annotated[str, Field(max_length=63)] = catalog_inventories.TOTAL
    replicas: Annotated[int, Field(ge=1, le=100)] = 1


@router.get("/inventories")
def list_inventories(
    request: Request, _: Reader, store: Annotated[str | None, Query(max_length=63)] = None
) -> JSONResponse:
    """Inventories that were not deleted, the newest of each store first."""
    with services_of(request).catalog.transaction() as tx:
        rows = projects.stores(tx) if store is None else [projects.store(tx, store)]
        found = [one for row in rows for one in catalog_inventories.of_store(tx, row.name)]
    return answer({"inventories": found})


@router.get("/inventories/diff")
def diff_inventories(
    request: Request, _: Reader, before: InventoryName, after: InventoryName
) -> JSONResponse:
    """What became new, gone and changed between two inventories of a store: 409 for such as are too
    large to compare here."""
    from lastgood.flows.inventories import by_name as flow

    services = services_of(request)
    with services.catalog.transaction() as tx:
        rows = sum(
            int(catalog_inventories.find(tx, one).facts.get("objects", 0))
            for one in (before, after)
        )
    if rows > ROWS_LIMIT:
        raise Conflict(
            reason=f"the inventories have {rows} objects, too many to compare while others wait:"
            f" run `lastgood inventory diff {before} {after}`"
        )
    found = flow.difference(services.catalog, services.stores, before, after)
    return answer({"difference": found, "grown_bytes": found.grown_bytes})


@router.get("/stores/{store}/accounting")
def show_accounting(request: Request, _: Reader, store: str) -> JSONResponse:
    """The newest numbers that operators said of a store."""
    from lastgood.flows.inventories import accounting as flow

    return answer({"numbers": flow.numbers(services_of(request).catalog, store)})


@router.post("/stores/{store}/accounting")
def set_accounting(
    request: Request, operator: Changer, store: str, body: AccountingBody
) -> JSONResponse:
    """Say what a backend accounts for a store; the next inventory is held against it."""
    from lastgood.flows.inventories import accounting as flow

    told = flow.set_number(
        services_of(request).catalog,
        store,
        body.bytes,
        as_of=body.as_of,
        because=body.because,
        actor=operator.actor,
        cause=body.cause,
        replicas=body.replicas,
    )
    return answer({"number": told}, status_code=201)
