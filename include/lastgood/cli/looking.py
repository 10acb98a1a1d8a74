"""Commands that look: status, stages, checkpoints, show, why, receipts, marks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from lastgood.catalog.views import operator_records, operator_views
from lastgood.cli.exits import answer_no
from lastgood.cli.opening import require_known, services
from lastgood.cli.output import Json, Project, cut, print_json, print_table, say, say_more
from lastgood.errors import NotFound
from lastgood.flows.as_json import as_json
from lastgood.reports.words import human_bytes, instant, lasting
from lastgood.rules.names import CheckpointId, StageId
from lastgood.rules.quantities import counted

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="project/workload/stage/generation.sequence, as in a/b/c/3.14"
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="Show at most so many.")]


def status(
    project: Project = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if anything wants attention.")
    ] = False,
    json: Json = False,
) -> None:
    """How everything stands, and what wants attention."""
    from lastgood.flows.overview import overview

    with services() as opened:
        found = overview(opened.catalog, opened.stores, project)
    if json:
        print_json(found)
    else:
        rows = [
            [one.project, one.store, *_counts(one.counts), one.findings, _report(one.report)]
            for one in found.stores
        ]
        states = [">committed", ">validating", ">failed", ">quarantined", ">incomplete"]
        headers = ["project", "store", *states, ">findings", "last report"]
        print_table(headers, rows, "No project is configured: run `lastgood apply`.")
        _print_recovery(found.recovery)
        for alert in found.alerts:
            say(f"! {alert}")
        if not found.alerts:
            say("Nothing wants attention.")
    if check and found.alerts:
        answer_no()


def _print_recovery(found: Any) -> None:
    if found:
        rows = [
            [one.project, one.workload_class, *_spread(one.restores), *_spread(one.gaps)]
            for one in found
        ]
        measured = [">restores", ">p50", ">p95", ">gaps", ">gap p50", ">gap p95"]
        print_table(["project", "class", *measured], rows, "")


def _spread(spread: Any) -> list[str]:
    if spread is None:
        return ["0", "", ""]
    return [str(spread.number), lasting(spread.p50), lasting(spread.p95)]


def _counts(counts: Any) -> list[str]:
    return [f"{number} ({human_bytes(size)})" for number, size in counts.values()]


def _report(report: Any) -> str:
    if report is None:
        return "never"
    return f"{report.report_id} {'passed' if report.passed else 'failed'}"


def stages(project: Project = None, json: Json = False) -> None:
    """Stages with their writer and latest checkpoint."""
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, project)
        found = operator_views.stages(tx, project)
    if json:
        print_json({"stages": found})
        return
    rows = [
        [
            f"{one.project}/{one.workload}/{one.stage}",
            one.generation,
            one.holder if one.active else "nobody",
            one.latest or "none",
            one.present,
            human_bytes(one.present_bytes),
            "blocked" if one.blocked_by else "",
        ]
        for one in found
    ]
    headers = ["stage", ">generation", "writer", "latest", ">present", ">size", "restores"]
    print_table(headers, rows, "No stage yet.")


def checkpoints(
    stage: Annotated[
        str | None, typer.Argument(metavar="STAGE", help="project/workload/stage")
    ] = None,
    project: Project = None,
    state: Annotated[
        Literal["present", "quarantined", "deleting", "deleted", "lost"] | None,
        typer.Option(help="Of a copy: present, quarantined, deleting, deleted or lost."),
    ] = None,
    limit: Limit = 200,
    json: Json = False,
) -> None:
    """Checkpoints, the newest of each stage first."""
    name = None if stage is None else StageId.parse(stage, project=project)
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, name.project if name else project)
        known = operator_views.checkpoints(
            tx,
            project=name.project if name else project,
            workload=name.workload if name else None,
            stage=name.stage if name else None,
            state=state,
            limit=limit + 1,
        )
    found, more = cut(known, limit)
    if json:
        print_json({"checkpoints": found, "more": more})
        return
    rows = [
        [
            one.checkpoint,
            one.step,
            human_bytes(one.bytes),
            ", ".join(f"{copy['state']} in {copy['store']}" for copy in one.copies),
            ", ".join(f"{level} {verdict}" for level, verdict in one.verdicts.items()) or "never",
            one.holds or "",
            instant(one.committed_at),
            "latest" if one.is_latest else "",
        ]
        for one in found
    ]
    headers = ["checkpoint", ">step", ">size", "copies", "validated", ">holds", "committed", ""]
    print_table(headers, rows, "No checkpoint.")
    say_more(more)


def show(checkpoint: Checkpoint, json: Json = False) -> None:
    """One checkpoint with its copies, receipts and objects."""
    name = CheckpointId.parse(checkpoint)
    with services() as opened, opened.catalog.transaction() as tx:
        found = operator_views.checkpoint(tx, name)
        if found is None:
            raise NotFound(what="checkpoint", name=str(name))
        receipts = operator_records.receipts(tx, checkpoint=name)
        objects = operator_views.objects(tx, name)
    if json:
        document = {**as_json(found), "receipts": receipts, "objects_listed": objects}
        print_json(document)
        return
    say(f"{found.checkpoint}{'  (latest)' if found.is_latest else ''}")
    say(f"  step {found.step}, {human_bytes(found.bytes)} in {counted(found.objects, 'object')}")
    say(f"  committed {instant(found.committed_at)}, manifest {found.manifest}")
    for copy in found.copies:
        say(f"  {copy['state']} in {copy['store']} since {instant(copy['state_at'])}")
    for metric, value in found.metrics.items():
        say(f"  {metric} {value}")
    rows = [[one.level, one.verdict, instant(one.recorded_at), one.reason] for one in receipts]
    print_table(["level", "verdict", "when", "reason"], rows, "  No receipt yet.")
    listed = [[one["path"], one["size_bytes"], one["sha256"]] for one in objects]
    print_table(["path", ">bytes", "sha256"], listed, "  No object is listed.")


def why(checkpoint: Checkpoint, json: Json = False) -> None:
    """Why a checkpoint is kept: each reason, and each of the gate's facts with its evidence."""
    from lastgood.flows.retention.why import why as explain

    with services() as opened:
        found = explain(opened.catalog, opened.stores, CheckpointId.parse(checkpoint)).to_json()
    if json:
        print_json(found)
        return
    override = f" with its override for {found['override']}" if found.get("override") else ""
    say(f"{found['checkpoint']}, by policy {found['policy']}{override}:")
    for reason in found["kept"]:
        say(f"  kept ({reason['kind']}): {reason['text']}")
    if found["leaving"]:
        say(f"  leaves ({found['leaving']['role']}): {found['leaving']['text']}")
    for copy in found["copies"]:
        say(f"in {copy['store']}: {copy['state']} since {instant(copy['state_at'])}")
        if copy["gate"]:
            facts = copy["gate"]["facts"]
            rows = [[fact, told["truth"], told["evidence"]] for fact, told in facts.items()]
            print_table(["may it go?", "is", "evidence"], rows, "")
        if copy["tombstone"]:
            gone = copy["tombstone"]["proved_at"]
            say(f"  deleted under mark {copy['tombstone']['mark']}, proven gone {instant(gone)}")


def receipts(
    checkpoint: Annotated[str | None, typer.Argument(metavar="CHECKPOINT")] = None,
    project: Project = None,
    verdict: Annotated[
        Literal["pass", "fail", "inconclusive"] | None,
        typer.Option(help="pass, fail or inconclusive"),
    ] = None,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Receipts, the newest first."""
    name = None if checkpoint is None else CheckpointId.parse(checkpoint, project=project)
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, name.project if name else project)
        known = operator_records.receipts(
            tx, project=project, checkpoint=name, verdict=verdict, limit=limit + 1
        )
    found, more = cut(known, limit)
    if json:
        print_json({"receipts": found, "more": more})
        return
    rows = [
        [
            one.verdict,
            one.level,
            one.checkpoint,
            one.store,
            instant(one.recorded_at),
            human_bytes(one.bytes_read),
            one.reason,
        ]
        for one in found
    ]
    headers = ["verdict", "level", "checkpoint", "store", "when", ">read", "reason"]
    print_table(headers, rows, "No receipt yet.")
    say_more(more)


def marks(project: Project = None, limit: Limit = 20, json: Json = False) -> None:
    """Marks, the newest first."""
    with services() as opened, opened.catalog.transaction() as tx:
        require_known(tx, project)
        known = operator_records.marks(tx, project, limit=limit + 1)
    found, more = cut(known, limit)
    if json:
        print_json({"marks": found, "more": more})
        return
    rows = [
        [
            one.mark_id,
            one.project,
            one.kind,
            instant(one.at),
            f"{one.policy} {one.policy_version}",
            one.candidates,
            human_bytes(one.candidate_bytes),
            one.digest[:12],
        ]
        for one in found
    ]
    headers = [">mark", "project", "kind", "as of", "policy", ">candidates", ">size", "digest"]
    print_table(headers, rows, "No mark yet.")
    say_more(more)
