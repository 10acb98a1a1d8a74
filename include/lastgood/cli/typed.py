"""What operators type: reasons, instants and spans of time, read or refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from lastgood.errors import InvalidInput, LastgoodError
from lastgood.rules.document import Node
from lastgood.rules.quantities import read_duration


def not_empty(text: str | None) -> str | None:
    """Refuse words that say nothing; none at all are left to the command."""
    if text is not None and not text.strip():
        raise typer.BadParameter("it is empty")
    return text


Because = Annotated[str, typer.Option(help="Why; it is recorded.", callback=not_empty)]
Until = Annotated[
    str | None,
    typer.Option(metavar="INSTANT", help="An instant with its zone, as 2026-03-01T12:00:00Z."),
]


def typed_instant(text: str | None, where: str) -> datetime | None:
    """An instant with its zone, in UTC; None where none was given. Raises InvalidInput for the
    option `where`."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):  # no instant, or none that UTC has
        pass
    reason = f"{text!r} is not an instant with its zone, such as 2026-03-01T12:00:00Z"
    raise InvalidInput(where=where, reason=reason)


def typed_duration(text: str, where: str) -> timedelta:
    """A duration such as `90s` or `2d`. Raises InvalidInput for the option `where`."""

    def refusal(place: str, reason: str) -> LastgoodError:
        return InvalidInput(where=place, reason=reason)

    return read_duration(Node(text, where, refusal))
