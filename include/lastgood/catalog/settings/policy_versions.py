"""Versions of a project's policies, and which of them is in force when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogSetup, NotFound
from lastgood.rules.policy_names import PolicyName


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


def current(tx: Transaction, project: str, at: datetime | None = None) -> PolicyVersion:
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
        projects.get(tx, project)
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


def of_project(tx: Transaction, project: str) -> Sequence[PolicyVersion]:
    """Every policy version of a project, the newest first."""
    rows = tx.execute(
        f"""
        SELECT {_VERSION} FROM policy_versions
         WHERE project = %s ORDER BY recorded_at DESC, policy, version DESC
        """,
        (project,),
    )
    return [PolicyVersion(**row) for row in rows]


def find(tx: Transaction, project: str, name: PolicyName) -> PolicyVersion | None:
    """The version of this name, the newest if it has no number; None if there is none."""
    for found in of_project(tx, project):
        if found.policy == name.policy and name.version in (None, found.version):
            return found
    return None


def get(tx: Transaction, project: str, name: PolicyName) -> PolicyVersion:
    """The same. Raises NotFound."""
    found = find(tx, project, name)
    if found is None:
        raise NotFound(what="policy version", name=str(name))
    return found


def promote(
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
    before = [one for one in of_project(tx, project) if one.effective_from is not None]
    same = [(one.policy, one.digest) == (policy, digest) for one in before[:1]]
    if any(same) or _is_in_force(tx, project, policy, digest):
        return None
    return _record(tx, project, policy, digest, document, recorded_by, in_force=True)


def record(
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
    `promote`."""
    known = [one for one in of_project(tx, project) if one.policy == policy]
    if known and known[0].digest == digest:
        return known[0], False
    return _record(tx, project, policy, digest, document, recorded_by, in_force=False), True


def waiting(tx: Transaction, project: str, policy: str, digest: str) -> PolicyVersion | None:
    """The newest version of a policy, if it has this digest, was recorded, and never took force nor
    will yet."""
    newest = next((one for one in of_project(tx, project) if one.policy == policy), None)
    if newest is None or newest.digest != digest:
        return None
    took_force = {one.name for one in times_in_force(tx, project)}
    return None if newest.name in took_force else newest


def _is_in_force(tx: Transaction, project: str, policy: str, digest: str) -> bool:
    try:
        now = current(tx, project)
    except CatalogSetup:
        return False
    return (now.policy, now.digest) == (policy, digest)


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
