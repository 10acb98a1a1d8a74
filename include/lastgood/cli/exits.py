"""From what happened to an exit code, and to one clear line or a problem document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from typing import Any, NoReturn

import typer

from lastgood.errors import LastgoodError
from lastgood.flows.as_json import as_json
from lastgood.reports.words import visible

NO = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
UNAVAILABLE = 5
BROKEN = 70  # by an error that is lastgood's own
INTERRUPTED = 130
NOBODY_READS = 141
_BY_STATUS = {
    404: NOT_FOUND,
    401: REFUSED,
    403: REFUSED,
    409: REFUSED,
    410: REFUSED,
    413: USAGE,
    422: USAGE,
    503: UNAVAILABLE,
    507: UNAVAILABLE,
}


def code_of(error: LastgoodError) -> int:
    """The exit code that an error stands for."""
    return _BY_STATUS.get(error.status, NO)


def problem(error: LastgoodError) -> dict[str, Any]:
    """An error as the API would answer it."""
    document = {
        "type": error.type,
        "title": error.title,
        "status": error.status,
        "detail": str(error),
    }
    facts: dict[str, Any] = {
        name: as_json(value) for name, value in error.facts.items() if name not in document
    }
    return {**facts, **document}


def fail(error: LastgoodError, *, as_document: bool) -> NoReturn:
    """Say what went wrong and exit: a problem document on standard output, or a line on standard
    error."""
    try:
        if as_document:
            print(json.dumps(problem(error), indent=2), flush=True)
    except OSError:  # the output itself may be what is wrong
        as_document = False
    if not as_document:
        print(f"lastgood: {visible(str(error))}", file=sys.stderr)
    raise SystemExit(code_of(error))


def let_go_of_output() -> None:
    """Nobody reads what is still to be written, and nobody is to be told so when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_in_part(failed: Collection[str]) -> None:
    """End with the exit code of a store that fails where something was not done, after what was
    done was shown. The next run tries the rest again."""
    if failed:
        say = "1 thing was" if len(failed) == 1 else f"{len(failed)} things were"
        print(f"lastgood: {say} not done, see above; repeat it", file=sys.stderr)
        raise typer.Exit(UNAVAILABLE)


def answer_no() -> NoReturn:
    """End with the exit code for an answer that is no, after it was shown."""
    raise typer.Exit(NO)
