"""Presigned URLs end; a new one is asked for, and a store that refuses a new one is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lastgood.runner import RemoteProblem, Ticket
from lastgood.runner.sending.parts import PresignedSender
from lastgood.runner.sending.ticket import Slot
from lastgood.runner.wire.client import Client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.retry import Retry
from lastgood.runner.working.stopping import Stop

QUICK = Retry(timedelta(seconds=60), timedelta(milliseconds=1))
SLOTS = [Slot("a", 6, 3, 2), Slot("b", 3, 3, 1)]


class Service:
    """A coordinator that grants, and a store that refuses whatever `refuses` says."""

    def __init__(self, refuses: Callable[[int], bool]) -> None:
        self._refuses = refuses
        self.asked: list[list[dict[str, Any]]] = []
        self.stored: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "s3":
            assert "Authorization" not in request.headers
            issue = int(request.url.params["issue"])
            if self._refuses(issue):
                return httpx.Response(403, text="<Code>AccessDenied</Code>")
            self.stored.append(request.url.path)
            return httpx.Response(200, headers={"ETag": '"e"'})
        assert request.headers["Authorization"] == "Bearer secret"
        self.asked.append(json.loads(request.content)["parts"])
        urls = [
            {
                "path": part["path"],
                "number": number,
                "url": f"https://s3/{part['path']}/{number}?issue={len(self.asked)}",
                "headers": {},
            }
            for part in self.asked[-1]
            for number in part["numbers"]
        ]
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        return httpx.Response(200, json={"urls": urls, "grant_expires_at": until})


def send_all(service: Service) -> None:
    client = Client.of(httpx.Client(transport=httpx.MockTransport(service)))
    coordinator = Coordinator.at("https://c", "secret", retry=QUICK, client=client)
    ticket = Ticket(
        url="https://c/lastgood",
        attempt="x",
        fencing_token="secret",
        checkpoint="p/w/s/1.1",
        sequence=1,
        step=1,
        how="presigned",
        direct_path=None,
        renew_every=timedelta(minutes=1),
        slots={slot.path: slot for slot in SLOTS},
    )
    sender = PresignedSender(coordinator, ticket, SLOTS)
    for slot in SLOTS:
        for number in range(1, slot.parts + 1):

            def send(slot: Slot = slot, number: int = number) -> None:
                sender.send(slot, number, iter([memoryview(b"abc")]))

            QUICK.call(send, Stop())


def test_grants_are_asked_for_in_batches() -> None:
    service = Service(refuses=lambda issue: False)

    send_all(service)

    assert service.asked == [[{"path": "a", "numbers": [1, 2]}, {"path": "b", "numbers": [1]}]]
    assert service.stored == ["/a/1", "/a/2", "/b/1"]


def test_urls_that_ended_are_replaced_and_nothing_is_sent_twice() -> None:
    service = Service(refuses=lambda issue: issue == 1 and bool(service.stored))

    send_all(service)

    assert [len(parts) for parts in service.asked] == [2, 2]
    assert service.stored == ["/a/1", "/a/2", "/b/1"]


def test_a_url_that_ended_before_it_was_used_is_replaced() -> None:
    service = Service(refuses=lambda issue: issue == 1)

    send_all(service)

    assert service.stored == ["/a/1", "/a/2", "/b/1"]


def test_a_store_that_refuses_two_new_urls_is_believed() -> None:
    service = Service(refuses=lambda issue: True)

    with pytest.raises(RemoteProblem, match="AccessDenied"):
        send_all(service)

    assert len(service.asked) == 2
