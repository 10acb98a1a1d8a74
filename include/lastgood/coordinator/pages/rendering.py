"""Pages: one layout, relative links, and errors that people can read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import psycopg
from fastapi import Form, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import StringConstraints
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
_UNSTORABLE = "it holds a value that the catalog cannot keep, such as a NUL character"
T = TypeVar("T")
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


Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000), Form()
]
"""What somebody typed into a form, and may not leave blank."""
Skip = Annotated[int, Query(ge=0, le=1_000_000_000)]
PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """Some rows of a table, after the `skip` first; `more` says that others follow."""

    rows: Sequence[T]
    skip: int
    more: bool

    @classmethod
    def found(cls, rows: Sequence[T], skip: int) -> Rows[T]:
        """Of at most PAGE_ROWS + 1 rows that were asked for after `skip`."""
        return cls(rows[:PAGE_ROWS], skip, len(rows) > PAGE_ROWS)

    @classmethod
    def of_all(cls, rows: Sequence[T], skip: int) -> Rows[T]:
        """Of all rows that there are."""
        return cls.found(rows[skip : skip + PAGE_ROWS + 1], skip)

    @property
    def before(self) -> int:
        return max(0, self.skip - PAGE_ROWS)

    @property
    def after(self) -> int:
        return self.skip + PAGE_ROWS


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
            except psycopg.DataError:
                return _error_page(request, InvalidInput(where="the request", reason=_UNSTORABLE))
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
