"""Holds: placed and released by operators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import Hold, NewHold, Selector
from lastgood.catalog.settings import projects
from lastgood.coordinator.operators.context import (
    Because,
    Changer,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.flows.keeping import hold as hold_flow
from lastgood.flows.keeping import release as release_flow
from lastgood.rules.names import CheckpointId, check_name

router = APIRouter(tags=["holds"])

Kind = Literal["incident", "legal", "research", "milestone"]
Word = Annotated[str, Field(min_length=1, max_length=200)]


class SelectorBody(BaseModel):
    """Which checkpoints a hold takes; what is absent does not restrict."""

    model_config = ConfigDict(extra="forbid")

    workload: Word | None = None
    stage: Word | None = None
    step_from: int | None = Field(default=None, ge=0)
    step_to: int | None = Field(default=None, ge=0)
    committed_from: AwareDatetime | None = None
    committed_to: AwareDatetime | None = None
    metric: Word | None = None
    metric_from: float | None = None
    metric_to: float | None = None


class HoldBody(BaseModel):
    """A hold on one checkpoint, or by selector on all that it takes, now and later."""

    model_config = ConfigDict(extra="forbid")

    project: Word
    kind: Kind
    owner: Word
    reason: Because
    checkpoint: Annotated[str, Field(max_length=300)] | None = None
    selector: SelectorBody | None = None
    expires_at: AwareDatetime | None = None


def new_hold(
    kind: Kind,
    owner: str,
    reason: str,
    placed_by: str,
    expires_at: datetime | None = None,
    selector: SelectorBody | None = None,
) -> NewHold:
    """A hold to be placed, from what a form or a body said."""
    chosen = None if selector is None else Selector(**selector.model_dump())
    return NewHold(kind, owner, reason, placed_by, expires_at, chosen)


@router.get("/holds")
def list_holds(
    request: Request, _: Reader, project: ProjectFilter = None, ended: bool = False
) -> JSONResponse:
    """Standing holds, or with `ended` every hold that ever was, the oldest first."""
    with services_of(request).catalog.transaction() as tx:
        read = holds.everything if ended else holds.standing
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found: list[Hold] = [one for name in names for one in read(tx, name)]
    return answer({"holds": found})


@router.post("/holds", status_code=201)
def place_hold(request: Request, operator: Changer, body: HoldBody) -> JSONResponse:
    """Place a hold. It stands once this answers; a quarantined copy that it takes is taken back."""
    services = services_of(request)
    project = check_name(body.project, "project")
    checkpoint = None
    if body.checkpoint is not None:
        checkpoint = CheckpointId.parse(body.checkpoint, project=project)
    hold = new_hold(
        body.kind, body.owner, body.reason, operator.actor, body.expires_at, body.selector
    )
    placed = hold_flow.place(services.catalog, services.stores, project, hold, checkpoint)
    with services.catalog.transaction() as tx:
        stands = holds.get(tx, project, placed.hold_id)
    told = {"hold": stands, "copies_taken_back": placed.undone}
    return answer(told | ({"warning": placed.warning} if placed.warning else {}), 201)


@router.delete("/holds/{project}/{hold}")
def release_hold(
    request: Request,
    operator: Changer,
    project: str,
    hold: UUID,
    because: Annotated[str, Query(min_length=1, max_length=1000)],
) -> JSONResponse:
    """End a hold for good."""
    services = services_of(request)
    ended = release_flow.release(
        services.catalog, services.stores, project, hold, because=because, actor=operator.actor
    )
    return answer({"hold": ended})
