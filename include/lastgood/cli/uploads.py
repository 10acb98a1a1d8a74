"""Commands about incomplete uploads, and about the rule of a bucket that ends them later."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from typing import Annotated

import typer

from lastgood.cli.exits import answer_no
from lastgood.cli.looking import Limit
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, Project, cut, print_json, print_table, say, say_more
from lastgood.cli.stores import store
from lastgood.errors import InvalidInput
from lastgood.flows.as_json import as_json
from lastgood.reports.words import human_bytes, instant, lasting


def uploads(
    project: Project = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="Also those that are gone, and those that went on.")
    ] = False,
    upload: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The history of one of them.")
    ] = None,
    limit: Limit = 200,
    json: Json = False,
) -> None:
    """Attempts that are not committed, and the incomplete uploads that were found."""
    from lastgood.flows.cleaning.upload_overview import upload_overview

    if upload is not None:
        _history(project, upload, json)
        return
    with services() as opened, opened.catalog.transaction() as tx:
        known = upload_overview(tx, project, ended=ended, limit=limit + 1)
    attempts, more_attempts = cut(known.attempts, limit)
    entries, more_entries = cut(known.uploads, limit)
    found = replace(known, attempts=attempts, uploads=entries)
    more = more_attempts or more_entries
    if json:
        print_json({**as_json(found), "more": more})
        return
    rows = [
        [
            "incomplete" if one.incomplete and one.state == "open" else one.state,
            one.checkpoint,
            one.attempt,
            one.holder,
            human_bytes(one.declared_bytes),
            lasting(found.at - one.recorded_at),
            lasting(one.lease_expires_at - found.at),
            one.reason,
        ]
        for one in found.attempts
    ]
    headers = ["attempt is", "for", "attempt", "writer", ">declared", ">age", ">lease left", "why"]
    print_table(headers, rows, "Every attempt is committed or cleaned up.")
    listed = [
        [
            one.entry_id,
            one.state,
            one.store,
            one.key,
            one.upload_id or "objects",
            one.owner,
            "" if one.initiated_at is None else instant(one.initiated_at),
            one.parts,
            "unknown" if one.part_bytes is None else human_bytes(one.part_bytes),
            instant(one.first_seen_at),
            "never" if one.listed_at is None else instant(one.listed_at),
            one.tries,
            one.reason,
        ]
        for one in found.uploads
    ]
    headers = [">number", "upload is", "store", "key", "upload", "owner", "initiated", ">parts"]
    headers += [">bytes", "first seen", "last listed", ">aborts", "why"]
    print_table(headers, listed, "No incomplete upload was found.")
    limits = [
        [one.stage, one.workload_class, lasting(one.age), one.because] for one in found.thresholds
    ]
    print_table(["stage", "class", ">given up after", "because"], limits, "No stage yet.")
    for name, number in found.foreign.items():
        say(f"{name}: pending uploads of strangers, which are never touched: {number}")
    for name, check in found.lifecycle.items():
        say(f"{name}: {check.says}")
    say_more(more)


def _history(project: str | None, upload: int, as_document: bool) -> None:
    from lastgood.flows.cleaning.upload_overview import upload_history

    if project is None:
        raise InvalidInput(where="--upload", reason="say --project, too")
    with services() as opened, opened.catalog.transaction() as tx:
        found = upload_history(tx, project, upload)
    if as_document:
        print_json({"history": found})
        return
    rows = [
        [instant(one["recorded_at"]), one["kind"], one["what"], one["actor"], one["reason"] or ""]
        for one in found
    ]
    print_table(["when", "", "what", "by", "why"], rows, "No such upload.")


@store.command("ensure-lifecycle")
def ensure_lifecycle(
    name: Annotated[str, typer.Argument(metavar="STORE")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Write what is proposed, and read it back.")
    ] = False,
    json: Json = False,
) -> None:
    """Check the bucket's own rule against abandoned uploads; exit with 1 unless it is as it
    should be."""
    from lastgood.flows.cleaning import lifecycle

    with services() as opened:
        found = lifecycle.ensure(opened.catalog, opened.stores, name, apply=apply, actor=actor())
    judged = found.assessment
    if json:
        print_json(found.to_json())
    else:
        say(f"bucket {found.bucket}: {judged.says}")
        for warning in judged.warnings:
            say(f"! {warning}")
        if found.applied:
            say("The rule was written, and read back with all others as they were.")
        elif judged.proposal is not None:
            say(f"Proposed beside the bucket's other rules ({len(judged.proposal) - 1}):")
            say(json_text.dumps(judged.ours, indent=2))
            say(f"`lastgood store ensure-lifecycle {name} --apply` writes it.")
    if judged.state != "kept" or judged.warnings:
        answer_no()
