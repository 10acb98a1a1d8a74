"""Bursts of commits become findings, with an owner and a deadline as all others have."""

from __future__ import annotations

from datetime import timedelta

from lastgood.catalog import history, locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import commit_times
from lastgood.catalog.reconciliation import findings
from lastgood.catalog.reconciliation.findings import Sighting
from lastgood.catalog.settings import projects
from lastgood.rules import bursts

CAUSE = "burst of commits"
DAYS = 7
"""How long a burst is told, unless it is explained."""


def note(catalog: Catalog, project: str, actor: str) -> int:
    """Open a finding for each stage of a project that has had a burst; answers how many have."""
    number = 0
    with catalog.transaction() as tx:
        configured = projects.get(tx, project)
        for store in projects.stores_of(tx, project):
            seen = sightings(tx, project, store)
            number += len(seen)
            if seen:
                locks.store_capacity(tx, store)
                findings.note(
                    tx,
                    project,
                    store,
                    seen,
                    owners=configured.finding_owners,
                    deadline=configured.finding_deadline,
                    actor=actor,
                    at=history.now(tx),
                )
    return number


def sightings(tx: Transaction, project: str, store: str) -> list[Sighting]:
    """The bursts of a project in a store within the last days, one for each stage."""
    since = history.now(tx) - timedelta(days=DAYS)
    found = []
    for stage, commits in commit_times.recent(tx, project, store, days=DAYS):
        burst = bursts.find(commits, since)
        if burst is not None:
            found.append(
                Sighting(
                    cause=CAUSE,
                    key_range=f"{stage.workload}/{stage.stage}",
                    size_bytes=burst.size_bytes,
                    objects=burst.number,
                    samples=[{"key": str(stage), "bytes": burst.size_bytes, "detail": str(burst)}],
                )
            )
    return found
