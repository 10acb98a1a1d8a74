"""Runner routes of checkpoints: prepare, grants, commit, status, latest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError

from lastgood.catalog.jobs.attempt_objects import AttemptObject, DeclaredObject
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.coordinator.auth import (
    Caller,
    generation_token,
    observer,
    project_or_generation,
    uploader,
)
from lastgood.coordinator.documents import (
    Digest,
    ObjectPath,
    SequenceNumber,
    Size,
    Step,
    Word,
    checkpoint_document,
    instant,
    read_uuid,
)
from lastgood.coordinator.documents import Request as Body
from lastgood.coordinator.problems import as_json, first_of
from lastgood.coordinator.services import services_of
from lastgood.errors import BadManifest, InvalidInput
from lastgood.flows.cleaning import cleanup
from lastgood.flows.jobs import attempt_status, commit, prepare, read, upload
from lastgood.flows.jobs.attempt_status import AttemptStatus
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import StageId, check_digest
from lastgood.rules.paths import check_object_paths, check_size
from lastgood.stores.parts import part_count

router = APIRouter(prefix="/v1/runner/checkpoints", tags=["runner: checkpoints"])

_READ_BYTES_A_SECOND = 200 * 2**20
_LONGEST_POLL_SECONDS = 60


class ObjectBody(Body):
    path: ObjectPath
    bytes: Size
    sha256: Digest | None = None


class PrepareBody(Body):
    sequence: SequenceNumber
    step: Step
    kind: Literal["full", "incremental"] = "full"
    idempotency_key: Word
    objects: Annotated[list[ObjectBody], Field(max_length=prepare.OBJECTS_LIMIT)]


class PartsBody(Body):
    path: ObjectPath
    numbers: list[int]
    sha256: list[Digest] | None = None  # of each part, where `prepare` asked for it


class GrantsBody(Body):
    parts: list[PartsBody] = Field(default_factory=list)


async def _document(request: Request) -> bytes:
    """The body as it came: a large one is parsed by a thread, not on the event loop, and only for a
    caller who was let in."""
    return await request.body()


def _prepare_schema() -> dict[str, Any]:
    schema = PrepareBody.model_json_schema()
    schema["properties"]["objects"]["items"] = schema.pop("$defs")[ObjectBody.__name__]
    return schema


@router.post(
    "/prepare",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _prepare_schema()}},
        }
    },
)
def prepare_checkpoint(
    request: Request,
    caller: Annotated[Caller, Depends(generation_token)],
    document: Annotated[bytes, Depends(_document)],
) -> dict[str, Any]:
    """Announce a checkpoint: room, a place and an upload for each of its objects."""
    body = _read_prepare(document)
    services = services_of(request)
    services.require_serving(caller.project)
    assert caller.writer is not None
    prepared = prepare.prepare(
        services.catalog,
        services.stores,
        caller.writer,
        caller.token,
        prepare.PrepareRequest(
            sequence=body.sequence,
            step=body.step,
            kind=body.kind,
            idempotency_key=body.idempotency_key,
            objects=_declared(body.objects),
        ),
    )
    attempt = prepared.attempt
    return {
        "attempt": str(attempt.attempt_id),
        "fencing_token": prepared.fencing_token,
        "checkpoint": str(attempt.checkpoint),
        "store": attempt.store,
        "how": prepared.how,
        "direct_path": prepared.direct_path,
        "part_sha256": upload.needs_digests(services.stores[attempt.store]),
        "lease_expires_at": instant(attempt.lease_expires_at),
        "grant_expires_at": instant(attempt.grant_expires_at),
        "objects": [_slot(item) for item in prepared.objects],
    }


def _declared(objects: list[ObjectBody]) -> list[DeclaredObject]:
    check_object_paths(
        [item.path for item in objects], where=lambda index: f"$.objects[{index}].path"
    )
    declared = [
        DeclaredObject(
            item.path,
            check_size(item.bytes, f"$.objects[{index}].bytes"),
            None
            if item.sha256 is None
            else check_digest(item.sha256, f"$.objects[{index}].sha256"),
        )
        for index, item in enumerate(objects)
    ]
    check_size(sum(item.size_bytes for item in declared), "$.objects")
    return declared


def _slot(item: AttemptObject) -> dict[str, Any]:
    parts = 0 if item.part_bytes is None else part_count(item.size_bytes, item.part_bytes)
    return {"path": item.path, "part_bytes": item.part_bytes, "parts": parts}


@router.post("/{attempt}/grants")
def grant_parts(
    body: GrantsBody, request: Request, attempt: Annotated[Attempt, Depends(uploader)]
) -> dict[str, Any]:
    """Where parts go; without any, only the grant and the lease are renewed."""
    services = services_of(request)
    services.require_serving(attempt.project)
    asked: dict[str, list[int]] = {}
    digests: dict[tuple[str, int], str] = {}
    for index, item in enumerate(body.parts):
        if not isinstance(item.path, str):
            raise InvalidInput(where=f"$.parts[{index}].path", reason="it is not text")
        asked.setdefault(item.path, []).extend(item.numbers)
        digests |= _digests(item, f"$.parts[{index}].sha256")
    granted = upload.grant(services.catalog, services.stores, attempt, asked, digests)
    return {
        "grant_expires_at": instant(granted.expires_at),
        "lease_expires_at": instant(granted.lease_expires_at),
        "urls": [
            {
                "path": one.path,
                "number": one.number,
                "method": "PUT",
                "url": one.url,
                "headers": dict(one.headers),
            }
            for one in granted.urls
        ],
    }


def _digests(item: PartsBody, where: str) -> dict[tuple[str, int], str]:
    if item.sha256 is None:
        return {}
    if len(item.sha256) != len(item.numbers):
        reason = f"{len(item.sha256)} digests for {len(item.numbers)} parts"
        raise InvalidInput(where=where, reason=reason)
    return {
        (item.path, number): check_digest(digest, f"{where}[{index}]")
        for index, (number, digest) in enumerate(zip(item.numbers, item.sha256, strict=True))
    }


@router.post(
    "/commit",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["attempt", "manifest"],
                        "additionalProperties": False,
                        "properties": {
                            "attempt": {"type": "string", "format": "uuid"},
                            "manifest": {"type": "object"},
                        },
                    }
                }
            },
        }
    },
)
def commit_checkpoint(
    request: Request,
    caller: Annotated[Caller, Depends(generation_token)],
    document: Annotated[bytes, Depends(_document)],
) -> JSONResponse:
    """Make an attempt a checkpoint. 202 where reading it all takes longer than a request should."""
    services = services_of(request)
    services.require_serving(caller.project)
    assert caller.writer is not None
    attempt_id, manifest = _read_commit(document)
    outcome = commit.commit(
        services.catalog,
        services.stores,
        caller.writer,
        read_uuid(attempt_id, "$.attempt"),
        Manifest.parse(manifest),
    )
    if outcome.checkpoint is None:
        poll = f"/lastgood/v1/runner/checkpoints/{attempt_id}"
        status = attempt_status.status(
            services.catalog, services.stores, outcome.attempt, parts=False
        )
        seconds = _poll_seconds(status)
        answer = as_json(
            {"state": "sealed", "poll": poll, "retry_after_seconds": seconds}, status_code=202
        )
        answer.headers["Retry-After"] = str(seconds)
        return answer
    latest = read.latest(services.catalog, outcome.checkpoint.id.stage_id)
    return as_json(
        {
            "state": "committed",
            "checkpoint": str(outcome.checkpoint.id),
            "manifest_digest": outcome.checkpoint.manifest,
            "committed": checkpoint_document(outcome.checkpoint),
            "latest": None if latest.checkpoint is None else checkpoint_document(latest.checkpoint),
        }
    )


def _read_commit(document: bytes) -> tuple[str, object]:
    """The attempt and the manifest's document."""
    body = _read_json(document, _not_json)
    if not isinstance(body, dict) or set(body) != {"attempt", "manifest"}:
        raise InvalidInput(where="$", reason="give attempt and manifest, and nothing else")
    if not isinstance(body["attempt"], str):
        raise InvalidInput(where="$.attempt", reason="it is not text")
    return body["attempt"], body["manifest"]


def _read_prepare(document: bytes) -> PrepareBody:
    try:
        return PrepareBody.model_validate(_read_json(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise first_of([{**first, "loc": ("body", *first["loc"])}]) from None


def _read_json(document: bytes, constant: Callable[[str], object] | None = None) -> object:
    try:
        return json.loads(document, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(where="$", reason=f"not JSON: {error}") from None


def _not_json(constant: str) -> object:
    raise BadManifest(where="$", reason=f"{constant} is not a JSON number")


@router.get("/latest")
def show_latest(
    request: Request,
    workload: str,
    stage: str,
    caller: Annotated[Caller, Depends(project_or_generation)],
) -> JSONResponse:
    """The latest good checkpoint with its manifest, or an explicit none with the reasons."""
    services = services_of(request)
    services.require_serving(caller.project)
    found = read.latest(services.catalog, StageId.of(caller.project, workload, stage))
    if found.checkpoint is None or found.manifest is None:
        return as_json({"checkpoint": None, "reasons": list(found.reasons)})
    return as_json(
        {
            "checkpoint": checkpoint_document(found.checkpoint),
            "manifest": json.loads(found.manifest),
            "manifest_digest": found.checkpoint.manifest,
        }
    )


@router.delete("/{attempt}")
def cancel_attempt(
    request: Request, attempt: Annotated[Attempt, Depends(uploader)]
) -> dict[str, Any]:
    """Give an open attempt up: 409 once it is sealed. Its room is free when its grants have
    ended."""
    services = services_of(request)
    services.require_serving(attempt.project)
    now = cleanup.cancel(services.catalog, services.stores, attempt)
    return {
        "attempt": str(now.attempt_id),
        "state": now.state.value,
        "grant_expires_at": instant(now.grant_expires_at),
    }


@router.get("/{attempt}")
def show_attempt(
    request: Request,
    response: Response,
    attempt: Annotated[Attempt, Depends(observer)],
    parts: bool = False,
    path: str | None = None,
) -> dict[str, Any]:
    """Where an attempt stands; with `parts`, what its store holds of each object, or of the one at
    `path`."""
    services = services_of(request)
    status = attempt_status.status(
        services.catalog, services.stores, attempt, parts=parts, path=path
    )
    now = status.attempt
    document: dict[str, Any] = {
        "attempt": str(now.attempt_id),
        "checkpoint": str(now.checkpoint),
        "state": now.state.value,
        "reason": now.state_reason,
        "lease_expires_at": instant(now.lease_expires_at),
        "grant_expires_at": instant(now.grant_expires_at),
        "verification": {
            "objects": status.objects,
            "objects_verified": status.objects_verified,
            "bytes": status.total_bytes,
            "bytes_verified": status.bytes_verified,
        },
        "problems": list(status.problems),
        "manifest_digest": status.manifest_digest,
    }
    if now.state is State.SEALED:
        document["retry_after_seconds"] = _poll_seconds(status)
        response.headers["Retry-After"] = str(document["retry_after_seconds"])
    if status.parts is not None:
        document["parts"] = [
            {"path": path, "held": [_held(part) for part in held]}
            for path, held in status.parts.items()
        ]
    return document


def _poll_seconds(status: AttemptStatus) -> int:
    """When it is worth to ask again: the time that the rest takes to read, within bounds."""
    rest_bytes = status.total_bytes - status.bytes_verified
    return max(1, min(rest_bytes // _READ_BYTES_A_SECOND, _LONGEST_POLL_SECONDS))


def _held(part: Any) -> Mapping[str, Any]:
    return {"number": part.number, "bytes": part.size_bytes, "sha256": part.sha256}
