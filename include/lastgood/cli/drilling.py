"""Commands about drills: run one, look at them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer
from typer.core import TyperGroup

from lastgood.catalog.settings import projects
from lastgood.catalog.validation import drills
from lastgood.catalog.validation.drills import Drill
from lastgood.cli.exits import answer_no
from lastgood.cli.looking import Limit
from lastgood.cli.opening import actor, require_known, services
from lastgood.cli.output import (
    Json,
    Project,
    cut,
    print_json,
    print_table,
    say,
    say_more,
    steps,
)
from lastgood.cli.typed import typed_duration
from lastgood.reports.words import human_bytes, instant, lasting


class _RunByDefault(TyperGroup):
    """`lastgood drill vision` is `lastgood drill run vision`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


drill = typer.Typer(
    cls=_RunByDefault, help="Show that restores work, and that a deletion is what it promises."
)


@drill.command("run")
def run_drill(
    project: Annotated[
        str | None, typer.Argument(metavar="PROJECT", help="All projects without it.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Restore so many stages, the longest not drilled."),
    ] = None,
    within: Annotated[
        str, typer.Option(metavar="DURATION", help="Restore each stage at least once in so long.")
    ] = "28d",
    life: Annotated[
        bool, typer.Option(help="Live a checkpoint's life in the store's scratch project, too.")
    ] = True,
    json: Json = False,
) -> None:
    """Restore the last good checkpoints of a sample of stages and live a checkpoint's life; exit
    with 1, after the record is written, if anything did not pass."""
    from lastgood.flows.drills import drill as flow

    span = typed_duration(within, "--within")
    with services() as opened:
        with opened.catalog.transaction() as tx:
            scratch = drills.scratch_projects(tx)
            names = [project] if project else [n for n in projects.names(tx) if n not in scratch]
        found = []
        with steps() as shown:
            for number, name in enumerate(names):
                shown.reach("drilling", number, len(names))
                found.append(
                    flow.run(
                        opened.catalog,
                        opened.stores,
                        name,
                        actor=actor(),
                        sample=sample,
                        within=span,
                        life=life,
                    )
                )
    if json:
        print_json({"drills": found})
    else:
        for one in found:
            _show(one)
    if not all(one.passed for one in found):
        answer_no()


@drill.command("list")
def list_drills(project: Project = None, limit: Limit = 50, json: Json = False) -> None:
    """Drills, the newest first."""
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, project)
        found, more = cut(drills.newest(tx, project, limit=limit + 1), limit)
    if json:
        print_json({"drills": found, "more": more})
        return
    rows = [
        [_verdict(one.passed), one.project, instant(one.recorded_at), one.actor, one.drill_id]
        for one in found
    ]
    print_table(["verdict", "project", "began", "by", "drill"], rows, "No drill yet.")
    say_more(more)


@drill.command("show")
def show_drill(
    drill_id: Annotated[UUID, typer.Argument(metavar="DRILL", help="As `list` shows it.")],
    json: Json = False,
) -> None:
    """One drill with all that it showed."""
    with services() as opened, opened.catalog.transaction() as tx:
        found = drills.get(tx, drill_id)
    if json:
        print_json(found)
    else:
        _show(found)


def _show(found: Drill) -> None:
    say(f"Drill {found.drill_id} of {found.project}: {_verdict(found.passed)}")
    rows = [
        [
            _verdict(one.passed),
            one.checkpoint or one.stage,
            _seconds(one.result["rto_seconds"]),
            _seconds(one.result["rpo_seconds"]) if one.result["active"] else "",
            human_bytes(one.result["bytes"]),
            one.result["reason"],
        ]
        for one in found.restores
    ]
    headers = ["restore", "checkpoint", ">runs again in", ">would lose", ">read", "what came of it"]
    print_table(headers, rows, "No stage was restored.")
    told = [[_verdict(one.passed), one.expectation, one.evidence] for one in found.expectations]
    print_table(["verdict", "expectation", "what was seen"], told, "Nothing else was looked at.")


def _seconds(value: float | None) -> str:
    return "" if value is None else lasting(timedelta(seconds=value))


def _verdict(passed: bool | None) -> str:
    return "not ended" if passed is None else "passed" if passed else "failed"
