"""Every error as a problem document (RFC 9457) with a stable `type`; nothing of our insides."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lastgood.errors import CatalogSetup, InvalidInput, LastgoodError, Unavailable

# What names every object of a checkpoint may be long, and is read once its sender is known. Every
# other document is parsed before that, so it must cost nothing.
BODY_LIMIT_BYTES = 2 << 20
LONG_BODY_LIMIT_BYTES = (64 << 20) + (1 << 20)  # a manifest at its limit, and what is around it
LONG_BODIES = ("/v1/runner/checkpoints/prepare", "/v1/runner/checkpoints/commit")
_LOG = logging.getLogger(__name__)
_MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = 2
_TITLES = {404: "not-found", 405: "method-not-allowed"}


class PayloadTooLarge(LastgoodError):
    """The request's body has {bytes} bytes; at most {limit}."""

    status = 413
    type = "payload-too-large"


class LengthRequired(LastgoodError):
    """The request does not say how long its body is; send Content-Length."""

    status = 411
    type = "length-required"


def problem(error: LastgoodError) -> JSONResponse:
    """The answer that an error stands for."""
    document = {
        "type": error.type,
        "title": error.title,
        "status": error.status,
        "detail": str(error),
    }
    facts = {name: _plain(value) for name, value in error.facts.items() if name not in document}
    return JSONResponse(
        jsonable_encoder({**facts, **document}),
        status_code=error.status,
        media_type=_MEDIA_TYPE,
        headers=_headers(error),
    )


def _headers(error: LastgoodError) -> dict[str, str]:
    if error.status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if error.status in (503, 507):
        seconds = error.facts.get("retry_after_seconds", _RETRY_SECONDS)
        return {"Retry-After": str(int(seconds))}
    return {}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str | int | float | bool | list | dict | None):
        return value
    return str(value)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of the app with a problem document."""
    app.add_exception_handler(LastgoodError, _on_lastgood_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(psycopg.OperationalError, _on_catalog_failure)
    app.add_exception_handler(psycopg.DataError, _on_unstorable_value)
    app.add_middleware(LastResort)


async def _on_lastgood_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LastgoodError)
    if error.status >= 500:
        _LOG.warning("%s: %s", error.type, error)
    if isinstance(error, CatalogSetup):  # it says where the database is, and for whom
        error = Unavailable(what="the catalog", reason="it cannot serve; our log says why")
    return problem(error)


async def _on_validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return problem(first_of(error.errors()))


def first_of(errors: Sequence[Mapping[str, Any]]) -> InvalidInput:
    """The first thing that Pydantic found wrong."""
    reason = str(errors[0]["msg"]).rstrip(".")
    return InvalidInput(where=json_path(errors[0]["loc"]), reason=reason)


async def _on_http_exception(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    kind = _TITLES.get(error.status_code, "http-error")
    document = {
        "type": kind,
        "title": kind.replace("-", " "),
        "status": error.status_code,
        "detail": str(error.detail),
    }
    return JSONResponse(
        document, status_code=error.status_code, media_type=_MEDIA_TYPE, headers=error.headers
    )


async def _on_catalog_failure(_: Request, error: Exception) -> JSONResponse:
    _LOG.warning("the catalog failed: %s", error)
    return problem(Unavailable(what="the catalog", reason=type(error).__name__))


async def _on_unstorable_value(_: Request, error: Exception) -> JSONResponse:
    """What passed every check and yet fits no column, such as a NUL in a text."""
    _LOG.warning("a value that the catalog cannot hold: %s", error)
    reason = "it holds a value that the catalog cannot keep, such as a NUL character"
    return problem(InvalidInput(where="the request", reason=reason))


def json_path(loc: Sequence[str | int]) -> str:
    """`$.objects[0].path` for what Pydantic calls ("body", "objects", 0, "path")."""
    if not loc:
        return "$"
    where = "$" if loc[0] == "body" else str(loc[0])
    for step in loc[1:]:
        where += f"[{step}]" if isinstance(step, int) else f".{step}"
    return where


class LastResort:
    """Answers what nobody expected with a bare 500, logs it once, and refuses bodies that are too
    long before anybody reads them. (The framework's own handler logs again in the server.)"""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            refusal = _body_refusal(scope)
            if refusal is not None:
                await problem(refusal)(scope, receive, watched)
                return
            await self._app(scope, receive, watched)
        except Exception:
            _LOG.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await problem(LastgoodError(detail="This is a fault of lastgood; it was logged."))(
                scope, receive, send
            )


def _body_refusal(scope: Scope) -> LastgoodError | None:
    """Objects may have any length, and their route looks at it; documents may not."""
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return None
    if b"transfer-encoding" in headers:
        return LengthRequired()
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        return LengthRequired()
    limit = LONG_BODY_LIMIT_BYTES if scope["path"].endswith(LONG_BODIES) else BODY_LIMIT_BYTES
    if scope["method"] != "PUT" and int(length) > limit:
        return PayloadTooLarge(bytes=int(length), limit=limit)
    return None


def as_json(document: Mapping[str, Any], status_code: int = 200) -> JSONResponse:
    """A JSON answer without the detour over a model."""
    return JSONResponse(jsonable_encoder(document), status_code=status_code)
