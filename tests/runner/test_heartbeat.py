"""A lease is renewed in time, and never ends unnoticed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from lastgood.errors import FencedGeneration, Unavailable
from lastgood.runner.problems import problem_of
from lastgood.runner.wire.heartbeat import Heartbeat
from lastgood.runner.working.retry import Transient

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
