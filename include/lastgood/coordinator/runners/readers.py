"""Runner routes of readers: a lease, and with it the manifest and the grants to read."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from lastgood.catalog.jobs.readers import LeasedObject, ReaderLease
from lastgood.coordinator.auth import Caller, project_or_generation, reader
from lastgood.coordinator.documents import Name, Word, checkpoint_document, instant
from lastgood.coordinator.documents import Request as Body
from lastgood.coordinator.services import LazyServices, services_of
from lastgood.errors import InvalidInput
from lastgood.flows.jobs import read
from lastgood.flows.jobs.prepare import how_of
from lastgood.flows.jobs.read_urls import ReadUrls
from lastgood.rules import layout
from lastgood.rules.names import CheckpointId, StageId
from lastgood.stores.base import Prefix

router = APIRouter(prefix="/v1/runner/readers", tags=["runner: readers"])

_LONGEST_SECONDS = 7 * 86_400
LATEST = "latest"


class ReaderBody(Body):
    workload: Name
    stage: Name
    checkpoint: Word = LATEST
    reader: Word
    ttl_seconds: int | None = Field(default=None, ge=1, le=_LONGEST_SECONDS)


@router.post("", status_code=201)
def acquire_reader(
    body: ReaderBody, request: Request, caller: Annotated[Caller, Depends(project_or_generation)]
) -> dict[str, Any]:
    """Lease a checkpoint: while the lease lasts, nothing deletes it."""
    services = services_of(request)
    services.require_serving(caller.project)
    name = StageId.of(caller.project, body.workload, body.stage)
    reading = read.acquire_reader(
        services.catalog,
        name,
        None if body.checkpoint == LATEST else _checkpoint(body.checkpoint, name),
        reader=body.reader,
        ttl=None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds),
    )
    return {"token": reading.token, **_document(services, reading)}


@router.get("/{lease}")
def read_lease(request: Request, lease: Annotated[ReaderLease, Depends(reader)]) -> dict[str, Any]:
    """What the holder of a lease reads: for a process that was handed the lease and its token."""
    services = services_of(request)
    return _document(services, read.lent(services.catalog, lease))


def _document(services: LazyServices, reading: read.Reading) -> dict[str, Any]:
    store = services.stores[reading.lease.store]
    direct_path = None
    if store.profile.direct:
        direct_path = store.direct_path(Prefix(f"{reading.lease.prefix}{layout.OBJECTS_NAME}"))
    return {
        "lease": str(reading.lease.lease_id),
        "expires_at": instant(reading.lease.expires_at),
        "checkpoint": checkpoint_document(reading.checkpoint),
        "manifest": json.loads(reading.manifest),
        "manifest_digest": reading.checkpoint.manifest,
        "how": how_of(store),
        "direct_path": direct_path,
        "objects": _objects(services, reading),
    }


def _checkpoint(text: str, stage: StageId) -> CheckpointId:
    checkpoint = CheckpointId.parse(text, project=stage.project)
    if checkpoint.stage_id != stage:
        raise InvalidInput(where="$.checkpoint", reason=f"{text} is not a checkpoint of {stage}")
    return checkpoint


def _objects(services: LazyServices, reading: read.Reading) -> list[dict[str, Any]]:
    urls = ReadUrls(services.catalog, services.stores, reading.lease)
    return [_object(item, urls) for item in reading.objects]


def _object(item: LeasedObject, urls: ReadUrls) -> dict[str, Any]:
    return {"path": item.path, "bytes": item.size_bytes, "url": urls.of(item)}


@router.post("/{lease}/renew")
def renew_reader(
    request: Request, lease: Annotated[ReaderLease, Depends(reader)]
) -> dict[str, Any]:
    """The reader lives: its lease lasts anew, unless it ran out."""
    renewed = read.renew_reader(services_of(request).catalog, lease)
    return {"expires_at": instant(renewed.expires_at)}


@router.delete("/{lease}", status_code=204)
def end_reader(request: Request, lease: Annotated[ReaderLease, Depends(reader)]) -> Response:
    """Give the lease back."""
    read.end_reader(services_of(request).catalog, lease)
    return Response(status_code=204)
