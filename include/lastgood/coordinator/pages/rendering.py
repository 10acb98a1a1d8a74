"""Pages: one layout, relative links, and errors that people can read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette._utils import get_route_path

from lastgood.coordinator.operators.auth import Operator, TokenGuard
from lastgood.coordinator.problems import json_path
from lastgood.errors import InvalidInput, LastgoodError
from lastgood.reports.html import environment

_TEMPLATES = Path(__file__).parent / "templates"
_PREFIX = "/pages/"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline';"
    " img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}
DONE = {
    "held": "The hold stands.",
    "released": "The hold was released.",
    "taken-back": "The checkpoint is present again.",
    "retirement-approved": "The retirement is approved; its grace runs.",
    "promotion-approved": "The promotion is approved.",
    "retirement-undone": "The retirement is taken back.",
    "explained": "The finding is explained.",
    "closed": "The finding is closed: its bytes are gone.",
    "assigned": "The finding has its new owner and deadline.",
}


def page(request: Request, operator: Operator, template: str, **values: Any) -> HTMLResponse:
    """A page, whose links begin with `root`: the way back to the first of our pages."""
    content = (
        environment(_TEMPLATES)
        .get_template(template)
        .render(
            root=root_of(request),
            here=_below(request).partition("/")[0],
            operator=operator,
            done=DONE.get(request.query_params.get("done", "")),
            **values,
        )
    )
    return HTMLResponse(content, headers=_HEADERS)


def back(request: Request, to: str, done: str) -> RedirectResponse:
    """After a change: to another of our pages, which says what was done."""
    separator = "&" if "?" in to else "?"
    return RedirectResponse(f"{root_of(request)}{to}{separator}done={done}", status_code=303)


def root_of(request: Request) -> str:
    """`./`, `../`, `../../` …: relative, since pages may be served under any path."""
    return "../" * _below(request).count("/") or "./"


def _below(request: Request) -> str:
    return get_route_path(request.scope).removeprefix(_PREFIX)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_readably(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                return _error_page(
                    request, InvalidInput(where=json_path(first["loc"]), reason=str(first["msg"]))
                )
            except LastgoodError as error:
                return _error_page(request, error)

        return handle_readably


def _error_page(request: Request, error: LastgoodError) -> HTMLResponse:
    headers = dict(_HEADERS)
    if error.status == 401 and isinstance(request.app.state.operator_guard, TokenGuard):
        headers["WWW-Authenticate"] = 'Basic realm="lastgood", charset="UTF-8"'
    content = (
        environment(_TEMPLATES)
        .get_template("error.html")
        .render(
            root=root_of(request),
            here="",
            operator=None,
            done=None,
            error=error,
            facts=_facts(error),
        )
    )
    return HTMLResponse(content, status_code=error.status, headers=headers)


def _facts(error: LastgoodError) -> dict[str, Any]:
    shown = (str, int, float)
    return {name: value for name, value in error.facts.items() if isinstance(value, shown)}
