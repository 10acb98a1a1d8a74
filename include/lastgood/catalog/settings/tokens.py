"""Bearer tokens of machines: only their SHA-256 is ever stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from lastgood.catalog.db import Transaction
from lastgood.errors import Conflict, NotFound


def new_token() -> str:
    """A bearer token of 256 random bits. It is shown once and not kept."""
    return "lg_" + secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """What is stored of a token, and what it is found by."""
    return hashlib.sha256(token.encode()).digest()


def fencing_token(generation_token: str, attempt_id: str) -> str:
    """The token of one attempt, derived from its generation's: a repeated prepare gives it again
    although nobody stored it."""
    return hmac.new(generation_token.encode(), attempt_id.encode(), hashlib.sha256).hexdigest()


def create_project_key(tx: Transaction, project: str, name: str) -> str:
    """Give a project a further key and return the token, which is not kept. Raises NotFound for an
    unknown project and Conflict for a name in use."""
    token = new_token()
    tx.execute(
        """
        INSERT INTO project_keys (key_sha256, project, name)
        SELECT %(key)s, project, %(name)s FROM projects AS p
         WHERE project = %(project)s AND NOT EXISTS (
               SELECT 1 FROM project_keys AS k
                WHERE k.project = p.project AND k.name = %(name)s AND k.revoked_at IS NULL)
        """,
        {"key": token_hash(token), "project": project, "name": name},
    )
    if tx.rowcount == 0:
        _require_project(tx, project)
        raise Conflict(reason=f"project {project} already has a key named {name}; revoke it first")
    return token


def revoke_project_key(tx: Transaction, project: str, name: str) -> None:
    """End a project's key at once. Raises NotFound if it has none of this name."""
    tx.execute(
        "UPDATE project_keys SET revoked_at = catalog_clock()"
        " WHERE project = %s AND name = %s AND revoked_at IS NULL",
        (project, name),
    )
    if tx.rowcount == 0:
        raise NotFound(what="project key", name=name)


def project_of_key(tx: Transaction, token: str) -> str | None:
    """The project that this key belongs to, None for an unknown or revoked one."""
    row = tx.execute(
        "SELECT project, key_sha256 FROM project_keys WHERE key_sha256 = %s AND revoked_at IS NULL",
        (token_hash(token),),
    ).fetchone()
    if row is None or not hmac.compare_digest(row["key_sha256"], token_hash(token)):
        return None
    project: str = row["project"]
    return project


def _require_project(tx: Transaction, project: str) -> None:
    if tx.execute("SELECT 1 FROM projects WHERE project = %s", (project,)).fetchone() is None:
        raise NotFound(what="project", name=project)
