"""Projects, their stores and their policies: what operators configure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.errors import CatalogSetup, NotFound
from lastgood.rules.finding_owners import Owners
from lastgood.rules.policy_names import PolicyName

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


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of a policy. It takes force at `effective_from`, until another does; None: by a
    promotion, or never."""

    project: str
    policy: str
    version: int
    digest: str
    document: Mapping[str, Any]
    effective_from: datetime | None
    recorded_at: datetime
    recorded_by: str

    @property
    def name(self) -> str:
        """Such as `default@v7`."""
        return f"{self.policy}@v{self.version}"


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


# Each time that a version took or takes force: at once as it was applied, or by a promotion. Of
# those that have, the one decided last holds, so that a later decision undoes an earlier one that
# has not taken effect yet.
_IN_FORCE = """(
    SELECT project, policy, version, digest, document, effective_from, recorded_at, recorded_by
      FROM policy_versions WHERE project = %(project)s AND effective_from IS NOT NULL
     UNION ALL
    SELECT v.project, v.policy, v.version, v.digest, v.document,
           greatest(p.effective_from, a.recorded_at), coalesce(a.recorded_at, p.recorded_at),
           p.asked_by
      FROM policy_promotions p
      JOIN policy_versions v USING (project, policy, version)
      LEFT JOIN promotion_approvals a USING (promotion_id)
     WHERE p.project = %(project)s AND (NOT p.approve OR a.promotion_id IS NOT NULL)
    ) AS in_force"""
_VERSION = """project, policy, version, digest, document, effective_from, recorded_at,
    recorded_by"""


def current_policy(tx: Transaction, project: str, at: datetime | None = None) -> PolicyVersion:
    """The policy in force at `at` (UTC; None: the project's now): of all that had taken effect,
    whatever their names, the one decided last. Raises NotFound for an unknown project, CatalogSetup
    if none."""
    row = tx.execute(
        f"""
        SELECT {_VERSION} FROM {_IN_FORCE}
         WHERE effective_from <= %(at)s
         ORDER BY recorded_at DESC, effective_from DESC, policy, version DESC
         LIMIT 1
        """,
        {"project": project, "at": at or history.project_now(tx, project)},
    ).fetchone()
    if row is None:
        get(tx, project)
        raise CatalogSetup(reason=f"project {project} has no policy in force; run `lastgood apply`")
    return PolicyVersion(**row)


def times_in_force(tx: Transaction, project: str) -> Sequence[PolicyVersion]:
    """Each time that a policy took force, or will, in the order of these instants; a version that
    was rolled back to stands there again. What another overtook that was decided later, and took
    effect no later, never took force."""
    rows = tx.execute(
        f"SELECT {_VERSION} FROM {_IN_FORCE} ORDER BY recorded_at DESC, effective_from DESC",
        {"project": project},
    )
    found: list[PolicyVersion] = []
    until: datetime | None = None
    for version in (PolicyVersion(**row) for row in rows):
        effect = version.effective_from
        assert effect is not None
        if until is None or effect < until:
            found.append(version)
            until = effect
    return found[::-1]


def in_force_since(tx: Transaction, current: PolicyVersion) -> datetime:
    """Since when the document of the policy in force, which is `current`, is in force without a
    break."""
    since = current.effective_from
    assert since is not None, "what is in force took force at an instant"
    for version in reversed(times_in_force(tx, current.project)):
        effect = version.effective_from
        if effect is None or effect > since:
            continue
        if version.digest != current.digest:
            break
        since = effect
    return since


def policy_versions(tx: Transaction, project: str) -> Sequence[PolicyVersion]:
    """Every policy version of a project, the newest first."""
    rows = tx.execute(
        f"""
        SELECT {_VERSION} FROM policy_versions
         WHERE project = %s ORDER BY recorded_at DESC, policy, version DESC
        """,
        (project,),
    )
    return [PolicyVersion(**row) for row in rows]


def find_version(tx: Transaction, project: str, name: PolicyName) -> PolicyVersion | None:
    """The version of this name, the newest if it has no number; None if there is none."""
    for found in policy_versions(tx, project):
        if found.policy == name.policy and name.version in (None, found.version):
            return found
    return None


def policy_version(tx: Transaction, project: str, name: PolicyName) -> PolicyVersion:
    """The same. Raises NotFound."""
    found = find_version(tx, project, name)
    if found is None:
        raise NotFound(what="policy version", name=str(name))
    return found


def promote_policy(
    tx: Transaction,
    project: str,
    policy: str,
    digest: str,
    document: Mapping[str, Any],
    *,
    recorded_by: str,
) -> PolicyVersion | None:
    """Put a policy in force from now on, unless it is in force already, or is the last that was put
    in force so and another was promoted since (None). The caller has locked the project
    exclusively. It takes effect after everything recorded of the project."""
    before = [one for one in policy_versions(tx, project) if one.effective_from is not None]
    same = [(one.policy, one.digest) == (policy, digest) for one in before[:1]]
    if any(same) or _is_in_force(tx, project, policy, digest):
        return None
    return _record(tx, project, policy, digest, document, recorded_by, in_force=True)


def record_policy(
    tx: Transaction,
    project: str,
    policy: str,
    digest: str,
    document: Mapping[str, Any],
    *,
    recorded_by: str,
) -> tuple[PolicyVersion, bool]:
    """The newest version of a policy, and whether it was added: a version that differs from the one
    before it is recorded, and is in force only once it is promoted. The lock is held as for
    `promote_policy`."""
    known = [one for one in policy_versions(tx, project) if one.policy == policy]
    if known and known[0].digest == digest:
        return known[0], False
    return _record(tx, project, policy, digest, document, recorded_by, in_force=False), True


def waiting_version(
    tx: Transaction, project: str, policy: str, digest: str
) -> PolicyVersion | None:
    """The newest version of a policy, if it has this digest, was recorded, and never took force nor
    will yet."""
    newest = next((one for one in policy_versions(tx, project) if one.policy == policy), None)
    if newest is None or newest.digest != digest:
        return None
    took_force = {one.name for one in times_in_force(tx, project)}
    return None if newest.name in took_force else newest


def _is_in_force(tx: Transaction, project: str, policy: str, digest: str) -> bool:
    try:
        current = current_policy(tx, project)
    except CatalogSetup:
        return False
    return (current.policy, current.digest) == (policy, digest)


def _record(
    tx: Transaction,
    project: str,
    policy: str,
    digest: str,
    document: Mapping[str, Any],
    recorded_by: str,
    *,
    in_force: bool,
) -> PolicyVersion:
    at = history.close(tx, project)
    row = tx.execute(
        f"""
        INSERT INTO policy_versions (project, policy, version, digest, document,
                                     effective_from, recorded_at, recorded_by)
        SELECT project, %(policy)s,
               1 + coalesce((SELECT max(version) FROM policy_versions
                              WHERE project = %(project)s AND policy = %(policy)s), 0),
               %(digest)s, %(document)s, %(effective_from)s, %(at)s, %(recorded_by)s
          FROM projects WHERE project = %(project)s
        RETURNING {_VERSION}
        """,
        {
            "project": project,
            "policy": policy,
            "digest": digest,
            "document": Jsonb(dict(document)),
            "at": at,
            "effective_from": at if in_force else None,
            "recorded_by": recorded_by,
        },
    ).fetchone()
    assert row is not None, f"project {project} was closed by this transaction, so it is there"
    return PolicyVersion(**row)
