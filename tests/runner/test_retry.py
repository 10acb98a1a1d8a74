"""What is tried again, for how long, and what ends it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from lastgood.errors import NoRoom, StaleSequence, Unavailable
from lastgood.runner.problems import Cancelled
from lastgood.runner.wire.transport import raise_problem, retry_after
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.retry import Retry, Transient
from lastgood.runner.working.stopping import Stop

QUICK = Retry(timedelta(seconds=60), timedelta(milliseconds=1), timedelta(milliseconds=4))
PATIENT = Retry(timedelta(minutes=30))
AT_ONCE_SECONDS = 60  # on a busy machine, and far less than each of the waits


def unavailable() -> Unavailable:
    return Unavailable(what="the coordinator", reason="it restarts")


def answer(status: int, headers: dict[str, str] | None = None, problem: str = "") -> httpx.Response:
    return httpx.Response(
        status,
        headers=headers,
        json={"type": problem, "detail": "said"},
        request=httpx.Request("GET", "http://c/x"),
    )


def test_a_failure_that_passes_is_not_seen() -> None:
    failures = [Transient(unavailable()), Transient(unavailable())]

    def sometimes() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert QUICK.call(sometimes, Stop()) == "done"


def test_the_last_error_is_raised_when_patience_ends() -> None:
    def never() -> None:
        raise Transient(unavailable())

    with pytest.raises(Unavailable):
        Retry(timedelta(milliseconds=30), timedelta(milliseconds=1)).call(never, Stop())


def test_patience_begins_anew_behind_what_was_reached() -> None:
    far = 0

    def a_step_each_time() -> None:
        nonlocal far
        time.sleep(0.02)
        far += 1
        if far < 6:
            raise Transient(unavailable())

    hurried = Retry(timedelta(milliseconds=50), timedelta(milliseconds=1))
    hurried.call(a_step_each_time, Stop(), lambda: far)
    assert far == 6

    far = 0
    with pytest.raises(Unavailable):
        hurried.call(a_step_each_time, Stop())


def test_a_wait_longer_than_the_patience_is_not_begun() -> None:
    began = time.monotonic()

    def much_later() -> None:
        raise Transient(unavailable(), timedelta(hours=1))

    with pytest.raises(Unavailable):
        PATIENT.call(much_later, Stop())
    assert time.monotonic() - began < AT_ONCE_SECONDS


def test_retry_after_is_waited_for() -> None:
    tries: list[float] = []

    def once_refused() -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise Transient(unavailable(), timedelta(milliseconds=150))

    QUICK.call(once_refused, Stop())

    assert tries[1] - tries[0] >= 0.15


def test_stop_ends_a_wait_at_once() -> None:
    stop = Stop()

    def fail() -> None:
        raise Transient(unavailable(), timedelta(minutes=10))

    threading.Timer(0.05, stop.request, [Cancelled(what="save")]).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        PATIENT.call(fail, stop)
    assert time.monotonic() - began < AT_ONCE_SECONDS


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_transient(status: int) -> None:
    with pytest.raises(Transient):
        raise_problem(answer(status))


def test_refusals_are_final() -> None:
    with pytest.raises(StaleSequence):
        raise_problem(answer(409, problem="stale-sequence"))
    with pytest.raises(NoRoom):
        raise_problem(answer(507, problem="no-room"))


def test_an_s3_error_is_named_by_its_code() -> None:
    body = "<Error><Code>NoSuchUpload</Code><Message>It is gone</Message></Error>"
    request = httpx.Request("PUT", "http://s3/bucket/key?X-Amz-Signature=secret")
    response = httpx.Response(404, text=body, request=request)

    with pytest.raises(Exception, match="answered 404, NoSuchUpload: It is gone") as caught:
        raise_problem(response)
    assert "secret" not in str(caught.value)


def test_retry_after_is_read_in_both_forms_by_the_servers_clock() -> None:
    served = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    date = format_datetime(served, usegmt=True)
    later = format_datetime(served + timedelta(seconds=9), usegmt=True)

    assert retry_after(answer(503, {"Retry-After": "7"})) == timedelta(seconds=7)
    assert retry_after(answer(503, {"Retry-After": later, "Date": date})) == timedelta(seconds=9)
    assert retry_after(answer(503, {"Retry-After": date, "Date": later})) == timedelta(0)
    assert retry_after(answer(503, {"Retry-After": "soon"})) is None
    assert retry_after(answer(503, {"Retry-After": "9" * 30})) is None
    assert retry_after(answer(503)) is None


def test_work_in_parallel_answers_in_order() -> None:
    assert in_parallel(lambda n: n * n, range(20), workers=3, stop=Stop()) == [
        n * n for n in range(20)
    ]
    assert in_parallel(lambda n: n, [], workers=3, stop=Stop()) == []


def test_the_first_failure_ends_all_work_and_is_raised() -> None:
    stop = Stop()
    done: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise StaleSequence(stage="s", current="1.2", asked="1.1")
        stop.wait(timedelta(minutes=10))
        done.append(number)

    began = time.monotonic()
    with pytest.raises(StaleSequence):
        in_parallel(work, range(10), workers=2, stop=stop)
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert done == []
