"""How incomplete uploads stand: what operators read of them, in one form for all of its readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.cleaning import incomplete_uploads, lifecycle_checks
from lastgood.catalog.cleaning.incomplete_uploads import Entry
from lastgood.catalog.cleaning.lifecycle_checks import LifecycleCheck
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import uploads
from lastgood.catalog.settings import projects
from lastgood.catalog.views import operator_records
from lastgood.catalog.views.operator_records import UploadView
from lastgood.errors import CatalogSetup, NotFound
from lastgood.flows.policies import policy_of
from lastgood.rules.upload_threshold import threshold


@dataclass(frozen=True, slots=True)
class StageThreshold:
    """From which age the uploads of a stage may be given up, and where that comes from."""

    stage: str
    workload_class: str
    age: timedelta
    because: str


@dataclass(frozen=True, slots=True)
class UploadOverview:
    """At `at` (UTC): attempts that are not committed, the inventory of incomplete uploads, how
    many uploads of strangers each store holds, the thresholds, and the buckets' own rules."""

    at: datetime
    attempts: Sequence[UploadView]
    uploads: Sequence[Entry]
    foreign: Mapping[str, int]
    thresholds: Sequence[StageThreshold]
    lifecycle: Mapping[str, LifecycleCheck]


def upload_overview(
    tx: Transaction,
    project: str | None = None,
    *,
    ended: bool = False,
    limit: int = 200,
    skip: int = 0,
) -> UploadOverview:
    """How it stands for a project, or for all of them, after the `skip` first of each kind; with
    `ended` also uploads that are gone.
    Raises NotFound for an unknown project."""
    names = projects.names(tx) if project is None else [projects.get(tx, project).name]
    stores = {store for name in names for store in projects.stores_of(tx, name)}
    return UploadOverview(
        at=history.now(tx),
        attempts=operator_records.uploads(tx, project, limit=limit, skip=skip),
        uploads=incomplete_uploads.shown(tx, project, ended=ended, limit=limit, skip=skip),
        foreign={
            store: number
            for store, number in incomplete_uploads.foreign(tx).items()
            if store in stores
        },
        thresholds=[one for name in names for one in thresholds(tx, name)],
        lifecycle={
            store: check for store, check in lifecycle_checks.newest(tx).items() if store in stores
        },
    )


def thresholds(tx: Transaction, project: str) -> list[StageThreshold]:
    """Of every stage of a project; none where no policy is in force."""
    try:
        policy = policy_of(tx, project)
    except CatalogSetup:
        return []
    measured = uploads.measured(tx, project)
    found = []
    for workload, stage, name in uploads.classes(tx, project):
        rules = policy.for_stage(workload, stage).uploads
        told = threshold(rules, name, measured.get(name))
        found.append(StageThreshold(f"{project}/{workload}/{stage}", name, told.age, told.because))
    return found


def upload_history(tx: Transaction, project: str, entry_id: int) -> list[Mapping[str, Any]]:
    """The states and tries of one upload of the inventory. Raises NotFound."""
    found = incomplete_uploads.history(tx, project, entry_id)
    if not found:
        raise NotFound(what=f"incomplete upload of {project}", name=str(entry_id))
    return list(found)
