"""Commands that work: verify, mark, sweep, cleanup, reconcile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from lastgood.catalog import history
from lastgood.catalog.jobs import copies, copy_transitions
from lastgood.catalog.settings import projects
from lastgood.cli.exits import answer_no, end_in_part
from lastgood.cli.opening import actor, report_folder, services
from lastgood.cli.output import Json, print_json, print_table, say, steps
from lastgood.cli.typed import not_empty, typed_instant
from lastgood.errors import CopyState, InvalidInput, Unavailable
from lastgood.flows.services import Services
from lastgood.reports.words import human_bytes
from lastgood.rules.names import CheckpointId, StageId
from lastgood.rules.quantities import counted
from lastgood.rules.retention_rules import Level
from lastgood.stores.base import StoreError

ProjectName = Annotated[str, typer.Argument(metavar="PROJECT")]


def verify(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|STAGE|PROJECT", help="What to verify: every present copy of it."
        ),
    ],
    level: Annotated[
        str,
        typer.Option(
            help="How far to climb: checksum reads every byte, format also loads every tensor in"
            " isolation, restore also takes a training step by the checkpoint's contract."
        ),
    ] = "checksum",
    json: Json = False,
) -> None:
    """Validate present copies up to a level and write receipts; exit with 1 unless all pass."""
    levels = _up_to(level)
    with services() as opened:
        found = _present(opened, name)
        results: list[dict[str, Any]] = []
        failed: dict[str, str] = {}
        skipped: dict[str, str] = {}  # what was swept while others were read
        with steps() as shown:
            for number, copy in enumerate(found, 1):
                try:
                    results += _verify(opened, copy, levels)
                except (StoreError, Unavailable) as error:
                    failed[f"{copy.checkpoint} in {copy.store}"] = str(error)
                except CopyState as error:
                    if len(found) == 1:
                        raise
                    skipped[f"{copy.checkpoint} in {copy.store}"] = str(error)
                shown.reach("copies", number, len(found))
    if json:
        print_json({"receipts": results, "failed": failed, "skipped": skipped})
    else:
        rows = [
            [
                one["verdict"],
                one["level"],
                one["checkpoint"],
                human_bytes(one["bytes_read"]),
                one["reason"],
            ]
            for one in results
        ]
        headers = ["verdict", "level", "checkpoint", ">read", "reason"]
        print_table(headers, rows, "None was written." if failed else "No present copy.")
        for name, reason in failed.items():
            say(f"failed: {name}: {reason}")
        for name, reason in skipped.items():
            say(f"skipped: {name}: {reason}")
    if any(one["verdict"] != "pass" for one in results):
        answer_no()
    end_in_part(failed)


def _present(opened: Services, name: str) -> list[copies.Copy]:
    """The present copies of a checkpoint, of a stage or of a project."""
    with opened.catalog.transaction() as tx:
        if name.count("/") == 3:
            found = copies.of_checkpoint(tx, CheckpointId.parse(name))
            for one in found:
                copy_transitions.require(one, copies.State.PRESENT, action="verify")
            return found
        if "/" in name:
            stage = StageId.parse(name)
            project = projects.get(tx, stage.project).name
            every = copies.in_state(tx, project, copies.State.PRESENT)
            return [one for one in every if one.checkpoint.stage_id == stage]
        return copies.in_state(tx, projects.get(tx, name).name, copies.State.PRESENT)


def _up_to(level: str) -> list[str]:
    known = [one.value for one in Level]
    if level not in known:
        raise InvalidInput(where="--level", reason=f"{level!r} is none of {', '.join(known)}")
    return known[: known.index(level) + 1]


def _verify(opened: Services, copy: copies.Copy, levels: list[str]) -> list[dict[str, Any]]:
    from lastgood.flows.validation import validate

    results = validate.climb(opened.catalog, opened.stores, copy.copy_id, levels, actor=actor())
    return [
        {"checkpoint": str(copy.checkpoint), "store": copy.store, **result} for result in results
    ]


def mark(
    project: ProjectName,
    at: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Replay the decision of this instant.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Replay under this policy, NAME or NAME@vN.")
    ] = None,
    json: Json = False,
) -> None:
    """Mark what a project keeps now; with --at, replay a past decision (never swept)."""
    from lastgood.flows.retention import mark as flow

    instant_at = typed_instant(at, "--at")
    with services() as opened:
        kind = "live" if instant_at is None and policy is None else "replay"
        told = flow.run(opened.catalog, project, at=instant_at, kind=kind, policy=policy)  # type: ignore[arg-type]
    _print_summary(told, json)


def sweep(
    project: ProjectName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would go to the gate, change nothing.")
    ] = False,
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve the plan, as it is now, and sweep.")
    ] = False,
    because: Annotated[
        str | None, typer.Option(help="Why it is approved; recorded.", callback=not_empty)
    ] = None,
    digest: Annotated[
        str | None, typer.Option(help="Approve only the plan that --dry-run showed with it.")
    ] = None,
    mark_id: Annotated[
        int | None,
        typer.Option("--mark", help="Only if this is the newest live mark; any other is refused."),
    ] = None,
    json: Json = False,
) -> None:
    """Quarantine the candidates of the newest mark that pass the gate; delete what is due."""
    from lastgood.flows.sweeping import approval
    from lastgood.flows.sweeping import sweep as flow

    if approve and (not because or dry_run):
        raise InvalidInput(where="--approve", reason="say --because WHY, and not with --dry-run")
    if not approve and (because or digest):
        raise InvalidInput(where="--because", reason="it belongs to --approve")
    with services() as opened:
        if dry_run:
            shown = flow.dry_run(opened.catalog, project, mark_id)
            if json:
                print_json(shown.to_json())
            else:
                say(str(shown))
            return
        if approve:
            approval.approve_now(
                opened.catalog, project, actor=actor(), because=str(because), digest=digest
            )
        told = flow.run(opened.catalog, opened.stores, project, actor(), mark_id=mark_id)
    _print_summary(told, json)
    end_in_part(told["failed"])
    if told["stop"]:
        answer_no()


def cleanup(project: ProjectName, json: Json = False) -> None:
    """Abort uploads that nobody continues, until nothing of them is left."""
    from lastgood.flows.cleaning import cleanup as flow

    with services() as opened:
        told = flow.run(opened.catalog, opened.stores, project, actor())
    _print_summary(told, json)
    end_in_part(told["failed"])


def reconcile(
    project: ProjectName,
    since: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Else a day before --to.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="INSTANT", help="Else now.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where the files go.")] = None,
    json: Json = False,
) -> None:
    """Explain every byte of a project's stores, write the report; exit with 1 if a check failed."""
    from lastgood.flows.reconciliation import reconcile as flow

    with services() as opened:
        now = _now(opened)
        end = typed_instant(to, "--to") or now
        if end > now:
            raise InvalidInput(where="--to", reason="it has not passed yet")
        start = typed_instant(since, "--from") or end - timedelta(days=1)
        if start >= end:
            raise InvalidInput(where="--from", reason="the window ends before it begins")
        report_dir = report_folder(folder)
        with steps() as shown:
            told = flow.run(
                opened.catalog,
                opened.stores,
                project,
                window=(start, end),
                report_dir=report_dir,
                actor=actor(),
                progress=lambda phase, done: shown.reach(phase, done),
            )
    if json:
        print_json(told)
    else:
        for one in told["reports"]:
            say(f"report {one['report_id']} of {one['store']} {_word(one)}")
            say(f"  {one['html']}")
            if one["failed_of_store"]:
                failed = ", ".join(one["failed_of_store"])
                say(
                    f"  all of {one['store']}: {failed} failed; {one['store_owner']} answers for it"
                )
            if damaged := _validations(one):
                say(f"  {damaged}")
        for reason in told["not_deleted"]:
            say(f"not deleted: {reason}")
    if not told["passed"]:
        answer_no()
    end_in_part(told["not_deleted"])


def _validations(report: Mapping[str, Any]) -> str:
    """What becomes of damaged copies of which nothing was known; empty where there are none."""
    if not report["validations_asked"]:
        return ""
    asked = f"{counted(report['validations_asked'], 'damaged copy', 'damaged copies')} to validate"
    left = report["validations_left"]
    return f"{asked}; {left} more wait for the next inventory" if left else asked


def _word(report: Mapping[str, Any]) -> str:
    if report["passed"]:
        return "passed"
    first = report["first_failed"]
    return f"failed, first {first['name']} of {first['owner']}: {', '.join(report['failed'])}"


def _now(opened: Services) -> datetime:
    with opened.catalog.transaction() as tx:
        return history.now(tx).astimezone(UTC)


def _print_summary(told: Any, as_document: bool) -> None:
    """What a flow answers, as it is, or one line for each number and for each reason."""
    if as_document:
        print_json(told)
        return
    for name, value in dict(told).items():
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for key, item in items:
                say(f"  {name.replace('_', ' ')}: {key}: {item}")
        elif value is not None:
            say(f"{name.replace('_', ' ')}: {value}")
