"""Commands for when a catalog was lost, or is outdated: rebuild, and what only a hold keeps."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from lastgood.catalog.keeping import holds
from lastgood.cli.exits import answer_no
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say, steps
from lastgood.flows.rebuilding.result import Problem, Result
from lastgood.reports.words import human_bytes
from lastgood.rules.quantities import counted


def rebuild(
    because: Annotated[str, typer.Option(help="Why; it is recorded.")],
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="NAME", help="Only from this store.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List, read markers and manifests, and change nothing."),
    ] = False,
    json: Json = False,
) -> None:
    """Rebuild a lost or outdated catalog from its stores; exit with 1 if something was not whole.

    It takes the stores over: a catalog of before refuses from then on. Every object is read.
    Everything is held until `lastgood release`. A rebuild that was stopped is gone on with by the
    same command.
    """
    from lastgood.flows.rebuilding import rebuild as flow

    with services() as opened, steps() as shown:
        told = flow.run(
            opened.catalog,
            opened.stores,
            names=store or (),
            because=because,
            actor=actor(),
            dry_run=dry_run,
            tell=shown.reach,
        )
    if json:
        print_json(told)
    else:
        _say(told)
    if not told.flawless:
        answer_no()


def _say(told: Result) -> None:
    if told.dry_run:
        say(f"dry run: nothing was changed, no object was read; the stores name {told.catalog_id}")
    else:
        say(f"catalog {told.catalog_id} is at incarnation {told.incarnation}")
    for name, seen in told.stores.items():
        say(f"store {name}: {counted(seen['keys'], 'key')}, {counted(seen['prefixes'], 'attempt')}")
        if seen["foreign_keys"]:
            foreign = counted(seen["foreign_keys"], "key")
            say(f"  not lastgood's: {foreign}, {', '.join(seen['foreign'])}")
    for name, count in told.counts().items():
        if count:
            say(f"{name.replace('_', ' ')}: {count}")
    for title, problems in (
        ("not whole, kept as evidence", told.not_whole),
        ("damaged", told.damaged),
        ("the catalog knows otherwise", told.contradicted),
        ("no checkpoint", told.leftovers),
    ):
        for one in problems:
            _say_problem(title, one)
    for checkpoint in told.gone:
        say(f"gone from its store: {checkpoint}")
    rows = [
        [one.stage, one.generation, one.latest or "none", "yes" if one.blocked else "no"]
        for one in told.stages
    ]
    if rows:
        print_table(["stage", ">generation", "latest", "blocked"], rows, "")
    for project, hold_id in told.holds.items():
        say(f"{project} is held: `lastgood release-preview {hold_id}` says what only that keeps")


def _say_problem(title: str, one: Problem) -> None:
    say(f"{title}: {one.checkpoint} in {one.store}, {human_bytes(one.size_bytes)}: {one.reason}")
    for bad in one.objects:
        say(f"  {bad['path']}: {bad['problem']}, expected {bad['expected']}, found {bad['found']}")


def release_preview(
    hold_id: Annotated[UUID, typer.Argument(metavar="HOLD", help="As `holds` shows it.")],
    json: Json = False,
) -> None:
    """What only a hold keeps: the checkpoints that a mark would name once it is released and every
    copy has passed its validation."""
    from lastgood.flows.keeping.release_preview import preview

    with services() as opened:
        with opened.catalog.transaction() as tx:
            project = holds.project_of(tx, hold_id)
        leaving = preview(opened.catalog, project, hold_id)
    if json:
        print_json({"leaving": leaving})
        return
    rows = [
        [one.checkpoint, one.role, human_bytes(one.bytes), "now" if one.now else "once validated"]
        for one in leaving
    ]
    print_table(["checkpoint", "leaves", ">size", "when"], rows, "Nothing: all is kept otherwise.")
    if rows:
        total = human_bytes(sum(one.bytes for one in leaving))
        say(f"Candidates of the next mark: {counted(len(rows), 'checkpoint')}, {total}")
