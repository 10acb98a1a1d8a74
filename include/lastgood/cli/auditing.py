"""Commands about proof: audit, and what an auditor is handed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastgood.catalog.settings import projects
from lastgood.cli.exits import answer_no
from lastgood.cli.opening import services
from lastgood.cli.output import Json, Project, print_json, print_table, say, say_more
from lastgood.reports.words import human_bytes, instant
from lastgood.rules.quantities import counted

if TYPE_CHECKING:
    from lastgood.flows.auditing.audit import Audit
    from lastgood.flows.auditing.audit_file import Checked

audit = typer.Typer(
    invoke_without_command=True,
    help="Verify what proves the deletions: in the catalog (the default), or of an export.",
)
ProjectName = Annotated[str, typer.Argument(metavar="PROJECT")]
Expect = Annotated[
    str | None,
    typer.Option(metavar="DIGEST", help="A daily digest that was kept outside: it must be there."),
]


@audit.callback()
def audit_catalog(
    context: typer.Context, project: Project = None, expect: Expect = None, json: Json = False
) -> None:
    """Verify receipts, manifests, deletion certificates and daily digests from the catalog alone;
    exit with 1 if any was changed, taken out, or does not hold."""
    if context.invoked_subcommand is not None:
        return
    from lastgood.flows.auditing import audit as flow

    with services() as opened:
        found = flow.run(opened.catalog, project, expect=expect)
    if json:
        print_json(found)
    else:
        say(
            f"{_records(found)} and {counted(found.digests, 'daily digest')} of"
            f" {counted(found.stages, 'stage')}"
        )
        rows = [[one.kind, one.name, one.problem] for one in found.breaks]
        print_table(["what", "name", "problem"], rows, "Every record is whole and unaltered.")
    if found.breaks:
        answer_no()


def _records(found: Audit | Checked) -> str:
    return (
        f"{counted(found.receipts, 'receipt')}, {counted(found.tombstones, 'tombstone')}"
        f" ({found.open_tombstones} not yet proven), {counted(found.certificates, 'certificate')}"
    )


@audit.command("export")
def export_audit(
    project: ProjectName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Compressed if it ends with .gz.")],
    json: Json = False,
) -> None:
    """Write all that proves a project's deletions into one file, for an auditor."""
    from lastgood.flows.auditing import audit_file

    with services() as opened:
        written = audit_file.export(opened.catalog, project, file)
    if json:
        print_json(written)
        return
    say(f"{written.records} records, {human_bytes(written.bytes)}, are in {file}.")
    if written.digest is not None:
        say(f"The digest of {written.day} is {written.digest}: keep it elsewhere.")


@audit.command("check")
def check_audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `audit export` wrote it.")],
    expect: Expect = None,
    json: Json = False,
) -> None:
    """Verify an export: needs no catalog, no store and no network; exit with 1 if a record was
    changed, taken out or reordered, or a deletion is not justified."""
    from lastgood.flows.auditing import audit_file

    found = audit_file.check(file, expect=expect)
    if json:
        print_json(found)
    else:
        say(f"{found.project}: {_records(found)}")
        until = "no day" if found.covered_until is None else f"{found.covered_until}"
        digests = counted(found.digests, "daily digest")
        say(f"  {digests}, until {until}: {found.newest_digest or 'none'}")
        rows = [[one.kind, one.name, one.problem] for one in found.breaks]
        print_table(["what", "name", "problem"], rows, "Every record is whole and unaltered.")
    if found.breaks:
        answer_no()


@audit.command("digests")
def audit_digests(
    project: Project = None,
    make: Annotated[
        bool, typer.Option("--make", help="First make those that are missing, as each day does.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Show at most so many of each.")
    ] = 30,
    json: Json = False,
) -> None:
    """Each project's daily digests, the newest last."""
    from lastgood.catalog.auditing import daily_digests
    from lastgood.flows.auditing import daily_digest

    with services() as opened:
        with opened.catalog.transaction() as tx:
            names = projects.all_names(tx) if project is None else [projects.get(tx, project).name]
        for name in names if make else ():
            daily_digest.make(opened.catalog, opened.stores, name)
        with opened.catalog.transaction() as tx:
            known = [daily_digests.of_project(tx, name, limit=limit + 1) for name in names]
    found = [one for days in known for one in days[-limit:]]
    more = any(len(days) > limit for days in known)
    if json:
        print_json({"digests": found, "more": more})
        return
    rows = [
        [
            one.project,
            one.day,
            one.number,
            len(one.body["stages"]),
            one.digest,
            instant(one.recorded_at),
        ]
        for one in found
    ]
    headers = ["project", "day", ">number", ">stages", "digest", "made"]
    print_table(headers, rows, "None: nothing was deleted on a day that is over.")
    say_more(more)
