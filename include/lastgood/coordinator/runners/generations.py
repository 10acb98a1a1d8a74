"""Runner routes of generations: acquire, release, heartbeats, preemption notices."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from lastgood.coordinator.auth import Caller, generation_token, project_key
from lastgood.coordinator.documents import (
    GenerationNumber,
    Name,
    Word,
    checkpoint_document,
    instant,
    read_uuid,
)
from lastgood.coordinator.documents import Request as Body
from lastgood.coordinator.services import services_of
from lastgood.errors import InvalidInput
from lastgood.flows.jobs import acquire, heartbeat
from lastgood.rules.document import Node
from lastgood.rules.names import StageId

router = APIRouter(prefix="/v1/runner", tags=["runner: generations"])

_HEARTBEATS_PER_LEASE = 4
_NOTICE_DEPTH, _NOTICE_BYTES = 32, 64 << 10


class AcquireBody(Body):
    workload: Name
    stage: Name
    after: GenerationNumber
    idempotency_key: Word
    holder: Word
    kind: Literal["checkpointed", "restartable", "ephemeral"] | None = None
    workload_class: Word | None = Field(default=None, alias="class")
    fresh: bool = False
    preemption: str | None = None


class PreemptionBody(Body):
    workload: Name
    stage: Name
    idempotency_key: Word
    notice: dict[str, Any]


class Progress(Body):
    bytes: int


class HeartbeatBody(Body):
    attempt: str | None = None
    progress: Progress | None = None


@router.get("/generations")
def show_generation(
    request: Request, workload: str, stage: str, caller: Annotated[Caller, Depends(project_key)]
) -> dict[str, Any]:
    """Who writes a stage now; ask this before you acquire."""
    services = services_of(request)
    services.require_serving(caller.project)
    name = StageId.of(caller.project, workload, stage)
    found = acquire.holder_of(services.catalog, name)
    return {
        "generation": found.generation,
        "holder": found.holder,
        "lease_expires_at": (
            None if found.lease_expires_at is None else instant(found.lease_expires_at)
        ),
        "active": found.active,
    }


@router.post("/generations", status_code=201)
def acquire_generation(
    body: AcquireBody, request: Request, caller: Annotated[Caller, Depends(project_key)]
) -> dict[str, Any]:
    """Become the one writer of a stage. Everybody who wrote before is fenced."""
    services = services_of(request)
    services.require_serving(caller.project)
    acquired = acquire.acquire(
        services.catalog,
        services.stores,
        acquire.AcquireRequest(
            stage=StageId.of(caller.project, body.workload, body.stage),
            after=body.after,
            idempotency_key=body.idempotency_key,
            holder=body.holder,
            kind=body.kind,
            workload_class=body.workload_class,
            fresh=body.fresh,
            preemption_id=(
                None if body.preemption is None else read_uuid(body.preemption, "$.preemption")
            ),
        ),
    )
    return {
        "project": acquired.stage.project,
        "workload": acquired.stage.workload,
        "stage": acquired.stage.stage,
        "generation": acquired.generation,
        "token": acquired.token,
        "lease_expires_at": instant(acquired.lease_expires_at),
        "heartbeat_seconds": acquired.lease.total_seconds() / _HEARTBEATS_PER_LEASE,
        "resume": None if acquired.resume is None else checkpoint_document(acquired.resume),
        "reasons": list(acquired.reasons),
    }


@router.delete("/generations/current", status_code=204)
def release_generation(
    request: Request, caller: Annotated[Caller, Depends(generation_token)]
) -> Response:
    """The clean end of a generation."""
    services = services_of(request)
    services.require_serving(caller.project)
    assert caller.writer is not None
    acquire.release(services.catalog, services.stores, caller.writer)
    return Response(status_code=204)


@router.post("/preemptions", status_code=201)
def record_preemption(
    body: PreemptionBody, request: Request, caller: Annotated[Caller, Depends(project_key)]
) -> dict[str, Any]:
    """Store a supplier's notice, before the acquire that it causes."""
    services = services_of(request)
    services.require_serving(caller.project)
    name = StageId.of(caller.project, body.workload, body.stage)
    notice = Node(body.notice, "$.notice", _refusal).free(_NOTICE_DEPTH, _NOTICE_BYTES)
    preemption, recorded_at = acquire.record_preemption(
        services.catalog, name, idempotency_key=body.idempotency_key, notice=notice
    )
    return {"preemption": str(preemption), "recorded_at": instant(recorded_at)}


def _refusal(where: str, reason: str) -> InvalidInput:
    return InvalidInput(where=where, reason=reason)


@router.post("/heartbeats")
def renew_leases(
    body: HeartbeatBody, request: Request, caller: Annotated[Caller, Depends(generation_token)]
) -> dict[str, Any]:
    """The writer lives: its leases last anew."""
    if body.progress is not None and body.progress.bytes < 0:
        raise InvalidInput(where="$.progress.bytes", reason=f"{body.progress.bytes} is negative")
    assert caller.writer is not None
    beat = heartbeat.beat(
        services_of(request).catalog,
        caller.writer,
        None if body.attempt is None else read_uuid(body.attempt, "$.attempt"),
    )
    return {
        "generation": beat.generation,
        "lease_expires_at": instant(beat.lease_expires_at),
        "attempt_lease_expires_at": (
            None
            if beat.attempt_lease_expires_at is None
            else instant(beat.attempt_lease_expires_at)
        ),
    }
