"""The project of a store in which drills write: its own prefix, its own policy, nobody else's
checkpoints."""

from __future__ import annotations

from typing import Any

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.settings.projects import Project
from lastgood.catalog.validation import drills
from lastgood.errors import Conflict
from lastgood.rules.names import StageId
from lastgood.rules.policy import Policy

OWNER = "drill"
PREFIX = "drill-"
NO_SOFT_LIMIT_BYTES = 1 << 40
_NAME_LIMIT = 63
_POLICY: dict[str, Any] = {
    "name": "drill",
    "timezone": "UTC",
    "roles": {"hot": {"keep": "newest", "count": 1, "leaves_when": "newer_restored"}},
    "gate": {"level": "checksum", "receipt_max_age": "1d"},
    "quarantine": {"grace": "1s", "approve_above": None, "share_guard": "100%"},
    "uploads": {"abort_after": "1s", "margin_over_p99": 1, "lifecycle_days": 1},
    "forensic_retention": "1d",
    "lineage": False,
    "leases": {"generation": "10s", "writer": "3s", "grant": "3s", "reader": "10m"},
}


def project_of(store: str) -> str:
    """The name of a store's scratch project."""
    return f"{PREFIX}{store}"[:_NAME_LIMIT]


def stage_of(store: str) -> StageId:
    """The stage whose checkpoints live and die in drills."""
    return StageId.of(project_of(store), "life", "checkpoint")


def open_scratch(catalog: Catalog, store: str) -> str:
    """The scratch project of a store, made if it was not there; answers its name. Raises Conflict
    if a project of that name is somebody's."""
    project = project_of(store)
    with catalog.transaction() as tx:
        known = projects.find(tx, project)
        if known is not None and project not in drills.scratch_projects(tx):
            reason = f"project {project} is no scratch project, so no drill may write in it"
            raise Conflict(reason=reason)
        if known is None:
            projects.put(tx, Project(project, OWNER, store, "drill", {}, None))
        drills.take_scratch(tx, project, store)
    set_soft(catalog, project, NO_SOFT_LIMIT_BYTES)
    return project


def set_soft(catalog: Catalog, project: str, soft_bytes: int) -> Policy:
    """Put the scratch policy in force with a soft watermark over the project's own bytes."""
    bounds = {"soft": f"{soft_bytes}B", "hard": f"{2 * NO_SOFT_LIMIT_BYTES}B", "reserve": "0B"}
    policy = Policy.parse({**_POLICY, "capacity": bounds}, where="the scratch policy of drills")
    with catalog.transaction() as tx:
        locks.project_exclusive(tx, project)
        _promote(tx, project, policy)
    return policy


def _promote(tx: Transaction, project: str, policy: Policy) -> None:
    policy_versions.promote(
        tx, project, policy.name, policy.digest, policy.to_json(), recorded_by="drill"
    )
