"""Requests to the coordinator: each is the same request again until it is answered."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import httpx

from lastgood.errors import InvalidInput
from lastgood.runner.checkpoint import instant
from lastgood.runner.problems import problem_of
from lastgood.runner.wire.client import Client
from lastgood.runner.wire.transport import (
    TIMEOUT,
    answered_at,
    raise_problem,
    shown_url,
    transport_failures,
)
from lastgood.runner.working.retry import Retry, Transient
from lastgood.runner.working.stopping import Stop

MOUNT = "/lastgood"
API = f"{MOUNT}/v1/runner"
BEAT_TIMEOUT = httpx.Timeout(10)  # a renewal that hangs is better tried again
SOONEST_RENEWAL, LATEST_RENEWAL = timedelta(milliseconds=200), timedelta(minutes=1)


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
    client: Client
    retry: Retry
    stop: Stop

    @classmethod
    def at(cls, url: str, token: str, *, retry: Retry, client: Client) -> Coordinator:
        """`url`: where the coordinator answers, with or without `/lastgood` at its end.

        Raises InvalidInput for one that would carry the token in the clear to another machine.
        """
        _require_private(url)
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
            response = self.client.requests.request(
                method,
                url,
                json=body,
                params=query,
                headers=self.authorization(),
                timeout=timeout,
            )
        raise_problem(response)
        try:
            content = response.json() if response.content else {}
        except ValueError:  # a page in the place of an answer
            page = problem_of(response.text, response.status_code, shown_url(url))
            if not self.client.heard.is_set():  # it may never have been the coordinator's URL
                raise page from None
            raise Transient(page) from None
        self.client.heard.set()
        return Answer(content, answered_at(response))

    def absolute(self, url: str) -> str:
        """A URL that the coordinator gave: absolute, or its own beginning with /lastgood."""
        return self.url + url.removeprefix(MOUNT) if url.startswith(f"{MOUNT}/") else url

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def _require_private(url: str) -> None:
    parsed = httpx.URL(url)
    if parsed.scheme == "https":
        return
    if parsed.scheme != "http":
        raise InvalidInput(where="url", reason=f"{url!r} begins neither with https:// nor http://")
    if parsed.host != "localhost" and not _is_loopback(parsed.host):
        reason = f"{url!r} would carry tokens in the clear; use https:// to another machine"
        raise InvalidInput(where="url", reason=reason)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
