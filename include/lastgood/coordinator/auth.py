"""Who asks: bearer tokens of machines, and the mark by which every route shows its guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs import attempts, generations, readers
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.generations import Writer
from lastgood.catalog.jobs.readers import ReaderLease
from lastgood.catalog.settings import tokens
from lastgood.coordinator.services import services_of
from lastgood.errors import NotFound, Unauthenticated

F = TypeVar("F", bound=Callable[..., Any])
_GUARD = "lastgood_guard"
_BEARER = HTTPBearer(auto_error=False, scheme_name="token")


def guard(name: str) -> Callable[[F], F]:
    """Mark a dependency as what keeps others out of a route; `name` says whom it lets in."""

    def mark(dependency: F) -> F:
        setattr(dependency, _GUARD, name)
        return dependency

    return mark


def guard_name(dependency: object) -> str | None:
    """The name under which a dependency was marked as a guard, None if it was not."""
    name: str | None = getattr(dependency, _GUARD, None)
    return name


@guard("anybody")
def anybody() -> None:
    """A route that tells nothing worth guarding says so."""


def bearer_token(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> str:
    """The token that was sent. Raises Unauthenticated if none was."""
    if credentials is None or not credentials.credentials:
        raise Unauthenticated(reason="send `Authorization: Bearer` with a token")
    return credentials.credentials


Token = Annotated[str, Depends(bearer_token)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token was sent: a project's, a generation's (then `writer`), or an attempt's."""

    project: str
    token: str
    writer: Writer | None = None
    attempt: Attempt | None = None

    def own(self, tx: Transaction, attempt_id: UUID) -> Attempt:
        """An attempt that this caller may see. Raises NotFound, as for one that does not exist."""
        found = attempts.get(tx, self.project, attempt_id)
        writes = Writer(found.project, found.stage_id, found.generation)
        foreign = (self.writer is not None and self.writer != writes) or (
            self.attempt is not None and self.attempt.attempt_id != attempt_id
        )
        if foreign:
            raise NotFound(what="attempt", name=str(attempt_id))
        return found


def _unknown() -> Unauthenticated:
    return Unauthenticated(reason="the token is unknown here, or was revoked")


def _by_project_key(tx: Transaction, token: str) -> Caller | None:
    project = tokens.project_of_key(tx, token)
    return None if project is None else Caller(project, token)


def _by_generation(tx: Transaction, token: str) -> Caller | None:
    writer = generations.writer_of_token(tx, token)
    return None if writer is None else Caller(writer.project, token, writer=writer)


def _by_attempt(tx: Transaction, token: str) -> Caller | None:
    attempt = attempts.attempt_of_token(tx, token)
    return None if attempt is None else Caller(attempt.project, token, attempt=attempt)


def _identify(
    tx: Transaction, token: str, *kinds: Callable[[Transaction, str], Caller | None]
) -> Caller:
    for kind in kinds:
        found = kind(tx, token)
        if found is not None:
            return found
    raise _unknown()


def _caller(
    request: Request, token: str, *kinds: Callable[[Transaction, str], Caller | None]
) -> Caller:
    with services_of(request).catalog.transaction() as tx:
        return _identify(tx, token, *kinds)


@guard("project key")
def project_key(request: Request, token: Token) -> Caller:
    """Lets in the bearer of a project's key."""
    return _caller(request, token, _by_project_key)


@guard("generation token")
def generation_token(request: Request, token: Token) -> Caller:
    """Lets in the bearer of a generation's token; whether it may still write is decided later."""
    return _caller(request, token, _by_generation)


@guard("project key or generation token")
def project_or_generation(request: Request, token: Token) -> Caller:
    """Lets in whoever may ask about the whole project."""
    return _caller(request, token, _by_project_key, _by_generation)


@guard("attempt or generation token")
def uploader(request: Request, token: Token, attempt: UUID) -> Attempt:
    """Lets in who may write to the attempt in the path."""
    with services_of(request).catalog.transaction() as tx:
        return _identify(tx, token, _by_attempt, _by_generation).own(tx, attempt)


@guard("attempt token, generation token or project key")
def observer(request: Request, token: Token, attempt: UUID) -> Attempt:
    """Lets in who may look at the attempt in the path."""
    kinds = (_by_attempt, _by_generation, _by_project_key)
    with services_of(request).catalog.transaction() as tx:
        return _identify(tx, token, *kinds).own(tx, attempt)


def _lease(request: Request, token: str) -> ReaderLease:
    with services_of(request).catalog.transaction() as tx:
        found = readers.lease_of_token(tx, token)
    if found is None:
        raise _unknown()
    return found


@guard("reader token")
def reader(request: Request, token: Token, lease: UUID) -> ReaderLease:
    """Lets in the holder of the lease in the path."""
    found = _lease(request, token)
    if found.lease_id != lease:
        raise NotFound(what="reader lease", name=str(lease))
    return found


@guard("reader token")
def reader_of_attempt(request: Request, token: Token, attempt: UUID) -> ReaderLease:
    """Lets in who leased the checkpoint that the attempt in the path became."""
    found = _lease(request, token)
    if found.attempt_id != attempt:
        raise NotFound(what="attempt", name=str(attempt))
    return found
