"""What goes over the wire carries no token where it should not."""

from __future__ import annotations

import logging

import httpx
import pytest

from lastgood.errors import InvalidInput
from lastgood.runner import RemoteProblem, Workload
from lastgood.runner.wire.carrying import get_bytes
from lastgood.runner.wire.client import Client, new_client
from lastgood.runner.wire.http import API, Coordinator
from lastgood.runner.working.retry import Retry, Transient


def coordinator(url: str, client: Client | None = None) -> Coordinator:
    return Coordinator.at(url, "key", retry=Retry(), client=client or new_client())


def answering(status: int, text: str, content_type: str = "text/html") -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=text, headers={"Content-Type": content_type})

    return Client.of(httpx.Client(transport=httpx.MockTransport(answer)))


@pytest.mark.parametrize("url", ["http://10.0.0.7:8080", "http://lastgood.example", "ftp://x", "x"])
def test_no_token_goes_to_another_machine_in_the_clear(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        Workload(url, "key", workload="mlp", stage="pretrain")


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://c.example", "https://c.example/lastgood"),
        ("https://c.example/lastgood/", "https://c.example/lastgood"),
        ("https://c.example/airflow/lastgood", "https://c.example/airflow/lastgood"),
        ("http://localhost:80", "http://localhost:80/lastgood"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1/lastgood"),
        ("http://[::1]:1", "http://[::1]:1/lastgood"),
    ],
)
def test_urls_of_the_coordinator_are_below_where_it_answers(url: str, base: str) -> None:
    assert coordinator(url).absolute(f"{API}/objects/a/b?part=1") == (
        f"{base}/v1/runner/objects/a/b?part=1"
    )
    assert coordinator(url).absolute("https://s3.example/k?x=/lastgood/") == (
        "https://s3.example/k?x=/lastgood/"
    )


@pytest.mark.parametrize(
    ("status", "code", "asks_for_less"),
    [
        (503, "SlowDown", True),
        (503, "ServiceUnavailable", True),
        (429, "TooManyRequests", True),
        (400, "SlowDown", True),
        (500, "InternalError", False),
        (400, "RequestTimeout", False),
    ],
)
def test_an_answer_that_may_pass_tells_whether_less_is_asked_for(
    status: int, code: str, asks_for_less: bool
) -> None:
    client = answering(status, f"<Error><Code>{code}</Code></Error>", "application/xml")

    with (
        pytest.raises(Transient) as failure,
        get_bytes(client.objects, "https://s3.example/key", {}),
    ):
        pass
    assert failure.value.asks_for_less is asks_for_less


@pytest.mark.parametrize(("status", "text"), [(200, "<html>Sign in</html>"), (302, "moved")])
def test_an_answer_of_something_else_is_named(status: int, text: str) -> None:
    asked = coordinator("https://c.example", answering(status, text))

    with pytest.raises(RemoteProblem, match=rf"https://c\.example.* answered {status}.*{text}"):
        asked.ask("GET", "generations")


def test_a_page_in_the_place_of_an_answer_passes_once_the_coordinator_was_heard() -> None:
    pages = ["{}", "<html>Sign in</html>", "{}"]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=pages.pop(0))

    asked = coordinator(
        "https://c.example", Client.of(httpx.Client(transport=httpx.MockTransport(answer)))
    )
    asked.ask("GET", "generations")

    assert asked.ask("GET", "generations") == {}
    assert pages == []


def test_half_a_problem_document_is_named_by_its_text() -> None:
    asked = answering(403, '{"type": "x", "de', "application/problem+json").objects

    with (
        pytest.raises(RemoteProblem, match=r'answered 403.*"de'),
        get_bytes(asked, "https://s3", {}),
    ):
        pass


def test_signatures_of_presigned_urls_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="httpx")  # others in this process may have quietened it

    objects = answering(200, "bytes").objects
    with get_bytes(objects, "https://s3/b/k?X-Amz-Signature=secret", {}) as body:
        assert body.whole().content == b"bytes"

    assert "https://s3/b/k" in caplog.text
    assert "secret" not in caplog.text
