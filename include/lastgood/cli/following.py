"""Commands over findings: list, show, assign, explain, close."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from lastgood.catalog import history
from lastgood.catalog.reconciliation import findings as catalog_findings
from lastgood.catalog.reconciliation import reports
from lastgood.cli.opening import actor, require_known, services
from lastgood.cli.output import Json, Project, print_json, print_table, say, steps
from lastgood.cli.typed import not_empty, typed_instant
from lastgood.reports.words import human_bytes, instant, visible

findings = typer.Typer(no_args_is_help=True, help="Findings: list, show, assign, explain, close.")
FindingId = Annotated[UUID, typer.Argument(metavar="FINDING")]


@findings.command("list")
def list_findings(
    project: Project = None,
    closed: Annotated[bool, typer.Option("--closed", help="Also closed ones.")] = False,
    json: Json = False,
) -> None:
    """Findings by deadline."""
    from lastgood.flows.inventories.owners import SHARED
    from lastgood.flows.reconciliation.report import finding_json

    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, project)
        now = history.now(tx)
        wanted = None if project is None else [project, SHARED]
        found = catalog_findings.current(tx, projects=wanted, closed=closed)
        is_looked_at = bool(reports.summaries(tx, project=project, limit=1))
    if json:
        print_json({"findings": [finding_json(one, now) for one in found]})
        return
    rows = [
        [
            one.finding_id,
            one.cause,
            f"{one.store}:{one.key_range}",
            human_bytes(one.size_bytes),
            one.owner,
            instant(one.deadline),
            "overdue" if one.is_overdue(now) else one.state,
        ]
        for one in found
    ]
    headers = ["finding", "cause", "where", ">size", "owner", "deadline", "state"]
    if is_looked_at:
        none = "None: nothing is unexplained."
    else:
        none = "No store was looked at yet: run `lastgood reconcile`."
    print_table(headers, rows, none)


@findings.command("explain")
def explain_finding(
    finding_id: FindingId,
    reason: Annotated[str, typer.Option(help="What accounts for its bytes.", callback=not_empty)],
    json: Json = False,
) -> None:
    """Account for a finding; it opens again if its bytes become more."""
    with services() as opened, opened.catalog.transaction() as tx:
        at = history.now(tx)
        found = catalog_findings.explain(tx, finding_id, reason=reason, actor=actor(), at=at)
    if json:
        print_json({"finding": found})
    else:
        say(f"Finding {finding_id} is explained.")


@findings.command("assign")
def assign_finding(
    finding_id: FindingId,
    owner: Annotated[str, typer.Option()],
    deadline: Annotated[str, typer.Option(metavar="INSTANT", help="As 2026-03-01T12:00:00Z.")],
    json: Json = False,
) -> None:
    """Give a finding another owner and deadline."""
    until = typed_instant(deadline, "--deadline")
    assert until is not None
    with services() as opened, opened.catalog.transaction() as tx:
        at = history.now(tx)
        found = catalog_findings.assign(
            tx, finding_id, owner=owner, deadline=until, actor=actor(), at=at
        )
    if json:
        print_json({"finding": found})
    else:
        say(f"Finding {finding_id} is {owner}'s until {instant(until)}.")


@findings.command("show")
def show_finding(finding_id: FindingId, json: Json = False) -> None:
    """One finding with all that happened to it."""
    from lastgood.flows.reconciliation.report import finding_json

    with services() as opened, opened.catalog.transaction() as tx:
        now = history.now(tx)
        found = catalog_findings.get(tx, finding_id)
        happened = catalog_findings.events(tx, finding_id)
    if json:
        print_json({"finding": finding_json(found, now), "events": happened})
        return
    state = "overdue" if found.is_overdue(now) else found.state
    place = visible(found.key_range, one_line=True) or "the whole store"
    say(f"{found.cause} in {found.store}:{place}, {state}")
    say(f"{found.owner} until {instant(found.deadline)}")
    rows = [
        [
            instant(one.recorded_at),
            one.kind,
            f"{one.objects:,}",
            f"{one.size_bytes:,}",
            one.actor,
            one.reason or (f"{one.owner} until {instant(one.deadline)}" if one.owner else ""),
        ]
        for one in happened
    ]
    print_table(["when", "what", ">objects", ">bytes", "by", ""], rows, "")
    for sample in found.samples:
        say(f"  {visible(sample['key'], one_line=True)} ({sample['bytes']:,} bytes)")


@findings.command("close")
def close_finding(finding_id: FindingId, json: Json = False) -> None:
    """List the store and close the finding, if that shows nothing of it any more; else say what is
    still there."""
    from lastgood.flows.reconciliation import finding_close

    with services() as opened, steps() as shown:
        closed = finding_close.close(
            opened.catalog,
            opened.stores,
            finding_id,
            actor=actor(),
            progress=lambda phase, done: shown.reach(phase, done),
        )
    if json:
        print_json({"finding": closed})
    else:
        say(f"Finding {finding_id} is closed: its bytes are gone.")
