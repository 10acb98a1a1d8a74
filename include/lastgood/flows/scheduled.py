"""What a scheduler runs: each function is one task, opens what it needs, and returns what is small.

Each of them may be repeated, and may be killed at any point: the next run goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from lastgood.catalog import projects
from lastgood.catalog.connect import open_catalog
from lastgood.flows.services import Services

_BATCH = 1000
"""Tasks of one mapping; Airflow allows 1,024. The rest is for the next run."""


@contextmanager
def _services() -> Iterator[Services]:
    with open_catalog() as catalog:
        yield Services.of(catalog)


def project_names() -> list[str]:
    """Every project, by name."""
    with open_catalog() as catalog, catalog.transaction() as tx:
        return projects.names(tx)


def pending_commits() -> list[str]:
    """The sealed attempts whose verification was left to the workers."""
    from lastgood.flows import verify

    with _services() as services:
        return [str(attempt) for attempt in verify.pending(services.catalog)[:_BATCH]]


def finish_commit(attempt: str) -> Mapping[str, Any]:
    """Take one sealed attempt to its end: committed, or failed with every bad object named."""
    from uuid import UUID

    from lastgood.flows import commit

    with _services() as services:
        return commit.finish(services.catalog, services.stores, UUID(attempt))


def due_validations() -> list[dict[str, Any]]:
    """The copies whose receipt is missing or too old: project and copy of each."""
    from lastgood.flows import validate

    with _services() as services:
        return [
            {"project": project, "copy_id": copy_id}
            for project in project_names()
            for copy_id in validate.due(services.catalog, project)
        ][:_BATCH]


def validate_copy(project: str, copy_id: int) -> Mapping[str, Any]:
    """Validate one copy and write its receipt."""
    from lastgood.flows import validate

    with _services() as services:
        return validate.run(services.catalog, services.stores, copy_id, level="checksum")


def mark(project: str) -> Mapping[str, Any]:
    """Take the live mark of a project, the only kind that a sweep follows."""
    from lastgood.flows import mark

    with _services() as services:
        return mark.run(services.catalog, project)


def replay_mark(project: str, at: datetime) -> Mapping[str, Any]:
    """Decide again what was decided at an instant. No sweep follows such a mark."""
    from lastgood.flows import mark

    with _services() as services:
        return mark.run(services.catalog, project, at=at, kind="replay")


def sweep(project: str) -> Mapping[str, Any]:
    """Quarantine the candidates of the live mark that pass the gate, and delete what is due."""
    from lastgood.flows import sweep

    with _services() as services:
        return sweep.run(services.catalog, services.stores, project, actor="dag:sweep_quarantine")


def clean_uploads(project: str) -> Mapping[str, Any]:
    """Abort uploads that nobody continues, until the store holds nothing of them."""
    from lastgood.flows import cleanup

    with _services() as services:
        return cleanup.run(
            services.catalog, services.stores, project, actor="dag:clean_incomplete_uploads"
        )


def reconcile(project: str, start: datetime, end: datetime) -> Mapping[str, Any]:
    """Write the report of one window: the byte equation, its checks, its findings."""
    from lastgood.flows import reconcile

    with _services() as services:
        return reconcile.run(
            services.catalog,
            services.stores,
            project,
            window=(start, end),
            report_dir=report_folder(),
            actor="dag:reconcile_inventory",
        )


def report_folder() -> Path:
    """Where reports go: LASTGOOD_REPORTS, else `reports` below LASTGOOD_VAR."""
    named = os.environ.get("LASTGOOD_REPORTS", "").strip()
    return Path(named) if named else Path(os.environ.get("LASTGOOD_VAR", "var")) / "reports"
