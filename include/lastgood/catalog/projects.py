"""Projects, their stores and their policies: what operators configure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.errors import CatalogSetup, NotFound


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A store as it was configured. `config` is its whole document; secrets are never in it."""

    name: str
    kind: str
    config: Mapping[str, Any]
    failure_domain: str
    tier: str


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant as it was configured. `config` is its whole document."""

    name: str
    owner: str
    store: str
    policy: str
    config: Mapping[str, Any]
    last_mark_at: datetime | None


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of a policy, in force for its project from `effective_from` until the next."""

    project: str
    policy: str
    version: int
    digest: str
    document: Mapping[str, Any]
    effective_from: datetime
    recorded_at: datetime
    recorded_by: str


def names(tx: Transaction) -> list[str]:
    """Every project, in the order of names."""
    return [row["project"] for row in tx.execute("SELECT project FROM projects ORDER BY project")]


def get(tx: Transaction, project: str) -> Project:
    """One project. Raises NotFound."""
    found = find(tx, project)
    if found is None:
        raise NotFound(what="project", name=project)
    return found


def find(tx: Transaction, project: str) -> Project | None:
    """One project, None if there is none of this name."""
    row = tx.execute(
        "SELECT project AS name, owner, store, policy, config, last_mark_at"
        "  FROM projects WHERE project = %s",
        (project,),
    ).fetchone()
    return Project(**row) if row else None


def stores(tx: Transaction) -> list[StoreRow]:
    """Every store, in the order of names."""
    rows = tx.execute(
        "SELECT store AS name, kind, config, failure_domain, tier FROM stores ORDER BY store"
    )
    return [StoreRow(**row) for row in rows]


def store(tx: Transaction, name: str) -> StoreRow:
    """One store. Raises NotFound."""
    found = find_store(tx, name)
    if found is None:
        raise NotFound(what="store", name=name)
    return found


def find_store(tx: Transaction, name: str) -> StoreRow | None:
    """One store, None if there is none of this name."""
    row = tx.execute(
        "SELECT store AS name, kind, config, failure_domain, tier FROM stores WHERE store = %s",
        (name,),
    ).fetchone()
    return StoreRow(**row) if row else None


def is_used(tx: Transaction, store: str) -> bool:
    """Whether any attempt was ever made in a store."""
    row = tx.execute("SELECT 1 FROM attempts WHERE store = %s LIMIT 1", (store,)).fetchone()
    return row is not None


def stores_of(tx: Transaction, project: str) -> list[str]:
    """The stores that hold or may hold bytes of a project: its own, and those of its attempts."""
    rows = tx.execute(
        """
        SELECT store FROM projects WHERE project = %(project)s
         UNION SELECT store FROM attempts WHERE project = %(project)s
         UNION SELECT store FROM copies WHERE project = %(project)s
         ORDER BY store
        """,
        {"project": project},
    )
    return [row["store"] for row in rows]


def put_store(tx: Transaction, row: StoreRow) -> None:
    """Write a store's configuration."""
    tx.execute(
        """
        INSERT INTO stores (store, kind, config, failure_domain, tier)
             VALUES (%(name)s, %(kind)s, %(config)s, %(failure_domain)s, %(tier)s)
        ON CONFLICT (store) DO UPDATE
           SET kind = excluded.kind, config = excluded.config, tier = excluded.tier,
               failure_domain = excluded.failure_domain, applied_at = catalog_clock()
        """,
        {
            "name": row.name,
            "kind": row.kind,
            "config": Jsonb(dict(row.config)),
            "failure_domain": row.failure_domain,
            "tier": row.tier,
        },
    )


def put(tx: Transaction, project: Project) -> None:
    """Write a project's configuration and begin its accounting in its store."""
    tx.execute(
        """
        INSERT INTO projects (project, owner, store, policy, config)
             VALUES (%(name)s, %(owner)s, %(store)s, %(policy)s, %(config)s)
        ON CONFLICT (project) DO UPDATE
           SET owner = excluded.owner, store = excluded.store, policy = excluded.policy,
               config = excluded.config, applied_at = catalog_clock()
        """,
        {
            "name": project.name,
            "owner": project.owner,
            "store": project.store,
            "policy": project.policy,
            "config": Jsonb(dict(project.config)),
        },
    )
    tx.execute(
        "INSERT INTO capacity_counters (project, store) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (project.name, project.store),
    )


def current_policy(tx: Transaction, project: str, at: datetime | None = None) -> PolicyVersion:
    """The policy in force at `at` (UTC; None: the project's now): of all versions recorded
    for the project, whatever their names, the last to take effect. Raises NotFound for an unknown
    project, CatalogSetup if none."""
    row = tx.execute(
        """
        SELECT project, policy, version, digest, document, effective_from, recorded_at, recorded_by
          FROM policy_versions
         WHERE project = %(project)s
           AND effective_from <= %(at)s
         ORDER BY effective_from DESC, recorded_at DESC, policy, version DESC
         LIMIT 1
        """,
        {"project": project, "at": at or history.project_now(tx, project)},
    ).fetchone()
    if row is None:
        get(tx, project)
        raise CatalogSetup(reason=f"project {project} has no policy in force; run `lastgood apply`")
    return PolicyVersion(**row)


def policy_versions(tx: Transaction, project: str) -> Sequence[PolicyVersion]:
    """Every policy version of a project, the newest first."""
    rows = tx.execute(
        """
        SELECT project, policy, version, digest, document, effective_from, recorded_at, recorded_by
          FROM policy_versions
         WHERE project = %s
         ORDER BY effective_from DESC, recorded_at DESC, policy, version DESC
        """,
        (project,),
    )
    return [PolicyVersion(**row) for row in rows]


def promote_policy(
    tx: Transaction,
    project: str,
    policy: str,
    digest: str,
    document: Mapping[str, Any],
    *,
    recorded_by: str,
) -> PolicyVersion | None:
    """Put a policy in force from now on, unless it is the one in force already (None). The caller
    has locked the project exclusively. It takes effect after everything recorded of the project.
    """
    versions = policy_versions(tx, project)
    if versions and (versions[0].policy, versions[0].digest) == (policy, digest):
        return None
    row = tx.execute(
        """
        INSERT INTO policy_versions (project, policy, version, digest, document,
                                     effective_from, recorded_at, recorded_by)
        SELECT project, %(policy)s,
               1 + coalesce((SELECT max(version) FROM policy_versions
                              WHERE project = %(project)s AND policy = %(policy)s), 0),
               %(digest)s, %(document)s, %(at)s, %(at)s, %(recorded_by)s
          FROM projects WHERE project = %(project)s
        RETURNING project, policy, version, digest, document,
                  effective_from, recorded_at, recorded_by
        """,
        {
            "project": project,
            "policy": policy,
            "digest": digest,
            "document": Jsonb(dict(document)),
            "at": history.close(tx, project),
            "recorded_by": recorded_by,
        },
    ).fetchone()
    if row is None:
        raise NotFound(what="project", name=project)
    return PolicyVersion(**row)
