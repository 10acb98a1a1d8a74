"""How everything stands: what an operator reads first, on the page and in `lastgood status`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lastgood.catalog import clock, history
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.keeping import retirements
from lastgood.catalog.reconciliation import quality_results, reports
from lastgood.catalog.reconciliation.reports import ReportSummary
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.catalog.validation import drills, recovery
from lastgood.catalog.validation.recovery import Recovery
from lastgood.catalog.views import measurements, operator_records, operator_views
from lastgood.catalog.views.operator_records import ProjectStore
from lastgood.catalog.views.operator_views import StageView
from lastgood.errors import CatalogSetup
from lastgood.flows import control_keys
from lastgood.flows.capacity import pressure
from lastgood.flows.cleaning import lifecycle
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.policies import policy_of
from lastgood.reports.checks import STORE
from lastgood.reports.words import human_bytes, lasting
from lastgood.rules.capacity import NO_BOUND
from lastgood.rules.policy import Policy
from lastgood.rules.policy_sections import CapacityPolicy
from lastgood.rules.quantities import counted, instant_text
from lastgood.stores.folder_questions import FolderHangs, answered_in
from lastgood.stores.hurry import hurried
from lastgood.stores.open import Stores, folder_of

REPORT_AGE = timedelta(hours=26)
"""A report older than this is called old: one a day, and two hours for it to run."""


@dataclass(frozen=True, slots=True)
class StoreOverview:
    """A project in one store. `counts` has (number, bytes) by state; `capacity` is as in a
    report."""

    project: str
    store: str
    owner: str
    kind: str
    counts: Mapping[str, tuple[int, int]]
    capacity: Mapping[str, Any]
    report: ReportSummary | None
    findings: int
    overdue: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at `at` (UTC). `alerts` are what wants somebody's attention, in words."""

    at: datetime
    stores: Sequence[StoreOverview]
    stages: Sequence[StageView]
    alerts: Sequence[str]
    recovery: Sequence[Recovery] = ()


def overview(catalog: Catalog, stores: Stores, project: str | None = None) -> Overview:
    """How a project stands, or all of them. Raises NotFound for an unknown one."""
    with catalog.transaction() as tx:
        if project is not None:
            projects.get(tx, project)
        now = history.now(tx)
        used = operator_records.project_stores(tx, project)
        open_findings = measurements.open_findings(tx)
        found = [_store(tx, one, open_findings) for one in used]
        stages = operator_views.stages(tx, project)
        recovered = recovery.measured(tx, project)
        alerts = [
            *_clock_alerts(tx),
            *(alert for one in found for alert in _store_alerts(one, now)),
            *_totals_alerts(tx, {one.store for one in used}),
            *_stage_alerts(tx, stages),
            *_retirement_alerts(tx, project, now),
            *(alert for one in recovered for alert in _recovery_alerts(tx, one, stages)),
            *lifecycle.alerts(tx, project),
            *_drill_alerts(tx, project),
        ]
        places, catalog_folder = projects.stores(tx), _data_directory(tx)
    refusals = list(_guard_alerts(catalog, stores, project))
    disks = _disk_alerts(places, catalog_folder)
    return Overview(now, found, stages, [*refusals, *alerts, *disks], recovered)


def _guard_alerts(catalog: Catalog, stores: Stores, project: str | None) -> Iterator[str]:
    """Why everything is refused, if it is, by each store: an old dump looks healthy in its own
    rows, and so does a store that does not answer."""
    yield from (str(refusal) for refusal in control_keys.refusals(catalog, stores, project))


def _store(
    tx: Transaction, one: ProjectStore, open_findings: Mapping[tuple[str, str, bool], int]
) -> StoreOverview:
    overdue, due = (
        sum(open_findings.get((owner, one.store, late), 0) for owner in (one.project, SHARED))
        for late in (True, False)
    )
    return StoreOverview(
        project=one.project,
        store=one.store,
        owner=one.owner,
        kind=one.kind,
        counts=reports.counts(tx, one.project, one.store),
        capacity=_capacity(tx, one),
        report=reports.newest(tx, one.project, one.store),
        findings=overdue + due,
        overdue=overdue,
    )


def _capacity(tx: Transaction, one: ProjectStore) -> dict[str, Any]:
    """As a report has it, from the counters alone and without their lock."""
    used = capacity.use(tx, one.project, one.store)
    policy = _policy(tx, one.project)
    limits = CapacityPolicy(NO_BOUND, NO_BOUND) if policy is None else policy.capacity
    return pressure.standing_in(tx, one.project, one.store, limits, used).standing.to_json()


def _policy(tx: Transaction, project: str) -> Policy | None:
    try:
        return policy_of(tx, project)
    except CatalogSetup:  # a project that was never given a policy
        return None


def _clock_alerts(tx: Transaction) -> Iterator[str]:
    for jump in clock.unaccepted(tx):
        yield (
            f"The catalog's clock jumped by {jump.jump_seconds:+.0f} s at"
            f" {jump.observed_at:%F %T} UTC: everything destructive waits for"
            f" `lastgood clock accept {jump.jump_id} --because WHY`"
        )


def _store_alerts(one: StoreOverview, now: datetime) -> Iterator[str]:
    where = f"{one.project} in {one.store}"
    if one.report is None:
        yield f"{where}: never reconciled"
    elif now - one.report.recorded_at > REPORT_AGE:
        yield f"{where}: last reconciled {lasting(now - one.report.recorded_at)} ago"
    if one.report is not None and not one.report.passed:
        failed = counted(one.report.failed_checks, "check")
        yield f"{where}: report {one.report.report_id} failed {failed}"
    if one.overdue:
        are = "is" if one.overdue == 1 else "are"
        yield f"{where}: {counted(one.overdue, 'finding')} {are} overdue"
    if one.capacity["state"] != "open":
        see = f"see `lastgood capacity --project {one.project}`"
        yield f"{where}: {_of_capacity(one.capacity)}; {see}"


def _totals_alerts(tx: Transaction, stores: Collection[str]) -> Iterator[str]:
    for store, is_right in quality_results.of_stores(tx, STORE).items():
        if store in stores and not is_right:
            yield f"{store}: the totals of the whole store do not agree, see its last report"


def _of_capacity(found: Mapping[str, Any]) -> str:
    claimed = human_bytes(found["usage_bytes"] + found["in_flight_bytes"])
    soft, hard = human_bytes(found["soft_bytes"]), human_bytes(found["hard_bytes"])
    if found["state"] == "soft":
        return f"{claimed} claimed, above the soft limit of {soft}: collection is sped up"
    if found["hard_bytes"] < found["usage_bytes"] + found["in_flight_bytes"]:
        return f"{claimed} claimed, above the hard limit of {hard}: nothing is admitted"
    return (
        f"{claimed} claimed, and collection cannot make the room for the next saves below {hard}:"
        " new jobs are refused"
    )


def _stage_alerts(tx: Transaction, stages: Sequence[StageView]) -> Iterator[str]:
    for stage in stages:
        if stage.blocked_by is not None:
            name = f"{stage.project}/{stage.workload}/{stage.stage}"
            yield f"{name}: restores are blocked by receipt {stage.blocked_by[:12]}"
    known = {(stage.project, stage.workload, stage.stage) for stage in stages}
    for age in measurements.stage_ages(tx):
        if (age.project, age.workload, age.stage) not in known:
            continue
        policy = _policy(tx, age.project)
        if policy is None:
            continue
        rpo = policy.for_stage(age.workload, age.stage).objectives.rpo
        if age.seconds > rpo.total_seconds():
            yield (
                f"{age.project}/{age.workload}/{age.stage}: {lasting(age.seconds)} since its last"
                f" commit, above the objective of {lasting(rpo)}"
            )


def _retirement_alerts(tx: Transaction, project: str | None, now: datetime) -> Iterator[str]:
    """What a second operator is waited for, and what can still be taken back."""
    for name in projects.names(tx) if project is None else [project]:
        for one in retirements.of_project(tx, name):
            state = one.state(now)
            if state == "waits for approval":
                how = f"`lastgood retire approve {one.retirement_id}`"
                yield f"{one.scope}: its retirement, asked by {one.asked_by}, waits for {how}"
            elif state == "in grace" and one.effective_at is not None:
                how = f"`lastgood retire undo {one.retirement_id}`"
                yield (
                    f"{one.scope}: retired from {instant_text(one.effective_at)} on; {how} takes it"
                    " back until then"
                )


def _recovery_alerts(tx: Transaction, one: Recovery, stages: Sequence[StageView]) -> Iterator[str]:
    """What was measured of a class against the objectives of the policy: the strictest ones that
    any of its stages has."""
    policy = _policy(tx, one.project)
    if policy is None:
        return
    aims = [
        policy.for_stage(stage.workload, stage.stage).objectives
        for stage in stages
        if (stage.project, stage.workload_class) == (one.project, one.workload_class)
    ]
    rto = min((aim.rto for aim in aims), default=policy.objectives.rto)
    rpo = min((aim.rpo for aim in aims), default=policy.objectives.rpo)
    where = f"{one.project}, class {one.workload_class}"
    if one.restores is not None and one.restores.p95 > rto.total_seconds():
        took = lasting(one.restores.p95)
        yield f"{where}: 1 of 20 restores takes {took} or more, the objective is {lasting(rto)}"
    if one.gaps is not None and one.gaps.p95 > rpo.total_seconds():
        apart = lasting(one.gaps.p95)
        objective = lasting(rpo)
        yield f"{where}: 1 of 20 commits comes after {apart} or more, the objective is {objective}"


def _drill_alerts(tx: Transaction, project: str | None) -> Iterator[str]:
    for one in drills.last_failed(tx, project):
        ended = "was cut off" if one.passed is None else "failed"
        yield f"{one.project}: drill {one.drill_id} of {one.recorded_at:%F %T} UTC {ended}"


def _disk_alerts(stores: Sequence[StoreRow], catalog_folder: Path | None) -> Iterator[str]:
    """A full store must not stop the catalog, or nothing could be deleted any more."""
    catalog_device = _device(catalog_folder)
    for store in stores:
        if _shares_the_disk(store, catalog_device):
            yield (
                f"{store.name} lies on the same disk as the catalog's database: when it is full,"
                " nothing can be recorded, so nothing can be deleted"
            )


def _shares_the_disk(store: StoreRow, catalog_device: int | None) -> bool:
    if store.kind == "postgres":
        return not store.config["connection"]
    if store.kind != "file" or catalog_device is None:
        return False
    root = folder_of(store.config["root"])
    try:
        with hurried():
            return answered_in(root, store.name, lambda: _device(root)) == catalog_device
    except FolderHangs:  # which the guard tells
        return False


def _data_directory(tx: Transaction) -> Path | None:
    told = operator_records.data_directory(tx)
    if told is not None:
        return Path(told)
    var = os.environ.get("LASTGOOD_VAR", "").strip()
    embedded = Path(var) / "postgres" if var else None
    return embedded if embedded is not None and embedded.is_dir() else None


def _device(folder: Path | None) -> int | None:
    """The disk of a folder, None where this machine does not show it."""
    try:
        return None if folder is None else folder.stat().st_dev
    except OSError:
        return None
