"""The command that shows the room: `lastgood capacity`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lastgood.catalog.capacity.capacity_states import StateRow
from lastgood.cli.opening import services
from lastgood.cli.output import Json, Project, cut, print_json, print_table, say, say_more
from lastgood.cli.typed import typed_instant
from lastgood.errors import InvalidInput
from lastgood.flows.room import Room
from lastgood.reports.words import human_bytes, instant

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="Show at most so many changes.")]


def capacity(
    project: Project = None,
    at: Annotated[
        str | None,
        typer.Option(help="As it was recorded at this instant (RFC 3339).", metavar="INSTANT"),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="Every recorded change, the newest first.")
    ] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Where projects stand in their stores, and what collection can give back."""
    from lastgood.flows import room

    if changes and at:
        raise InvalidInput(where="--at", reason="it is for one instant, --changes are all of them")
    when = typed_instant(at, "--at")
    with services() as opened:
        if changes:
            told = room.changes(opened.catalog, project, limit=limit + 1)
            _print_changes(*cut(told, limit), as_document=json)
            return
        if when is None:
            found = room.now(opened.catalog, project)
        else:
            found = room.as_of(opened.catalog, when, project)
    if json:
        print_json({"capacity": [one.to_json() for one in found]})
    elif when is None:
        _print_rooms(found, "No project is configured: run `lastgood apply`.")
    else:
        _print_rooms(found, "Every project stood open.")


_NUMBERS = {
    "usage_bytes": ">used",
    "in_flight_bytes": ">under way",
    "soft_bytes": ">soft",
    "hard_bytes": ">hard",
    "reserve_bytes": ">reserve",
    "total_bytes": ">total",
}


def _print_rooms(found: Sequence[Room], empty: str) -> None:
    rows = [
        [
            one.project,
            one.store,
            one.state,
            instant(one.since) if one.since else "ever",
            *(human_bytes(one.numbers[name]) for name in _NUMBERS),
        ]
        for one in found
    ]
    print_table(["project", "store", "state", "since", *_NUMBERS.values()], rows, empty)
    for one in found:
        if one.proof is not None:
            say(f"{one.project} in {one.store}, as proven at {instant(one.proof.at)}:")
            for line in str(one.proof).splitlines():
                say(f"  {line}")


def _print_changes(found: Sequence[StateRow], more: bool, *, as_document: bool) -> None:
    if as_document:
        print_json({"changes": found, "more": more})
        return
    rows = [
        [
            instant(one.recorded_at),
            one.project,
            one.store,
            one.state,
            human_bytes(one.numbers["usage_bytes"] + one.numbers["in_flight_bytes"]),
            one.cause,
            one.actor,
        ]
        for one in found
    ]
    headers = ["when", "project", "store", "state", ">claimed", "because", "by"]
    print_table(headers, rows, "Every project has stood open ever since.")
    say_more(more)
