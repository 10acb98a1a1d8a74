"""Requests to the coordinator: retried while that may help, errors rebuilt from problem
documents."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from lastgood.errors import LastgoodError
from lastgood.runner.checkpoint import instant
from lastgood.runner.problems import Unreachable, problem_of
from lastgood.runner.retry import Retry, Transient
from lastgood.runner.stopping import Stop

MOUNT = "/lastgood"
API = f"{MOUNT}/v1/runner"
TIMEOUT = httpx.Timeout(connect=10, read=120, write=120, pool=None)  # seconds
SOONEST_RENEWAL, LATEST_RENEWAL = timedelta(milliseconds=200), timedelta(minutes=1)
BEAT_TIMEOUT = httpx.Timeout(10)  # a renewal that hangs is better tried again
# Below the 5 s after which uvicorn closes an idle connection.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=3)
MAY_PASS = frozenset({408, 429})  # the only refusals that ask to be tried again
NO_ROOM = 507  # a decision, not a failure: the next sweep is further away than any patience
_S3_ERROR = re.compile(r"<Code>([^<]+)</Code>(?:\s*<Message>([^<]*)</Message>)?")


def new_client() -> httpx.Client:
    """A client for many threads. It sends no token unless a request says so."""
    return httpx.Client(timeout=TIMEOUT, limits=LIMITS, headers={"User-Agent": "lastgood-runner"})


class Answer(dict[str, Any]):
    """A JSON object that the coordinator answered, and when it did so by its own clock."""

    def __init__(self, content: Mapping[str, Any], answered_at: datetime) -> None:
        super().__init__(content)
        self.answered_at = answered_at

    def renewal_of(self, lease: str) -> timedelta:
        """When to renew the lease whose end is in this field: after a third of what is left."""
        left = instant(self[lease]) - self.answered_at
        return min(max(left / 3, SOONEST_RENEWAL), LATEST_RENEWAL)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The runner API, as the bearer of one token sees it."""

    url: str  # up to and including /lastgood
    token: str
    client: httpx.Client
    retry: Retry
    stop: Stop

    @classmethod
    def at(cls, url: str, token: str, *, retry: Retry, client: httpx.Client) -> Coordinator:
        """`url`: where the coordinator answers, with or without `/lastgood` at its end."""
        base = url.rstrip("/").removesuffix(MOUNT) + MOUNT
        return cls(base, token, client, retry, Stop())

    def bearing(self, token: str) -> Coordinator:
        """The same coordinator, asked with another token."""
        return replace(self, token=token)

    def until(self, stop: Stop, retry: Retry | None = None) -> Coordinator:
        """The same coordinator; retries end when `stop` is requested, or as `retry` says."""
        return replace(self, stop=stop, retry=retry or self.retry)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """The JSON that the route answers; empty if it answers nothing.

        Raises the error of its problem document, or Unreachable.
        """
        return self.retry.call(lambda: self.ask_once(method, path, body, query), self.stop)

    def ask_once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> Answer:
        """`ask` without its patience: raises Transient where trying again may help."""
        url = self.absolute(f"{API}/{path}")
        with transport_failures(url):
            response = self.client.request(
                method,
                url,
                json=body,
                params=query,
                headers=self.authorization(),
                timeout=timeout,
            )
        raise_problem(response)
        return Answer(response.json() if response.content else {}, answered_at(response))

    def absolute(self, url: str) -> str:
        """A URL that the coordinator gave: absolute, or its own beginning with /lastgood."""
        return self.url + url.removeprefix(MOUNT) if url.startswith(f"{MOUNT}/") else url

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def put_bytes(
    client: httpx.Client,
    url: str,
    headers: Mapping[str, str],
    size_bytes: int,
    chunks: Iterable[Any],
) -> httpx.Response:
    """One PUT of `size_bytes` as they come. Raises Transient, or the error of the answer."""
    announced = {**headers, "Content-Length": str(size_bytes)}
    with transport_failures(url):
        response = client.put(url, headers=announced, content=_stream(chunks))
    raise_problem(response)
    return response


def _stream(chunks: Iterable[Any]) -> Iterator[Any]:
    yield from chunks


@contextmanager
def get_bytes(
    client: httpx.Client, url: str, headers: Mapping[str, str]
) -> Iterator[httpx.Response]:
    """One GET whose body is read by the caller. Raises Transient, or the error of the answer."""
    with transport_failures(url), client.stream("GET", url, headers=dict(headers)) as response:
        if response.is_error:
            response.read()
            raise_problem(response)
        yield response


@contextmanager
def transport_failures(url: str) -> Iterator[None]:
    """Turn failures of the connection into Transient."""
    try:
        yield
    except httpx.TransportError as failure:
        reason = f"{type(failure).__name__}: {failure}"
        raise Transient(Unreachable(where=_shown(url), reason=reason)) from failure


def raise_problem(response: httpx.Response) -> None:
    """Raise what an answer of 4xx or 5xx means: Transient where trying again may help."""
    if not response.is_error:
        return
    error = _error_of(response)
    status = response.status_code
    if status in MAY_PASS or (status >= 500 and status != NO_ROOM):
        raise Transient(error, retry_after(response))
    raise error


def _error_of(response: httpx.Response) -> LastgoodError:
    where = _shown(str(response.url))
    if "json" in response.headers.get("Content-Type", ""):
        return problem_of(response.json(), response.status_code, where)
    found = _S3_ERROR.search(response.text)
    document = (
        {"type": found[1], "detail": found[2] or found[1]} if found else response.text or "nothing"
    )
    return problem_of(document, response.status_code, where)


def retry_after(response: httpx.Response) -> timedelta | None:
    """The Retry-After of an answer, in either of its forms."""
    text = response.headers.get("Retry-After", "")
    if text.isdecimal():
        return timedelta(seconds=int(text))
    try:
        until = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(until.astimezone(UTC) - answered_at(response), timedelta(0))


def answered_at(response: httpx.Response) -> datetime:
    """When the server says that it answered: waits are counted by its clock, not by ours."""
    try:
        return email.utils.parsedate_to_datetime(response.headers["Date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


def _shown(url: str) -> str:
    """The URL without its query, which may be a signature."""
    return url.partition("?")[0]
