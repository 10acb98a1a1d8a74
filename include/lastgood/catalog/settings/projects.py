"""Projects and their stores: what operators configure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.errors import NotFound
from lastgood.rules.finding_owners import Owners

_THREE_DAYS = 3 * 86_400


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

    @property
    def finding_owners(self) -> Owners:
        """Who answers for findings of the project."""
        return Owners.of(self.owner, self.config)

    @property
    def finding_deadline(self) -> timedelta:
        """How long they have for one."""
        return timedelta(seconds=float(self.config.get("finding_deadline_seconds", _THREE_DAYS)))


def names(tx: Transaction) -> list[str]:
    """Every project whose store is registered, in the order of names: of another one, which drills
    left behind, nothing is to be done."""
    rows = tx.execute(
        """
        SELECT project FROM projects JOIN stores USING (store)
         WHERE unregistered_at IS NULL ORDER BY project
        """
    )
    return [row["project"] for row in rows]


def all_names(tx: Transaction) -> list[str]:
    """Every project that has a history, in the order of names."""
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
    """Every registered store, in the order of names."""
    rows = tx.execute(
        "SELECT store AS name, kind, config, failure_domain, tier FROM stores"
        " WHERE unregistered_at IS NULL ORDER BY store"
    )
    return [StoreRow(**row) for row in rows]


def store(tx: Transaction, name: str) -> StoreRow:
    """One store. Raises NotFound."""
    found = find_store(tx, name)
    if found is None:
        raise NotFound(what="store", name=name)
    return found


def find_store(tx: Transaction, name: str) -> StoreRow | None:
    """One store, None if none of this name is registered."""
    row = tx.execute(
        "SELECT store AS name, kind, config, failure_domain, tier FROM stores"
        " WHERE store = %s AND unregistered_at IS NULL",
        (name,),
    ).fetchone()
    return StoreRow(**row) if row else None


def keeper(tx: Transaction, store: str) -> Project | None:
    """The project that stands for a store where its configuration names nobody: of those that write
    to it, the first by name; else of those that did. None for a store that no project uses: where
    only drills write, nobody answers."""
    row = tx.execute(
        """
        WITH drilled AS (SELECT project FROM scratch_projects)
        SELECT coalesce(
                 (SELECT min(project) FROM projects
                   WHERE store = %(store)s AND project NOT IN (SELECT project FROM drilled)),
                 (SELECT min(project) FROM attempts
                   WHERE store = %(store)s AND project NOT IN (SELECT project FROM drilled))
               ) AS project
        """,
        {"store": store},
    ).fetchone()
    assert row is not None
    return None if row["project"] is None else get(tx, row["project"])


def is_used(tx: Transaction, store: str) -> bool:
    """Whether any attempt was ever made in a store, since it was unregistered if it ever was."""
    row = tx.execute(
        """
        SELECT 1 FROM attempts
         WHERE store = %(store)s
           AND recorded_at > coalesce((SELECT max(recorded_at) FROM store_registrations
                                        WHERE store = %(store)s AND kind <> 'registered'),
                                      '-infinity')
         LIMIT 1
        """,
        {"store": store},
    ).fetchone()
    return row is not None


def stores_of(tx: Transaction, project: str) -> list[str]:
    """The registered stores that hold or may hold bytes of a project: its own, and those of its
    attempts."""
    rows = tx.execute(
        """
        SELECT store FROM (
          SELECT store FROM projects WHERE project = %(project)s
           UNION SELECT store FROM attempts WHERE project = %(project)s
           UNION SELECT store FROM copies WHERE project = %(project)s) AS used
          JOIN stores USING (store)
         WHERE unregistered_at IS NULL ORDER BY store
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
