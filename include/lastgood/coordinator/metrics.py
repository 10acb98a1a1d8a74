"""`/metrics` for Prometheus: what the catalog counts, read at each scrape.

It names projects, so it is for operators, or for a scraper whose bearer token's SHA-256 stands in
the environment variable LASTGOOD_METRICS_TOKEN_SHA256."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lastgood.catalog import measurements, recovery
from lastgood.catalog.db import Catalog, Transaction
from lastgood.coordinator.auth import guard
from lastgood.coordinator.operator_auth import reading
from lastgood.coordinator.services import services_of

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
            yield from _ages(tx)
            yield from _explained(tx)
            yield from _attention(tx)
            yield from _recovery(tx)


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


def _ages(tx: Transaction) -> Iterator[Metric]:
    oldest = _gauge(
        "oldest_incomplete_seconds",
        "Since the oldest incomplete upload lost its lease",
        ["project"],
    )
    for project, seconds in measurements.oldest_incomplete(tx).items():
        oldest.add_metric([project], seconds)
    yield oldest
    exposed = _gauge(
        "rpo_age_seconds",
        "Since the newest commit of a stage that is being written: what a crash now would lose",
        ["project", "workload", "stage"],
    )
    for one in measurements.stage_ages(tx):
        exposed.add_metric([one.project, one.workload, one.stage], one.seconds)
    yield exposed


def _explained(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "store"]
    total = _gauge("backend_bytes", "The backend's own total at the last report", labels)
    unexplained = _gauge("unexplained_bytes", "Unexplained at the last report", labels)
    passed = _gauge("report_passed", "Whether the last report passed its checks", labels)
    age = _gauge("report_age_seconds", "Since the last report", labels)
    for one in measurements.explained(tx):
        where = [one.project, one.store]
        total.add_metric(where, one.backend_bytes)
        unexplained.add_metric(where, one.unexplained_bytes)
        passed.add_metric(where, float(one.passed))
        age.add_metric(where, one.age_seconds)
    yield from (total, unexplained, passed, age)


def _attention(tx: Transaction) -> Iterator[Metric]:
    found = _gauge("findings", "Open findings", ["project", "store", "overdue"])
    for (project, store, overdue), number in sorted(measurements.open_findings(tx).items()):
        found.add_metric([project, store, str(overdue).lower()], number)
    yield found
    blocked = _gauge("blocked_stages", "Stages that may not be restored", ["project"])
    for project, number in sorted(measurements.blocked_stages(tx).items()):
        blocked.add_metric([project], number)
    yield blocked


def _recovery(tx: Transaction) -> Iterator[Metric]:
    labels = ["project", "class", "quantile"]
    restores = _gauge("restore_seconds", "Restore drills that passed, over 30 days", labels)
    gaps = _gauge("commit_gap_seconds", "Between successive commits, over 30 days", labels)
    for one in recovery.measured(tx):
        for family, spread in ((restores, one.restores), (gaps, one.gaps)):
            if spread is not None:
                family.add_metric([one.project, one.workload_class, "0.5"], spread.p50)
                family.add_metric([one.project, one.workload_class, "0.95"], spread.p95)
    yield from (restores, gaps)


def _gauge(name: str, says: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"lastgood_{name}", says, labels=labels)
