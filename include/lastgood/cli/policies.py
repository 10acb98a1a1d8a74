"""Commands about policies: check a file before it is applied, and show what is in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import stages
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.cli.exits import answer_no
from lastgood.cli.opening import services
from lastgood.cli.output import Json, Project, print_json, print_table, say
from lastgood.errors import InvalidInput, LastgoodError
from lastgood.reports.words import instant
from lastgood.rules import policy_text
from lastgood.rules.document import Node
from lastgood.rules.planning import Plan, plan
from lastgood.rules.policy import Policy
from lastgood.rules.policy_names import PolicyName
from lastgood.rules.quantities import counted, read_size

CheckpointSize = Annotated[
    str, typer.Option(metavar="SIZE", help="Of one checkpoint, to reckon the space it can need.")
]

policy = typer.Typer(no_args_is_help=True, help="Policies: check a file, show, list.")


@policy.command("check")
def check_policy(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    checkpoint_size: CheckpointSize = "600GB",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on a warning.")] = False,
    json: Json = False,
) -> None:
    """Say a policy file in sentences, with its warnings and the space that it can need.

    Works on the file alone, without a catalog. A wrong file exits with 2 and names line and key.
    """
    from lastgood.flows.settings.configuration import read_policy

    size = _size(checkpoint_size)
    if not file.is_file():
        raise InvalidInput(where="FILE", reason=f"{file} is not a file")
    found = read_policy(file)
    if json:
        print_json(_document(found, plan(found, size)))
    else:
        _tell(found, plan(found, size))
    if strict and policy_text.warnings(found):
        answer_no()


@policy.command("show")
def show_policy(
    project: Project = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="NAME@vN", help="As `list` shows it; else the one in force."),
    ] = None,
    checkpoint_size: CheckpointSize = "600GB",
    json: Json = False,
) -> None:
    """The policy of a project in sentences, with its digest and since when it is in force."""
    size = _size(checkpoint_size)
    from lastgood.flows.policy_change.policy_diff import project_of

    with services() as opened:
        name = project_of(opened.catalog, project)
        with opened.catalog.transaction() as tx:
            known = stages.names(tx, name).values()
            chosen = (
                policy_versions.current(tx, name)
                if version is None
                else policy_versions.get(tx, name, PolicyName.parse(version, "--version"))
            )
    parsed = Policy.parse(chosen.document, where=chosen.name)
    held = Counter(parsed.override_for(one.workload, one.stage) for one in known)
    if json:
        under = {str(override): held[override] for override in parsed.overrides}
        told = _document(parsed, plan(parsed, size))
        print_json({"version": _version(chosen), "stages_by_override": under, **told})
        return
    since = instant(chosen.effective_from) if chosen.effective_from else "its promotion"
    say(f"{chosen.name} of {name}, from {since} on")
    _tell(parsed, plan(parsed, size))
    for number, override in enumerate(parsed.overrides):
        say(f"override {number} holds for {counted(held[override], 'stage')} now")


@policy.command("list")
def list_policies(project: Project = None, json: Json = False) -> None:
    """Every version of each project's policy, the newest first: digest, and from when to when it
    was in force last."""
    with services() as opened, opened.catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in _listed(tx, name)]
    if json:
        print_json({"policies": found})
        return
    rows = [
        [
            one["project"],
            f"{one['policy']}@v{one['version']}",
            one["digest"][:12],
            *_span_words(one),
            one["recorded_by"],
        ]
        for one in found
    ]
    headers = ["project", "policy", "digest", "from", "until", "by"]
    print_table(headers, rows, "No policy yet.")


def _listed(tx: Transaction, project: str) -> Iterator[dict[str, Any]]:
    found = policy_versions.of_project(tx, project)
    if not found:
        return
    spans = _spans(policy_versions.times_in_force(tx, project))
    current = policy_versions.current(tx, project) if spans else None
    for one in found:
        since, until = spans.get(one.name, (None, None))
        yield {
            **_version(one),
            "effective_from": since,
            "until": until,
            "in_force": current is not None and one.name == current.name,
        }


def _spans(taken: Sequence[PolicyVersion]) -> dict[str, tuple[datetime | None, datetime | None]]:
    """From when to when each version was in force last, by its name."""
    spans: dict[str, tuple[datetime | None, datetime | None]] = {}
    last: str | None = None
    for _, run in groupby(taken, key=lambda one: one.name):  # an undone promotion ends nothing
        first = next(run)
        if last is not None:
            spans[last] = spans[last][0], first.effective_from
        spans[first.name] = first.effective_from, None
        last = first.name
    return spans


def _span_words(one: Mapping[str, Any]) -> tuple[str, str]:
    since, until = one["effective_from"], one["until"]
    if since is None:
        return "not promoted", "-"
    if one["in_force"]:
        return instant(since), "in force"
    return instant(since), instant(until) if until else "-"


def _size(text: str) -> int:
    def refusal(where: str, reason: str) -> LastgoodError:
        return InvalidInput(where=where, reason=reason)

    return read_size(Node(text, "--checkpoint-size", refusal))


def _version(version: PolicyVersion) -> dict[str, Any]:
    return {
        "project": version.project,
        "policy": version.policy,
        "version": version.version,
        "digest": version.digest,
        "effective_from": version.effective_from,
        "recorded_at": version.recorded_at,
        "recorded_by": version.recorded_by,
    }


def _document(policy: Policy, space: Plan) -> dict[str, Any]:
    return {
        "policy": policy.name,
        "digest": policy.digest,
        "sentences": policy_text.sentences(policy).splitlines(),
        "warnings": list(policy_text.warnings(policy)),
        "space": {
            **_space(space),
            "overrides": {words: _space(under) for words, under in space.overrides.items()},
        },
        "document": policy.to_json(),
    }


def _space(space: Plan) -> dict[str, Any]:
    return {
        "checkpoint_bytes": space.checkpoint_bytes,
        "most_by_role": dict(space.by_role),
        "separate_bytes": space.separate_bytes,
        "union_checkpoints": space.checkpoints,
        "bounded_by_history_only": list(space.unbounded),
    }


def _tell(policy: Policy, space: Plan) -> None:
    for warning in policy_text.warnings(policy):
        say(f"WARNING: {warning}")
    say(policy_text.sentences(policy))
    say(str(space))
    say(f"digest {policy.digest}")
