"""Versions of policies, what they would keep otherwise, and their promotions. Comparing reads a
whole history and is left to the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from lastgood.catalog.retention import promotions
from lastgood.catalog.settings import projects
from lastgood.coordinator.operators.context import (
    Because,
    Changer,
    Limit,
    ProjectFilter,
    Reader,
    answer,
)
from lastgood.coordinator.services import services_of
from lastgood.errors import InvalidInput
from lastgood.flows.policy_change import promotion
from lastgood.rules.policy import Policy

router = APIRouter(tags=["policies"])
Name = Annotated[str, Field(min_length=1, max_length=80)]


class PolicyBody(BaseModel):
    """A policy's whole document, to be recorded as a version that is not in force."""

    model_config = ConfigDict(extra="forbid")

    project: Name
    document: dict[str, Any]


class PromotionBody(BaseModel):
    """Which version takes force, why, and when (at once, unless it is given)."""

    model_config = ConfigDict(extra="forbid")

    project: Name
    policy: Name
    because: Because
    kind: Literal["promote", "rollback"] = "promote"
    at: datetime | None = None


class ApprovalBody(BaseModel):
    """Why a promotion is approved."""

    model_config = ConfigDict(extra="forbid")

    because: Because


@router.post("/policies")
def record_policy(request: Request, operator: Changer, body: PolicyBody) -> JSONResponse:
    """Record a version without force: 422 for a document that is no policy."""
    policy = Policy.parse(body.document, where="the document")
    version = promotion.record(
        services_of(request).catalog, body.project, policy, actor=operator.actor
    )
    return answer({"policy": version.name, "digest": version.digest}, status_code=201)


@router.get("/policies/differences")
def list_differences(
    request: Request, _: Reader, project: ProjectFilter = None, limit: Limit = 200
) -> JSONResponse:
    """Recorded differences without what they found, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in promotions.differences(tx, name, limit=limit)]
    return answer({"differences": found})


@router.get("/policies/differences/{project}/{difference}")
def show_difference(request: Request, _: Reader, project: str, difference: int) -> JSONResponse:
    """One difference with its curves, losses and first sweep."""
    with services_of(request).catalog.transaction() as tx:
        found = promotions.difference(tx, project, difference)
    return answer({"difference": found.difference_id, **found.document})


@router.get("/policies/promotions")
def list_promotions(request: Request, _: Reader, project: ProjectFilter = None) -> JSONResponse:
    """Promotions and rollbacks, the newest first."""
    with services_of(request).catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        found = [one for name in names for one in promotion.listed(tx, name)]
    return answer({"promotions": found})


@router.post("/policies/promotions")
def ask(request: Request, operator: Changer, body: PromotionBody) -> JSONResponse:
    """Promote or roll back: 409 without a fresh difference."""
    if body.at is not None and body.at.tzinfo is None:
        raise InvalidInput(where="at", reason="give the instant with its zone")
    asked = promotion.promote(
        services_of(request).catalog,
        body.project,
        body.policy,
        because=body.because,
        actor=operator.actor,
        at=body.at,
        kind=body.kind,
    )
    return answer(promotion.to_json(asked), status_code=201)


@router.post("/policies/promotions/{project}/{promotion_id}/approve")
def approve(
    request: Request, operator: Changer, project: str, promotion_id: int, body: ApprovalBody
) -> JSONResponse:
    """Approve what another operator asked for: 403 for who asked."""
    done = promotion.approve(
        services_of(request).catalog,
        project,
        promotion_id,
        because=body.because,
        actor=operator.actor,
    )
    return answer(promotion.to_json(done))
