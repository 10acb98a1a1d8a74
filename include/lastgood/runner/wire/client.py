"""What talks to the other end: httpx for small requests, connections of our own for object
bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Self

import httpx

from lastgood.runner.wire.carrying import Carrier, ThroughHttpx
from lastgood.runner.wire.connections import Connections
from lastgood.runner.wire.transport import AGENT, IDLE_LIMIT, TIMEOUT

_LIMITS = httpx.Limits(
    max_connections=None,
    max_keepalive_connections=64,
    keepalive_expiry=IDLE_LIMIT.total_seconds(),
)


@dataclass(frozen=True)
class Client:
    """For many threads. Neither part sends a token unless a request says so."""

    requests: httpx.Client
    objects: Carrier
    heard: threading.Event = field(default_factory=threading.Event)  # the coordinator answered once

    @classmethod
    def of(cls, requests: httpx.Client) -> Self:
        """A client whose object bytes go through httpx, too."""
        return cls(requests, ThroughHttpx(requests))

    def close(self) -> None:
        """Close all connections."""
        self.objects.close()
        self.requests.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_client() -> Client:
    """A client that goes straight to where a URL points, unless a proxy stands between."""
    requests = httpx.Client(timeout=TIMEOUT, limits=_LIMITS, headers={"User-Agent": AGENT})
    return Client(requests, Connections(ThroughHttpx(requests)))
