"""Commands that change a policy: record, compare, promote, approve, roll back."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from lastgood.catalog.retention.promotions import Kind
from lastgood.catalog.settings import projects
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, Project, print_json, print_table, say, steps
from lastgood.cli.typed import Because, typed_duration, typed_instant
from lastgood.errors import InvalidInput
from lastgood.reports.words import human_bytes, instant
from lastgood.rules.quantities import counted

VersionName = Annotated[str, typer.Argument(metavar="NAME@vN")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="INSTANT", help="When it takes effect; else at once."),
]


def record(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    project: Project = None,
    json: Json = False,
) -> None:
    """Record a policy file as a version of the project that is not in force; nothing, if it is the
    newest one already."""
    from lastgood.flows.policy_change import policy_diff, promotion
    from lastgood.flows.settings.configuration import read_policy

    if not file.is_file():
        raise InvalidInput(where="FILE", reason=f"{file} is not a file")
    found = read_policy(file)
    with services() as opened:
        name = policy_diff.project_of(opened.catalog, project)
        version = promotion.record(opened.catalog, name, found, actor=actor())
    if json:
        print_json({"project": name, "policy": version.name, "digest": version.digest})
        return
    say(f"{version.name} of {name} is recorded, digest {version.digest[:12]}. It is not in force.")


def diff(
    current: Annotated[str, typer.Argument(metavar="CURRENT")],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE")],
    project: Project = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Else 30 days before --to.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="Else now.")] = None,
    detection: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="In place of the policies' objectives.detection."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as HTML with its curves.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write every differing checkpoint, JSON by line."),
    ] = None,
    json: Json = False,
) -> None:
    """What CANDIDATE would have kept and would delete in place of CURRENT: each is NAME@vN, NAME
    for its newest recorded version (in force or not), or a YAML file. Deletes nothing; the
    difference is recorded, and a promotion asks for it."""
    from lastgood.flows.policy_change import policy_diff
    from lastgood.reports import policy_difference

    window = {"since": typed_instant(since, "--from"), "until": typed_instant(until, "--to")}
    latency = None if detection is None else typed_duration(detection, "--detection")
    with services() as opened, _lines(rows) as row, steps() as progress:
        name = policy_diff.project_of(opened.catalog, project)
        found = policy_diff.run(
            opened.catalog,
            name,
            current,
            candidate,
            **window,
            detection=latency,
            actor=actor(),
            row=row,
            progress=lambda done: progress.reach("stages", done),
        ).document
    if report is not None:
        report.write_text(policy_difference.render(found), encoding="utf-8")
    if json:
        print_json(found)
    else:
        _tell(found)
        if report is not None:
            say(f"Written to {report}.")


def promote(
    name: VersionName,
    because: Because,
    project: Project = None,
    at: At = None,
    json: Json = False,
) -> None:
    """Put a recorded version in force. Needs a fresh difference against the one in force; the
    sweeps after it wait for the cooling period."""
    _ask("promote", name, because, project, at, json)


def rollback(
    name: VersionName,
    because: Because,
    project: Project = None,
    at: At = None,
    json: Json = False,
) -> None:
    """The same, back to a version that was in force before. To the one that is in force, it undoes
    a promotion that is to come."""
    _ask("rollback", name, because, project, at, json)


def approve(
    promotion: Annotated[int, typer.Argument(metavar="PROMOTION")],
    because: Because,
    project: Project = None,
    json: Json = False,
) -> None:
    """Approve a promotion as another operator than who asked for it."""
    from lastgood.flows.policy_change import policy_diff
    from lastgood.flows.policy_change import promotion as flow

    with services() as opened:
        place = policy_diff.project_of(opened.catalog, project)
        done = flow.approve(opened.catalog, place, promotion, because=because, actor=actor())
    _say_promotion(flow.to_json(done), json)


def list_promotions(project: Project = None, json: Json = False) -> None:
    """Promotions and rollbacks, the newest first, and what each waits for."""
    from lastgood.flows.policy_change import promotion as flow

    with services() as opened, opened.catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in flow.listed(tx, name)]
    if json:
        print_json({"promotions": found})
        return
    table = [
        [
            one["promotion"],
            one["project"],
            one["kind"],
            one["policy"],
            one["replaces"],
            _effect(one),
            one["first_mark"] or "-",
            one["asked_by"],
            one["approved_by"] or "-",
            one["because"],
        ]
        for one in found
    ]
    headers = [">promotion", "project", "kind", "policy", "replaces", "takes effect"]
    headers += [">first mark", "by", "approved by", "because"]
    print_table(headers, table, "No policy was promoted yet.")


def _effect(told: dict[str, Any]) -> str:
    if told["overtaken"]:
        return "never: overtaken"
    return instant(told["takes_effect"]) if told["takes_effect"] else "waits for approval"


def _ask(
    kind: Kind, name: str, because: str, project: str | None, at: str | None, json: bool
) -> None:
    from lastgood.flows.policy_change import policy_diff, promotion

    when = typed_instant(at, "--at")
    with services() as opened:
        place = policy_diff.project_of(opened.catalog, project)
        asked = promotion.promote(
            opened.catalog, place, name, because=because, actor=actor(), at=when, kind=kind
        )
    _say_promotion(promotion.to_json(asked), json)


def _say_promotion(told: dict[str, Any], json: bool) -> None:
    if json:
        print_json(told)
        return
    words = f"Promotion {told['promotion']} of {told['policy']} in place of {told['replaces']}"
    if told["takes_effect"] is None:
        say(f"{words} waits: another operator approves it by `lastgood policy approve`.")
        return
    say(
        f"{words} takes effect at {instant(told['takes_effect'])}; sweeps wait until"
        f" {instant(told['sweeps_wait_until'])}."
    )


def _tell(found: dict[str, Any]) -> None:
    from lastgood.reports.policy_difference import gap_text

    ours, theirs = found["totals"]["current"], found["totals"]["candidate"]
    names = [found[side]["name"] for side in ("current", "candidate")]
    say(
        f"{names[1]} in place of {names[0]}, project {found['project']},"
        f" {instant(found['from'])} to {instant(found['to'])}"
    )

    def when(side: dict[str, Any]) -> str:
        return instant(side["oldest"]) if side["oldest"] else "none"

    shallow = "stages_with_nothing_older_than_detection"
    latency = gap_text(found["detection_seconds"])
    table = [
        ["kept checkpoints", ours["kept"], theirs["kept"]],
        ["kept bytes", human_bytes(ours["kept_bytes"]), human_bytes(theirs["kept_bytes"])],
        [
            "largest gap between them",
            gap_text(ours["largest_gap_seconds"]),
            gap_text(theirs["largest_gap_seconds"]),
        ],
        ["oldest restorable point", when(ours), when(theirs)],
        [f"stages with nothing older than {latency}", ours[shallow], theirs[shallow]],
    ]
    print_table(["", f">{names[0]}", f">{names[1]}"], table, "")
    sweep, lost = found["first_sweep"], found["lost"]
    seen = counted(found["totals"]["seen"], "checkpoint")
    say(
        f"not kept alike: {found['totals']['differing']} of {seen}; {lost['checkpoints']} could not"
        f" be restored any more, {human_bytes(lost['bytes'])}"
    )
    over = [f"{kind} {count}" for kind, count in found["overriding"].items() if kind != "holds"]
    say(f"kept by no role but: {', '.join(over) or 'nothing'}")
    say(
        f"first sweep: {counted(sweep['copies'], 'copy', 'copies')}, {human_bytes(sweep['bytes'])},"
        f" of which {counted(sweep['kept_by_current'], 'checkpoint')},"
        f" {human_bytes(sweep['kept_by_current_bytes'])}, by the change; {sweep['taken_back']} come"
        " back"
    )
    if sweep["must_be_approved"]:
        say("WARNING: the first sweep must be approved")
    stages = [
        [
            one["stage"],
            one["differing"],
            one["lost"],
            human_bytes(one["lost_bytes"]),
            gap_text(one["candidate"]["largest_gap_seconds"]),
        ]
        for one in sorted(found["stages"], key=lambda one: -one["lost_bytes"])[:20]
    ]
    headers = ["stage", ">differing", ">lost", ">size", ">largest gap then"]
    print_table(headers, stages, "No stage has a checkpoint.")
    say(f"difference {found['difference']}")


@contextmanager
def _lines(file: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    if file is None:
        yield None
        return
    with file.open("w", encoding="utf-8") as lines:
        yield lambda row: print(json_format.dumps(row), file=lines)
