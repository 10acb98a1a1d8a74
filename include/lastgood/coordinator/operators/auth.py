"""Who may look and who may change: Airflow's users, or one operator token where there is no
Airflow.

Inside Airflow's api-server an operator is a user of Airflow. Reading asks for what reading the DAG
`reconcile_inventory` asks for; changing, for what changing the DAG `sweep_quarantine` asks for,
since every change here decides what that DAG may take. So an Airflow administrator grants both
where all other grants are made, and no parameter of a request can name another DAG.

Alone (`lastgood serve`), the environment variable LASTGOOD_OPERATOR_TOKEN_SHA256 holds the SHA-256
of a token, in hex; without it, operator routes do not exist. Machines send it as a bearer token,
people by their browser's dialog, as the password beside their name."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from lastgood.coordinator.auth import guard
from lastgood.errors import CatalogSetup, Forbidden, Unauthenticated

TOKEN_VARIABLE = "LASTGOOD_OPERATOR_TOKEN_SHA256"
READ_DAG = "reconcile_inventory"
CHANGE_DAG = "sweep_quarantine"
_USER = re.compile(r"[^\x00-\x20\x7f:/]{1,64}")


@dataclass(frozen=True, slots=True)
class Operator:
    """Who asked. `may_change`: also changes are allowed, so that a page offers them."""

    user: str
    may_change: bool

    @property
    def actor(self) -> str:
        """The name under which history records what this operator does."""
        return f"operator:{self.user}"


class OperatorGuard(Protocol):
    """Decides about a request from its credentials."""

    async def identify(self, request: Request) -> Operator:
        """Who asks, if they may read. Raises Unauthenticated or Forbidden."""


class AirflowGuard:
    """Airflow's own users and roles; works inside its api-server alone."""

    async def identify(self, request: Request) -> Operator:
        from airflow.api_fastapi.core_api import security
        from fastapi import HTTPException

        try:
            credentials = await security.bearer_scheme(request)
            user = await security.get_user(request, None, credentials)
        except HTTPException as refused:
            if refused.status_code == 403:
                raise Forbidden(user="this token", action="be used here") from refused
            raise Unauthenticated(reason=f"log in to Airflow ({refused.detail})") from refused
        name = str(user.get_name())
        if not await run_in_threadpool(_is_allowed, request, user, "GET", READ_DAG):
            raise Forbidden(user=name, action="read lastgood's operator pages")
        may_change = await run_in_threadpool(_is_allowed, request, user, "PUT", CHANGE_DAG)
        return Operator(name, may_change)


def _is_allowed(request: Request, user: Any, method: Any, dag_id: str) -> bool:
    from airflow.api_fastapi.core_api import security
    from fastapi import HTTPException

    try:
        security.requires_access_dag(method, param_dag_id=dag_id)(request, user)
    except HTTPException:
        return False
    return True


class TokenGuard:
    """One static token, for a coordinator that runs without Airflow."""

    def __init__(self, token_sha256: str) -> None:
        """`token_sha256`: 64 hex digits. Raises CatalogSetup for anything else."""
        if not re.fullmatch(r"[0-9a-fA-F]{64}", token_sha256):
            raise CatalogSetup(
                reason=f"{TOKEN_VARIABLE} is not a SHA-256 in hex; make it with"
                " `printf %s TOKEN | sha256sum`"
            )
        self._expected = token_sha256.lower()

    async def identify(self, request: Request) -> Operator:
        user, token = _sent(request.headers.get("authorization", ""))
        given = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        if not token or not hmac.compare_digest(given, self._expected):
            raise Unauthenticated(reason="send the operator token")
        return Operator(user, may_change=True)


def _sent(header: str) -> tuple[str, str]:
    """The user and the token of an Authorization header; an empty token if there is none."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return "token", value.strip()
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, token = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return (user if _USER.fullmatch(user) else "token"), token


def guard_here() -> OperatorGuard | None:
    """The guard for this process, None where operator routes have nobody to let in."""
    if "airflow.api_fastapi.app" in sys.modules:
        return AirflowGuard()
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return TokenGuard(token) if token else None


@guard("operator")
async def reading(request: Request) -> Operator:
    """The dependency of every operator route: who asks, if they may read."""
    chosen: OperatorGuard = request.app.state.operator_guard
    return await chosen.identify(request)


@guard("operator who may change")
async def changing(request: Request) -> Operator:
    """The dependency of every route that changes something. A browser sends cookies and passwords
    by itself, so a change that came without a bearer token must come from our own pages."""
    operator = await reading(request)
    if not operator.may_change:
        raise Forbidden(user=operator.user, action="change anything here")
    if not request.headers.get("authorization", "").lower().startswith("bearer "):
        _require_same_site(request, operator)
    return operator


def _require_same_site(request: Request, operator: Operator) -> None:
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is not None:
        is_ours = fetch_site == "same-origin"
    else:
        origin = request.headers.get("origin") or request.headers.get("referer") or ""
        is_ours = urlsplit(origin).netloc == request.headers.get("host", "")
    if not is_ours:
        raise Forbidden(user=operator.user, action="change anything from another site's page")
