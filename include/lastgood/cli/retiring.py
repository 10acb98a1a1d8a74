"""Commands about the end of life: retire, approve, undo, list."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer
from typer.core import TyperGroup

from lastgood.catalog import history
from lastgood.catalog.keeping import retirements
from lastgood.catalog.keeping.retirements import Retirement
from lastgood.catalog.settings import projects
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, Project, print_json, print_table, say
from lastgood.cli.typed import Because, not_empty, typed_duration
from lastgood.errors import NotFound
from lastgood.flows.services import Services
from lastgood.reports.words import instant
from lastgood.rules.quantities import counted
from lastgood.rules.scope import Scope

RetirementId = Annotated[UUID, typer.Argument(metavar="RETIREMENT", help="As `list` shows it.")]


class _AskByDefault(TyperGroup):
    """`lastgood retire vision/gpt` is `lastgood retire ask vision/gpt`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["ask", *args]
        return super().parse_args(ctx, args)


retire = typer.Typer(
    cls=_AskByDefault, no_args_is_help=True, help="End the life of a stage, workload or project."
)


@retire.command("ask")
def ask_retirement(
    scope: Annotated[
        str, typer.Argument(metavar="SCOPE", help="A project, project/workload or stage.")
    ],
    reason: Annotated[
        str, typer.Option(help="Why nothing of it is needed; it is recorded.", callback=not_empty)
    ],
    grace: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Longer than the policy's, as 30d.")
    ] = None,
    json: Json = False,
) -> None:
    """Give a stage, a workload or a project up, down to its last copy, once its grace is over."""
    from lastgood.flows.keeping import retire as flow

    where = Scope.parse(scope)
    span = None if grace is None else typed_duration(grace, "--grace")
    with services() as opened:
        recorded = flow.ask(
            opened.catalog, opened.stores, where, reason=reason, actor=actor(), grace=span
        )
        with opened.catalog.transaction() as tx:
            count = len(retirements.stages_in(tx, where))
    if json:
        print_json({"retirement": recorded, "effective_at": recorded.effective_at, "stages": count})
        return
    say(f"Retirement {recorded.retirement_id} of {where}: {counted(count, 'stage')}.")
    _tell_next(recorded)


@retire.command("approve")
def approve_retirement(retirement: RetirementId, json: Json = False) -> None:
    """Approve what another operator asked for; its grace begins."""
    from lastgood.flows.keeping import retire as flow

    with services() as opened:
        project = _project_of(opened, retirement)
        approved = flow.approve(opened.catalog, opened.stores, project, retirement, actor=actor())
    if json:
        print_json({"retirement": approved, "effective_at": approved.effective_at})
        return
    say(f"Retirement {retirement} of {approved.scope} is approved.")
    _tell_next(approved)


@retire.command("undo")
def undo_retirement(retirement: RetirementId, because: Because, json: Json = False) -> None:
    """Take a retirement back, until its grace is over."""
    from lastgood.flows.keeping import retire as flow

    with services() as opened:
        project = _project_of(opened, retirement)
        undone = flow.undo(
            opened.catalog, opened.stores, project, retirement, because=because, actor=actor()
        )
    if json:
        print_json({"retirement": undone})
    else:
        say(f"Retirement {retirement} is undone; the policy keeps {undone.scope} again.")


@retire.command("list")
def list_retirements(
    project: Project = None,
    undone: Annotated[bool, typer.Option("--undone", help="Also those that were undone.")] = False,
    json: Json = False,
) -> None:
    """Retirements, the oldest first, and where each of them stands."""
    with services() as opened, opened.catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in retirements.of_project(tx, name, undone=undone)]
        now = history.now(tx)
    if json:
        print_json(
            {
                "retirements": [
                    {"retirement": one, "effective_at": one.effective_at, "state": one.state(now)}
                    for one in found
                ]
            }
        )
        return
    rows = [
        [
            one.retirement_id,
            one.scope,
            one.state(now),
            instant(one.effective_at) if one.effective_at else "",
            one.asked_by,
            one.approved_by or "",
            one.reason,
        ]
        for one in found
    ]
    headers = ["retirement", "scope", "state", "takes effect", "asked by", "approved by", "reason"]
    print_table(headers, rows, "Nothing is retired.")


def _tell_next(found: Retirement) -> None:
    if found.effective_at is None:
        command = f"lastgood retire approve {found.retirement_id}"
        say(f"Nothing happens before another operator runs `{command}`.")
        return
    command = f"lastgood retire undo {found.retirement_id}"
    say(f"It takes effect at {instant(found.effective_at)}; until then `{command}` takes it back.")
    say("Nobody can acquire there any more. What is held, read, needed or being written stays.")


def _project_of(opened: Services, retirement: UUID) -> str:
    with opened.catalog.transaction() as tx:
        for project in projects.names(tx):
            for one in retirements.of_project(tx, project, undone=True):
                if one.retirement_id == retirement:
                    return project
    raise NotFound(what="retirement", name=str(retirement))
