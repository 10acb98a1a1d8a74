"""How commands show what they found: tables for people, JSON for scripts, progress on the side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from lastgood.flows.as_json import as_json
from lastgood.reports.words import visible

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Project = Annotated[
    str | None, typer.Option("--project", "-p", help="Only this project.", metavar="PROJECT")
]
_PIPED_WIDTH = 240  # wide enough that no name is cut where nobody reads a terminal
_COLOURS = {
    "present": "green",
    "pass": "green",
    "passed": "green",
    "true": "green",
    "quarantined": "yellow",
    "inconclusive": "yellow",
    "unknown": "yellow",
    "incomplete": "yellow",
    "deleting": "red",
    "lost": "red",
    "fail": "red",
    "failed": "red",
    "false": "red",
    "overdue": "red",
    "open": "green",
    "soft": "yellow",
    "closed": "red",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads on: whoever runs the command says how it ends."""
        raise BrokenPipeError


def console() -> Console:
    """Where answers go."""
    found = _Console(highlight=False)
    return found if found.is_terminal else _Console(highlight=False, width=_PIPED_WIDTH)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(as_json(document), indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """One line for people."""
    console().print(escape(visible(text)), soft_wrap=True)


def shown(word: object) -> str:
    """A state or verdict in its colour."""
    text = escape(visible(str(word), one_line=True))
    colour = _COLOURS.get(str(word))
    return f"[{colour}]{text}[/{colour}]" if colour else text


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Rows under headers; a header that begins with `>` is of a column of numbers. Without rows,
    the sentence `empty`."""
    if not rows:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(
            header.removeprefix(">"),
            justify="right" if header.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*[shown(cell) for cell in row])
    console().print(table)


def cut(found: Sequence[T], limit: int) -> tuple[Sequence[T], bool]:
    """The first `limit` of what was asked for with one more, and whether others follow."""
    return found[:limit], len(found) > limit


def say_more(more: bool) -> None:
    """That others follow, where they do."""
    if more:
        say("Others follow: a greater --limit shows them.")


class Steps:
    """The progress of a long work, on standard error."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def reach(self, phase: str, done: int, total: int | None = None) -> None:
        """Say how far a phase is; `total` None: nobody knows how much there is."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)


@contextmanager
def steps() -> Iterator[Steps]:
    """Show progress on standard error while the work goes on, if that is a terminal."""
    aside = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=aside,
        transient=True,
        disable=not aside.is_terminal,
    ) as progress:
        yield Steps(progress)
