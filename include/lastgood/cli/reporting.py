"""Commands over reports: list, show, write, diff, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastgood.catalog.reconciliation import reports as catalog_reports
from lastgood.cli.listing import ListByDefault
from lastgood.cli.looking import Limit
from lastgood.cli.opening import report_folder, require_known, services
from lastgood.cli.output import (
    Json,
    Project,
    cut,
    print_json,
    print_table,
    say,
    say_more,
)
from lastgood.reports.diff import compare
from lastgood.reports.words import human_bytes, instant, line_name, outlook, visible
from lastgood.rules.byte_equation import Line

reports = typer.Typer(
    cls=ListByDefault, help="Reports: list (the default), show, write, diff, schema."
)
ReportId = Annotated[int, typer.Argument(metavar="REPORT")]


@reports.command("list")
def list_reports(project: Project = None, limit: Limit = 100, json: Json = False) -> None:
    """Reports, the newest first."""
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, project)
        found, more = cut(catalog_reports.summaries(tx, project=project, limit=limit + 1), limit)
    if json:
        print_json({"reports": found, "more": more})
        return
    rows = [
        [
            one.report_id,
            one.project,
            one.store,
            instant(one.window_end),
            "passed" if one.passed else "failed",
            one.first_failed or "",
            human_bytes(one.unexplained_bytes),
        ]
        for one in found
    ]
    headers = [
        ">report",
        "project",
        "store",
        "window's end",
        "checks",
        "failed first",
        ">unexplained",
    ]
    print_table(headers, rows, "No report yet: run `lastgood reconcile`.")
    say_more(more)


@reports.command("show")
def show_report(
    report: ReportId,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the lines as CSV.")] = False,
    json: Json = False,
) -> None:
    """One report: what failed first, counts, byte equation, growth, findings."""
    from lastgood.flows.reconciliation.report import in_order
    from lastgood.flows.reconciliation.report_files import as_csv as csv_of

    with services() as opened, opened.catalog.transaction() as tx:
        document = catalog_reports.get(tx, report).document
    if json:
        print_json(in_order(document))
        return
    if as_csv:
        print(csv_of(document), end="")
        return
    equation = document["equation"]
    say(f"report {report}: {document['project']} in {document['store']['name']}")
    first = document["verdict"]["first_failed"]
    if first is not None:
        say(
            f"failed first: {first['name']}, which {first['owner']} answers for:"
            f" {first['observed']}"
        )
    counts = [
        [state, document["counts"][state], human_bytes(document["bytes"][state])]
        for state in catalog_reports.STATES
    ]
    print_table(["state", ">number", ">size"], counts, "")
    lines = [[line, f"{equation['lines'][line]:,}"] for line in Line if line in equation["lines"]]
    lines.append(["backend's own total", f"{equation['backend_bytes']:,}"])
    print_table(["line", ">bytes"], lines, "")
    say("the equation closes" if equation["closes"] else "the equation does not close")
    say(f"hard mark reached: {outlook(document['growth'])}")
    for check in document["checks"]:
        if not check["passed"]:
            say(f"failed ({check['severity']}): {check['says']}: {check['observed']}")
    for one in document["findings"]:
        place = visible(one["key_range"], one_line=True)
        whose = "" if one["project"] == document["project"] else " of no project"
        say(f"finding: {one['cause']} {place}{whose}, {human_bytes(one['bytes'])}")


@reports.command("write")
def write_report(
    report: ReportId,
    folder: Annotated[Path | None, typer.Option(help="Where the files go.")] = None,
    json: Json = False,
) -> None:
    """Write a report's JSON, HTML and CSV files again."""
    from lastgood.flows.reconciliation.report_files import write_files

    with services() as opened, opened.catalog.transaction() as tx:
        document = catalog_reports.get(tx, report).document
    paths = write_files(document, report_folder(folder))
    if json:
        print_json({kind: str(path) for kind, path in paths.items()})
    else:
        say(str(paths["html"]))


@reports.command("diff")
def diff_reports(
    before: Annotated[int, typer.Argument(metavar="BEFORE")],
    after: Annotated[int, typer.Argument(metavar="AFTER")],
    json: Json = False,
) -> None:
    """What changed between two reports of one project in one store."""
    with services() as opened, opened.catalog.transaction() as tx:
        found = compare(
            catalog_reports.get(tx, before).document, catalog_reports.get(tx, after).document
        )
    if json:
        print_json(found.to_json())
        return
    say(f"report {before} to {after}: {found.project} in {found.store}")
    lines = [
        [
            line_name(one.line),
            f"{one.before_bytes:,}",
            f"{one.after_bytes:,}",
            f"{one.change_bytes:+,}",
        ]
        for one in found.lines
        if one.change_bytes
    ]
    print_table(["line", ">before", ">after", ">change"], lines, "No line changed.")
    for finding in found.findings:
        size = f"{finding.before_bytes:,} to {finding.after_bytes:,} bytes"
        place = visible(finding.key_range, one_line=True)
        say(f"finding {finding.how}: {finding.cause} {place} of {finding.owner}, {size}")
    for check in found.checks:
        word = {True: "passes", False: "fails", None: "is not there"}
        say(f"check {check.name} {word[check.after]} now: {check.observed}")


@reports.command("schema")
def print_schema() -> None:
    """The JSON Schema of a report's document."""
    from lastgood.reports.schema import text

    print(text(), end="")
