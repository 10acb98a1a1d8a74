"""Checkpoints, why they are kept, and their receipts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from lastgood.catalog.jobs import checkpoints
from lastgood.catalog.views import operator_records, operator_views
from lastgood.coordinator.operators.context import (
    Changer,
    CheckpointPath,
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound
from lastgood.flows.as_json import as_json
from lastgood.flows.retention import why as why_flow
from lastgood.flows.validation import validate
from lastgood.rules.names import CheckpointId

router = APIRouter(tags=["checkpoints"])

CopyState = Literal["present", "quarantined", "deleting", "deleted", "lost"]
Verdict = Literal["pass", "fail", "inconclusive"]
Level = Literal["checksum", "format", "restore"]
Name = Annotated[str | None, Query(max_length=63)]


class ValidationBody(BaseModel):
    """At which level to validate."""

    model_config = ConfigDict(extra="forbid")

    level: Level = "checksum"


@router.get("/checkpoints")
def list_checkpoints(
    request: Request,
    _: Reader,
    project: ProjectFilter = None,
    workload: Name = None,
    stage: Name = None,
    state: CopyState | None = None,
    limit: Limit = 200,
    skip: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> JSONResponse:
    """Checkpoints, the newest of each stage first."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_views.checkpoints(
            tx,
            project=project,
            workload=workload,
            stage=stage,
            state=state,
            limit=limit,
            skip=skip,
        )
    return answer({"checkpoints": found})


@router.get("/checkpoints/{project}/{workload}/{stage}/{position}")
def show_checkpoint(request: Request, _: Reader, name: CheckpointPath) -> JSONResponse:
    """One checkpoint with its objects, manifest digest, receipts and copies."""
    with services_of(request).catalog.transaction() as tx:
        found = operator_views.checkpoint(tx, name)
        if found is None:
            raise NotFound(what="checkpoint", name=str(name))
        receipts = operator_records.receipts(tx, checkpoint=name)
        objects = operator_views.objects(tx, name)
    return answer({**as_json(found), "receipts": receipts, "objects_listed": objects})


@router.get("/checkpoints/{project}/{workload}/{stage}/{position}/manifest")
def show_manifest(request: Request, _: Reader, name: CheckpointPath) -> JSONResponse:
    """The digest of a checkpoint's manifest and its canonical text."""
    with services_of(request).catalog.transaction() as tx:
        found = checkpoints.find(tx, name)
        if found is None:
            raise NotFound(what="checkpoint", name=str(name))
        body = checkpoints.manifest_body(tx, name.project, found.manifest)
    return answer({"digest": found.manifest, "canonical": body.decode("utf-8")})


@router.get("/why/{project}/{workload}/{stage}/{position}")
def why(request: Request, _: Reader, name: CheckpointPath) -> JSONResponse:
    """Each reason that keeps a checkpoint, and each fact of the gate: true, false or unknown."""
    services = services_of(request)
    return answer(why_flow.why(services.catalog, services.stores, name).to_json())


@router.post("/checkpoints/{project}/{workload}/{stage}/{position}/validations")
def request_validation(
    request: Request, operator: Changer, name: CheckpointPath, body: ValidationBody
) -> JSONResponse:
    """Ask for a validation of a checkpoint's present copies: it runs on the workers, and its
    receipts are found under `receipts`."""
    asked = validate.request(services_of(request).catalog, name, body.level, actor=operator.actor)
    requested = [
        {"checkpoint": str(name), "copy_id": copy.copy_id, "store": copy.store, "level": body.level}
        for copy in asked
    ]
    return answer({"requested": requested}, status_code=202)


@router.get("/receipts")
def list_receipts(
    request: Request,
    _: Reader,
    project: ProjectFilter = None,
    checkpoint: Annotated[str | None, Query(max_length=300)] = None,
    verdict: Verdict | None = None,
    limit: Limit = 200,
) -> JSONResponse:
    """Receipts, the newest first."""
    name = None if checkpoint is None else CheckpointId.parse(checkpoint, project=project)
    with services_of(request).catalog.transaction() as tx:
        found = operator_records.receipts(
            tx, project=project, checkpoint=name, verdict=verdict, limit=limit
        )
    return answer({"receipts": found})
