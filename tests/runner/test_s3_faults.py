"""A job whose store fails, throttles, or ends its URLs: the checkpoint is saved and read whole, or
the refusal is told with the store's request id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from lastgood.runner import RemoteProblem, Unreachable, fetch
from lastgood.runner.problems import CorruptObject
from lastgood.stores import parts
from tests.faults.s3_proxy import REQUEST_ID, Answer, Rule, S3Proxy
from tests.runner.conftest import QUICK, RunningCoordinator, contents, write_checkpoint

MIB = 1 << 20
pytestmark = pytest.mark.parametrize("how", ["faulty"], indirect=True)

PART = r"^PUT .*partNumber=.*X-Amz-Signature"
# Sent last: its URL was granted with those of others, and not for its own sending just now.
LAST_PART = r"^PUT .*rng.*partNumber=.*X-Amz-Signature"
READ = r"^GET .*big\.bin.*X-Amz-Signature"
PAGE = Answer(200, "", page=b"<html>Sign in to the hotel</html>")
SLOW = Answer(503, "SlowDown", headers={"Retry-After": "0"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "PART_BYTES", 5 * MIB)
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "big.bin").write_bytes(os.urandom(11 * MIB))
    return folder


@pytest.fixture(autouse=True)
def _healed(s3_proxy: S3Proxy) -> Iterator[None]:
    yield
    s3_proxy.set()


SENDING = {
    "throttled": Rule(PART, SLOW, times=3),
    "broken connection": Rule(PART, lost=True, times=2),
    "lost answer": Rule(PART, cut_bytes=0),
    "failing server": Rule(PART, Answer(500, "InternalError"), times=2),
    "slow sender": Rule(PART, Answer(400, "RequestTimeout"), times=2),
    "page of a gateway": Rule(PART, PAGE, times=2),
    "URL that has ended": Rule(LAST_PART, Answer(403, "AccessDenied", "Request has expired")),
    "credentials that have ended": Rule(LAST_PART, Answer(400, "ExpiredToken")),
}


@pytest.mark.parametrize("rule", SENDING.values(), ids=SENDING.keys())
def test_a_checkpoint_is_saved_through_what_passes(
    coordinator: RunningCoordinator, s3_proxy: S3Proxy, folder: Path, rule: Rule
) -> None:
    s3_proxy.set(rule)
    with coordinator.workload().acquire() as run:
        run.save(folder, step=1)
    assert s3_proxy.faults == rule.times


READING = {
    "throttled": Rule(READ, SLOW, times=3),
    "broken connection": Rule(READ, cut_bytes=2 * MIB, times=3),
    "page of a gateway": Rule(READ, PAGE, times=2),
    "URL that has ended": Rule(READ, Answer(403, "AccessDenied", "Request has expired")),
    "credentials that have ended": Rule(READ, Answer(400, "ExpiredToken")),
}


def test_a_checkpoint_is_read_through_what_passes(
    coordinator: RunningCoordinator, s3_proxy: S3Proxy, folder: Path, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        run.save(folder, step=1)
    with coordinator.workload() as workload:
        for number, rule in enumerate(READING.values()):
            s3_proxy.set(rule)
            workload.download("latest", tmp_path / str(number))
            assert s3_proxy.faults == rule.times
            assert contents(tmp_path / str(number)) == contents(folder)


def test_an_object_that_the_store_lacks_is_damage_and_a_lost_bucket_is_not(
    coordinator: RunningCoordinator, s3_proxy: S3Proxy, folder: Path, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        run.save(folder, step=1)
    asked = {"workload": "mlp", "stage": coordinator.stage, "checkpoint": "latest", "reader": "x"}
    lent = httpx.post(
        f"{coordinator.url}/lastgood/v1/runner/readers",
        json=asked,
        headers={"Authorization": f"Bearer {coordinator.project_key}"},
    ).json()

    def fetched(into: str) -> object:
        return fetch.fetch(coordinator.url, lent["lease"], lent["token"], tmp_path / into)

    s3_proxy.set(Rule(READ, Answer(404, "NoSuchBucket"), times=None))
    with pytest.raises(RemoteProblem, match="NoSuchBucket"):
        fetched("bucket")
    s3_proxy.set(Rule(READ, Answer(404, "NoSuchKey"), times=None))
    with pytest.raises(CorruptObject, match=r"big\.bin .* is damaged.*NoSuchKey"):
        fetched("object")


def test_what_stays_is_told(
    coordinator: RunningCoordinator, s3_proxy: S3Proxy, folder: Path
) -> None:
    hurried = coordinator.workload(retry=replace(QUICK, patience=timedelta(seconds=1)))
    standing = [
        (Answer(503, "SlowDown"), "503, SlowDown"),
        (Answer(403, "RequestTimeTooSkewed"), "403, RequestTimeTooSkewed"),
        (Answer(301, "PermanentRedirect"), "301, PermanentRedirect"),
        (Answer(403, "AccessDenied"), "403, AccessDenied"),
        (PAGE, "200, not an answer of S3"),
    ]
    with hurried.acquire() as run:
        for answer, said in standing:
            s3_proxy.set(Rule(PART, answer, times=None))
            with pytest.raises(RemoteProblem, match=said) as caught:
                run.save(folder, step=1)
            assert answer is PAGE or REQUEST_ID in str(caught.value)
            assert "Signature" not in str(caught.value)
        s3_proxy.set(Rule(PART, lost=True, times=None))
        with pytest.raises(Unreachable):
            run.save(folder, step=1)
