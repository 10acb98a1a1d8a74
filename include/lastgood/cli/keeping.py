"""Commands that keep: holds, release, quarantine, unblock."""

from __future__ import annotations

from typing import Annotated, Literal, get_args
from uuid import UUID

import typer

from lastgood.catalog.keeping import holds as catalog_holds
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.catalog.settings import projects
from lastgood.cli.looking import Checkpoint
from lastgood.cli.opening import actor, operator, services
from lastgood.cli.output import Json, Project, print_json, print_table, say
from lastgood.cli.typed import Because, Until, not_empty, typed_instant
from lastgood.errors import InvalidInput, NotFound
from lastgood.flows.services import Services
from lastgood.reports.words import human_bytes, instant
from lastgood.rules.names import CheckpointId
from lastgood.rules.quantities import counted

Kind = Literal["incident", "legal", "research", "milestone"]


stage = typer.Typer(no_args_is_help=True, help="A stage whose restores are blocked: unblock.")
quarantine = typer.Typer(no_args_is_help=True, help="What lies in quarantine, and taking it back.")


def hold(
    reason: Annotated[
        str, typer.Option(help="Why it must stay; it is recorded.", callback=not_empty)
    ],
    checkpoint: Annotated[str | None, typer.Argument(metavar="CHECKPOINT")] = None,
    kind: Annotated[str, typer.Option(help="incident, legal, research or milestone")] = "incident",
    owner: Annotated[
        str | None, typer.Option(help="Whose word it is; else yours.", callback=not_empty)
    ] = None,
    until: Until = None,
    project: Project = None,
    workload: Annotated[str | None, typer.Option(help="Selector: this workload.")] = None,
    stage: Annotated[str | None, typer.Option(help="Selector: this stage.")] = None,
    step_from: Annotated[int | None, typer.Option(help="Selector: from this step on.")] = None,
    step_to: Annotated[int | None, typer.Option(help="Selector: up to this step.")] = None,
    committed_from: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Selector: committed then or later.")
    ] = None,
    committed_to: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Selector: committed then or before.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Selector: those with this metric.")] = None,
    metric_from: Annotated[float | None, typer.Option(help="Selector: from this value.")] = None,
    metric_to: Annotated[float | None, typer.Option(help="Selector: up to this value.")] = None,
    json: Json = False,
) -> None:
    """Hold a checkpoint, or (with --project and a selector) all that match, now and later."""
    from lastgood.flows.keeping import hold as flow

    if kind not in get_args(Kind):
        raise InvalidInput(
            where="--kind", reason=f"{kind!r} is none of {', '.join(get_args(Kind))}"
        )
    name = None if checkpoint is None else CheckpointId.parse(checkpoint, project=project)
    chosen = Selector(
        workload=workload,
        stage=stage,
        step_from=step_from,
        step_to=step_to,
        committed_from=typed_instant(committed_from, "--committed-from"),
        committed_to=typed_instant(committed_to, "--committed-to"),
        metric=metric,
        metric_from=metric_from,
        metric_to=metric_to,
    )
    if name is None and project is None:
        raise InvalidInput(where="hold", reason="name a checkpoint, or a --project and a selector")
    if name is not None and chosen != Selector():
        raise InvalidInput(where="hold", reason="a checkpoint and a selector exclude each other")
    new = NewHold(
        kind=kind,  # type: ignore[arg-type]  # checked above
        owner=owner or operator(),
        reason=reason,
        placed_by=actor(),
        expires_at=typed_instant(until, "--until"),
        selector=chosen if name is None else None,
    )
    with services() as opened:
        place = name.project if name is not None else str(project)
        placed = flow.place(opened.catalog, opened.stores, place, new, name)
    if json:
        print_json(placed)
        return
    say(f"Hold {placed.hold_id} stands on {counted(len(placed.checkpoint_ids), 'checkpoint')}.")
    if placed.warning:
        say(f"{placed.warning}.")
    if placed.undone:
        say(f"Taken back out of quarantine: {counted(len(placed.undone), 'copy', 'copies')}.")


def holds(
    project: Project = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also those that ended.")] = False,
    json: Json = False,
) -> None:
    """Standing holds, the oldest first."""
    read = catalog_holds.everything if ended else catalog_holds.standing
    with services() as opened, opened.catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in read(tx, name)]
    if json:
        print_json({"holds": found})
        return
    rows = [
        [
            one.hold_id,
            one.project,
            one.kind,
            one.checkpoints,
            one.owner,
            instant(one.expires_at) if one.expires_at else "its release",
            one.reason,
        ]
        for one in found
    ]
    headers = ["hold", "project", "kind", ">takes", "owner", "until", "reason"]
    print_table(headers, rows, "No hold stands.")


def release(
    hold_id: Annotated[UUID, typer.Argument(metavar="HOLD", help="As `holds` shows it.")],
    because: Because,
    json: Json = False,
) -> None:
    """End a hold for good; what it kept is left to the policy again."""
    from lastgood.flows.keeping.release import release as flow

    with services() as opened:
        project = _project_of(opened, hold_id)
        ended = flow(
            opened.catalog, opened.stores, project, hold_id, because=because, actor=actor()
        )
    if json:
        print_json({"hold": ended})
    else:
        say(f"Hold {hold_id} on {counted(ended.checkpoints, 'checkpoint')} is released.")


def _project_of(opened: Services, hold_id: UUID) -> str:
    with opened.catalog.transaction() as tx:
        for project in projects.names(tx):
            if any(one.hold_id == hold_id for one in catalog_holds.everything(tx, project)):
                return project
    raise NotFound(what="hold", name=str(hold_id))


@quarantine.command("list")
def list_quarantine(project: Project = None, json: Json = False) -> None:
    """Copies in quarantine, with the instant before which they are not deleted."""
    from lastgood.flows import quarantine as flow

    with services() as opened:
        with opened.catalog.transaction() as tx:
            names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in flow.listed(opened.catalog, name)]
    if json:
        documents = [
            {
                "checkpoint": str(one.copy.checkpoint),
                "store": one.copy.store,
                "bytes": one.copy.stored_bytes,
                "since": one.copy.state_at,
                "deletable_at": one.deletable_at,
            }
            for one in found
        ]
        print_json({"quarantine": documents})
        return
    rows = [
        [
            one.copy.checkpoint,
            one.copy.store,
            human_bytes(one.copy.stored_bytes),
            instant(one.copy.state_at),
            instant(one.deletable_at),
        ]
        for one in found
    ]
    headers = ["checkpoint", "store", ">size", "since", "deleted no sooner than"]
    print_table(headers, rows, "Nothing is in quarantine.")


@quarantine.command("undo")
def undo_quarantine(checkpoint: Checkpoint, because: Because, json: Json = False) -> None:
    """Take a checkpoint back out of quarantine, unless its deletion has begun.

    Of one that is present, show again what somebody else hid in its store, as by a delete marker.
    """
    from lastgood.flows import quarantine as flow

    name = CheckpointId.parse(checkpoint)
    with services() as opened:
        taken = flow.undo(opened.catalog, opened.stores, name, because=because, actor=actor())
    if json:
        print_json(
            {"checkpoint": str(name), "copies": [[one.store, one.state.value] for one in taken]}
        )
    else:
        say(f"{name} is present again in {', '.join(one.store for one in taken)}.")
        say("The next mark may give it up again, unless it is held.")


@stage.command("unblock")
def unblock(
    to: Annotated[
        str, typer.Option("--to", metavar="CHECKPOINT", help="The checkpoint to establish.")
    ],
    because: Because,
    json: Json = False,
) -> None:
    """Establish a checkpoint with a passing receipt, and answer restores of its stage again."""
    from lastgood.flows.validation.unblock import unblock as flow

    with services() as opened:
        established = flow(
            opened.catalog,
            opened.stores,
            CheckpointId.parse(to),
            because=because,
            actor=actor(),
        )
    if json:
        print_json({"established": str(established.id)})
    else:
        say(f"{established.id} is established; restores are answered again.")
