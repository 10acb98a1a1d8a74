"""Runner routes of object bytes, for stores that jobs do not reach by themselves."""

from __future__ import annotations

import re
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse

from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.readers import LeasedObject, ReaderLease
from lastgood.coordinator import byte_streams
from lastgood.coordinator.auth import reader_of_attempt, uploader
from lastgood.coordinator.problems import LengthRequired
from lastgood.coordinator.services import LazyServices, services_of
from lastgood.errors import LastgoodError
from lastgood.flows.jobs import read, upload
from lastgood.flows.jobs.read_urls import ReadUrls
from lastgood.rules import layout
from lastgood.rules.paths import check_object_path
from lastgood.stores.base import Key, Part, Store

router = APIRouter(prefix="/v1/runner/objects", tags=["runner: objects"])

_RANGE = re.compile(r"bytes=([0-9]{1,16})-([0-9]{1,16})?|bytes=-([0-9]{1,16})")


class RangeUnsatisfiable(LastgoodError):
    """{path!r} has {bytes} bytes; {asked!r} is not a part of it."""

    status = 416
    type = "range-unsatisfiable"


@router.put("/{attempt}/{path:path}")
async def put_part(
    request: Request, attempt: Annotated[Attempt, Depends(uploader)], path: str, part: int = 1
) -> dict[str, Any]:
    """Send one part of an object. It is hashed as it comes; sent again, it replaces itself."""
    services = services_of(request)
    check_object_path(path, "path")
    length = request.headers.get("content-length")
    if length is None:
        raise LengthRequired()

    def work(chunks: Any) -> Part:
        slot = upload.slot_for(services.catalog, services.stores, attempt, path, part, int(length))
        return upload.receive(services.catalog, slot, chunks)

    received = await byte_streams.receive(request.stream(), work, services.byte_streams)
    return {
        "path": path,
        "part": part,
        "bytes": received.size_bytes,
        "sha256": received.sha256,
    }


@router.get("/{attempt}/{path:path}", response_class=Response)
async def get_object(
    request: Request, lease: Annotated[ReaderLease, Depends(reader_of_attempt)], path: str
) -> Response:
    """Read one object, or a range of it, under a live lease. A store that jobs reach by themselves
    is redirected to."""
    services = services_of(request)
    check_object_path(path, "path")
    item, store, url = await anyio.to_thread.run_sync(
        _find, services, lease, path, limiter=services.byte_streams
    )
    if url is not None:
        return RedirectResponse(url, status_code=307)
    start, size_bytes, partial = _range(request.headers.get("range"), item)
    key = Key(layout.object_key(lease.prefix, path))
    opened = store.open(key, start=start, size_bytes=size_bytes, version_id=item.version_id)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(size_bytes),
        # Airflow's api-server would compress what its client lets it; tensors only get slower.
        "Content-Encoding": "identity",
    }
    if partial:
        headers["Content-Range"] = f"bytes {start}-{start + size_bytes - 1}/{item.size_bytes}"
    sent = byte_streams.send(opened, size_bytes, services.byte_streams)
    return StreamingResponse(
        await byte_streams.begun(sent),
        status_code=206 if partial else 200,
        media_type="application/octet-stream",
        headers=headers,
    )


def _find(
    services: LazyServices, lease: ReaderLease, path: str
) -> tuple[LeasedObject, Store, str | None]:
    item = read.leased_object(services.catalog, lease, path)
    url = ReadUrls(services.catalog, services.stores, lease).presigned(item)
    return item, services.stores[lease.store], url


def _range(header: str | None, item: LeasedObject) -> tuple[int, int, bool]:
    """Start and length in bytes, and whether that is a range: one range, or else the whole."""
    found = _RANGE.fullmatch(header or "")
    if found is None:
        return 0, item.size_bytes, False
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, item.size_bytes - int(suffix)), item.size_bytes - 1
        satisfiable = int(suffix) > 0 and item.size_bytes > 0
    else:
        start = int(first)
        end = min(int(last) if last is not None else item.size_bytes, item.size_bytes - 1)
        satisfiable = start <= end
    if not satisfiable:
        raise RangeUnsatisfiable(path=item.path, bytes=item.size_bytes, asked=header)
    return start, end - start + 1, True
