"""A lease is renewed in time, and never ends unnoticed."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lastgood.errors import FencedGeneration, Unavailable
from lastgood.runner.problems import problem_of
from lastgood.runner.receiving.reading import Reading
from lastgood.runner.wire.client import Client
from lastgood.runner.wire.heartbeat import Heartbeat
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.retry import Retry, Transient

SOON = timedelta(milliseconds=5)


def unavailable() -> Transient:
    return Transient(Unavailable(what="the coordinator", reason="it restarts"))


PASSING = [unavailable(), problem_of("<html>default backend - 404</html>", 404, "http://c")]


@pytest.mark.parametrize("failure", PASSING)
def test_beats_go_on_through_failures_that_pass(failure: Exception) -> None:
    beats: list[str] = []
    enough = threading.Event()

    def beat() -> timedelta:
        beats.append("beat")
        if len(beats) >= 6:
            enough.set()
        if len(beats) % 2:
            raise failure
        return SOON

    heartbeat = Heartbeat(beat, SOON, lambda error: pytest.fail(str(error)), name="test")

    assert enough.wait(60)
    heartbeat.close()


@pytest.mark.parametrize(
    "refusal", [FencedGeneration(generation=1, stage="s", reason="r"), KeyError("a fault of ours")]
)
def test_any_other_error_is_told_once_and_ends_the_beats(refusal: Exception) -> None:
    told: list[Exception] = []
    heard = threading.Event()

    def hear(error: Exception) -> None:
        told.append(error)
        heard.set()

    def beat() -> timedelta:
        raise refusal

    heartbeat = Heartbeat(beat, SOON, hear, name="test")

    assert heard.wait(60)
    heartbeat.close()
    assert told == [refusal]


def test_a_lease_that_was_replaced_while_it_was_renewed_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewed: list[str] = []
    begun, enough = threading.Event(), threading.Event()
    leases = iter("ab")

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if not path.endswith("/renew"):
            return httpx.Response(200, json={})
        renewed.append(path.split("/")[-2])
        if renewed == ["a"]:
            assert begun.wait(60)
            reading.replace("a", "model")  # as another thread does, whose URL has ended
            return httpx.Response(404, json={"type": "not-found", "detail": "no lease a"})
        enough.set()
        return httpx.Response(200, json={"expires_at": "2100-01-01T00:00:00+00:00"})

    def lease(_: Any) -> Any:
        name = next(leases)
        checkpoint = SimpleNamespace(position="w/s/1.1")
        urls = {"model": name}
        return SimpleNamespace(
            id=name, token=name, how="presigned", urls=urls, checkpoint=checkpoint, renew_after=SOON
        )

    monkeypatch.setattr("lastgood.runner.receiving.reading.Lease.from_json", lease)
    client = Client.of(httpx.Client(transport=httpx.MockTransport(answer)))
    coordinator = Coordinator.at("http://127.0.0.1:1", "key", retry=Retry(), client=client)
    reading = Reading(coordinator, "w", "s", "latest", "test")
    begun.set()

    assert enough.wait(60)
    reading.close()
    assert set(renewed[1:]) == {"b"}
    assert coordinator.stop.reason is None


def test_the_next_beat_comes_when_the_last_one_said() -> None:
    beats: list[timedelta] = []
    third = threading.Event()

    def beat() -> timedelta:
        beats.append(SOON)
        if len(beats) == 3:
            third.set()
            return timedelta(hours=1)
        return SOON

    heartbeat = Heartbeat(beat, SOON, lambda error: None, name="test")

    assert third.wait(60)
    heartbeat.close()
    assert len(beats) == 3
