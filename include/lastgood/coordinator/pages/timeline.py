"""The page of a stage: its checkpoints in time, with what keeps each and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.views import operator_views
from lastgood.catalog.views.operator_views import StageView
from lastgood.coordinator.operators.context import Reader
from lastgood.coordinator.pages.rendering import PAGE_ROWS, PageRoute, Rows, Skip, page
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound
from lastgood.flows.retention import stage_timeline
from lastgood.flows.retention.stage_timeline import Entry
from lastgood.reports import charts

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the chart: the checkpoints that have something in common."""

    name: str
    count: int
    chart: Markup


@router.get("/checkpoints/{project}/{workload}/{stage}")
def checkpoints_page(
    request: Request,
    operator: Reader,
    project: str,
    workload: str,
    stage: str,
    skip: Skip = 0,
) -> HTMLResponse:
    """The checkpoints of a stage, the newest first."""
    services = services_of(request)
    with services.catalog.transaction() as tx:
        now = history.now(tx)
        known = _stage(tx, project, workload, stage)
    found = stage_timeline.newest(services.catalog, known, limit=PAGE_ROWS + 1, skip=skip)
    entries = Rows.found(found, skip)
    return page(
        request,
        operator,
        "checkpoints.html",
        stage=known,
        entries=entries.rows,
        shown=entries,
        lanes=_lanes(entries.rows),
        now=now,
        skip=skip,
    )


def _stage(tx: Transaction, project: str, workload: str, stage: str) -> StageView:
    for one in operator_views.stages(tx, project):
        if (one.workload, one.stage) == (workload, stage):
            return one
    raise NotFound(what="stage", name=f"{project}/{workload}/{stage}")


def _lanes(entries: Sequence[Entry]) -> list[Lane]:
    """All checkpoints by their state, then a lane for each role and whatever else keeps some, the
    one that keeps most recently first, and last what leaves."""
    if not entries:
        return []
    names: dict[str, list[Entry]] = {"all": list(entries)}
    for entry in entries:
        for name in ["leaving"] if entry.standing.leaving else entry.standing.names:
            names.setdefault(name, []).append(entry)
    if "leaving" in names:
        names["leaving"] = names.pop("leaving")
    instants = [entry.checkpoint.committed_at for entry in entries]
    return [_lane(name, held, (min(instants), max(instants))) for name, held in names.items()]


def _lane(name: str, entries: Sequence[Entry], span: charts.Span) -> Lane:
    points = []
    for entry in reversed(entries):
        one = entry.checkpoint
        state = f"corrupt at-{entry.state}" if entry.is_corrupt else entry.state
        kind = {"all": state, "leaving": "leaving", "hold": "held"}.get(name, "kept")
        points.append((one.committed_at, kind, f"{one.generation}.{one.sequence}: {_words(entry)}"))
    listed = ", ".join(f"{one.checkpoint.generation}.{one.checkpoint.sequence}" for one in entries)
    return Lane(name, len(entries), charts.lane(points, span, f"{name}: {listed}"))


def _words(entry: Entry) -> str:
    return f"{entry.state}, corrupt" if entry.is_corrupt else entry.state
