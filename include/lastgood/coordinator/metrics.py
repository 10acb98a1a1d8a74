"""`/metrics` for Prometheus: what the catalog counts, read at each scrape.

It names projects, so it is for operators, or for a scraper whose bearer token's SHA-256 stands in
the environment variable LASTGOOD_METRICS_TOKEN_SHA256."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lastgood.catalog.cleaning import incomplete_uploads, lifecycle_checks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.reconciliation import finding_alerts, quality_results
from lastgood.catalog.retention import copy_locks
from lastgood.catalog.settings import projects
from lastgood.catalog.validation import recovery
from lastgood.catalog.views import durations, measurements
from lastgood.coordinator.auth import guard
from lastgood.coordinator.operators.auth import reading
from lastgood.coordinator.services import services_of
from lastgood.errors import CatalogSetup
from lastgood.flows.capacity import pressure
from lastgood.flows.cleaning import lifecycle
from lastgood.reports.checks import STORE
from lastgood.rules.capacity import CapacityState

TOKEN_VARIABLE = "LASTGOOD_METRICS_TOKEN_SHA256"
_STATES = ("committed", "validating", "failed", "quarantined", "incomplete")

router = APIRouter(tags=["metrics"])


@guard("operator or metrics token")
async def scraping(request: Request) -> None:
    """Lets in the scraper's token, else whoever may read as an operator."""
    expected = os.environ.get(TOKEN_VARIABLE, "").strip().lower()
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if expected and scheme.lower() == "bearer":
        given = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        if hmac.compare_digest(given, expected):
            return
    await reading(request)


@router.get("/metrics")
def metrics(request: Request, _: Annotated[None, Depends(scraping)]) -> Response:
    """Counts and bytes by state, ages, findings and unexplained bytes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_OfCatalog(services_of(request).catalog))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _OfCatalog(Collector):
    """One scrape: one transaction."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        with self._catalog.transaction() as tx:
            yield from _states(tx)
            yield from _locked(tx)
            yield from _ages(tx)
            yield from _explained(tx)
            yield from _attention(tx)
            yield from _capacity(tx)
            yield from _recovery(tx)
            yield _durations(tx)


def _states(tx: Transaction) -> Iterator[Metric]:
    labels = ["state", "project", "store"]
    number = _gauge("checkpoints", "Checkpoints and attempts by state", labels)
    size = _gauge("bytes", "Their bytes as the catalog has them", labels)
    found = measurements.state_counts(tx)
    known = {(one.state, one.project, one.store): one for one in found}
    for project, store in sorted({(one.project, one.store) for one in found}):
        for state in _STATES:
            one = known.get((state, project, store))
            number.add_metric([state, project, store], one.number if one else 0)
            size.add_metric([state, project, store], one.bytes if one else 0)
    yield number
    yield size


def _locked(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "store"]
    number = _gauge("locked_copies", "Copies that a lock of their store keeps", labels)
    size = _gauge("locked_bytes", "Bytes of their locked versions", labels)
    for where, (copies, size_bytes) in copy_locks.totals(tx).items():
        number.add_metric(where, copies)
        size.add_metric(where, size_bytes)
    yield number
    yield size


def _ages(tx: Transaction) -> Iterator[Metric]:
    oldest = _gauge(
        "oldest_incomplete_seconds",
        "Since the oldest incomplete upload lost its lease",
        ["project"],
    )
    for project, seconds in measurements.oldest_incomplete(tx).items():
        oldest.add_metric([project], seconds)
    yield oldest
    yield from _uploads(tx)
    exposed = _gauge(
        "rpo_age_seconds",
        "Since the newest commit of a stage that is being written: what a crash now would lose",
        ["project", "workload", "stage"],
    )
    for one in measurements.stage_ages(tx):
        exposed.add_metric([one.project, one.workload, one.stage], one.seconds)
    yield exposed


def _uploads(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "store", "state"]
    number = _gauge("incomplete_uploads", "Unfinished uploads that were found and are left", labels)
    size = _gauge("incomplete_upload_bytes", "What their parts hold", labels)
    oldest = _gauge("oldest_incomplete_upload_seconds", "Since the oldest was first seen", labels)
    for one in incomplete_uploads.totals(tx):
        where = [one.project, one.store, one.state]
        number.add_metric(where, one.number)
        size.add_metric(where, one.part_bytes)
        oldest.add_metric(where, one.oldest_seconds)
    foreign = _gauge("foreign_uploads", "Uploads below no project's prefix", ["store"])
    for store, count in incomplete_uploads.foreign(tx).items():
        foreign.add_metric([store], count)
    kept = _gauge("lifecycle_kept", "Whether the bucket's own rule is as it should be", ["store"])
    wrong = lifecycle.complaints(tx)
    for store in lifecycle_checks.newest(tx):
        kept.add_metric([store], float(store not in wrong))
    yield from (number, size, oldest, foreign, kept)


def _explained(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "store"]
    total = _gauge("backend_bytes", "The backend's own total at the last report", labels)
    unexplained = _gauge("unexplained_bytes", "Unexplained at the last report", labels)
    passed = _gauge("report_passed", "Whether the last report passed its checks", labels)
    damaged = _gauge(
        "damaged_copies_left",
        "Damaged copies that count as proven: the last report left them to the next one",
        labels,
    )
    age = _gauge("report_age_seconds", "Since the inventory of the last report ended", labels)
    for one in measurements.explained(tx):
        where = [one.project, one.store]
        total.add_metric(where, one.backend_bytes)
        unexplained.add_metric(where, one.unexplained_bytes)
        passed.add_metric(where, float(one.passed))
        damaged.add_metric(where, one.damaged_left)
        age.add_metric(where, one.age_seconds)
    whole = _gauge("store_passed", "Whether its totals passed in its last report", ["store"])
    for store, is_right in quality_results.of_stores(tx, STORE).items():
        whole.add_metric([store], float(is_right))
    everybodys = _gauge("store_bytes", "The backend's own total of the whole store", ["store"])
    nobodys = _gauge("store_unexplained_bytes", "Unexplained in the whole store", ["store"])
    for each in measurements.store_totals(tx):
        everybodys.add_metric([each.store], each.backend_bytes)
        nobodys.add_metric([each.store], each.unexplained_bytes)
    yield from (total, unexplained, passed, damaged, age, whole, everybodys, nobodys)


def _attention(tx: Transaction) -> Iterator[Metric]:
    found = _gauge("findings", "Open findings", ["project", "store", "overdue"])
    for (project, store, overdue), number in sorted(measurements.open_findings(tx).items()):
        found.add_metric([project, store, str(overdue).lower()], number)
    yield found
    told = CounterMetricFamily(
        "lastgood_finding_alerts",
        "Overdue findings that their owners were told of",
        labels=["project", "notifier"],
    )
    for (project, notifier), number in sorted(finding_alerts.numbers(tx).items()):
        told.add_metric([project, notifier], number)
    yield told
    blocked = _gauge("blocked_stages", "Stages that may not be restored", ["project"])
    for project, number in sorted(measurements.blocked_stages(tx).items()):
        blocked.add_metric([project], number)
    yield blocked


def _capacity(tx: Transaction) -> Iterator[Metric]:
    size = _gauge(
        "capacity_bytes",
        "Use of a store and its watermarks, of the measure that is nearer to its limit",
        ["project", "store", "number"],
    )
    state = _gauge(
        "capacity_state",
        "1 for the state in which a project stands in a store",
        ["project", "store", "state"],
    )
    missing = _gauge(
        "capacity_unreachable",
        "1 where collection cannot make the room that is needed, as last proven",
        ["project", "store"],
    )
    for project in projects.names(tx):
        for one in _standings(tx, project):
            where = [project, one.store]
            for name, value in one.standing.to_json().items():
                if name.endswith("_bytes") and value is not None:
                    size.add_metric([*where, name.removesuffix("_bytes")], value)
            for known in CapacityState:
                state.add_metric([*where, known.value], float(known is one.standing.state))
            missing.add_metric(where, float(one.pressed and one.standing.reaches is False))
    yield from (size, state, missing)


def _standings(tx: Transaction, project: str) -> Sequence[pressure.StoreStanding]:
    try:
        return pressure.look(tx, project)
    except CatalogSetup:  # a project that was never given a policy
        return ()


def _recovery(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "class", "percentile"]
    restores = _gauge("restore_seconds", "Restore drills that passed, over 30 days", labels)
    gaps = _gauge("commit_gap_seconds", "Between successive commits, over 30 days", labels)
    for one in recovery.measured(tx):
        for family, spread in ((restores, one.restores), (gaps, one.gaps)):
            if spread is not None:
                family.add_metric([one.project, one.workload_class, "50"], spread.p50)
                family.add_metric([one.project, one.workload_class, "95"], spread.p95)
    yield from (restores, gaps)


def _durations(tx: Transaction) -> Metric:
    took = _gauge(
        "step_seconds",
        "Commits, validations, deletions and inventories, over 30 days",
        ["step", "where", "percentile"],
    )
    for one in durations.measured(tx):
        took.add_metric([one.step, one.where, "50"], one.p50)
        took.add_metric([one.step, one.where, "95"], one.p95)
    return took


def _gauge(name: str, says: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"lastgood_{name}", says, labels=labels)
