"""How object bytes travel: one interface, and the way of it that goes through httpx."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import httpx

from lastgood.runner.problems import RemoteProblem
from lastgood.runner.wire.transport import raise_problem, shown_url, transport_failures
from lastgood.runner.working.retry import Transient

Chunks = Iterable[memoryview]
Headers = Mapping[str, str]
Check = Callable[[str, int, Headers], None]  # of an answer's URL, status and headers
OBJECT = "application/octet-stream"


class Body(Protocol):
    """An answer whose bytes are still to be read, in one of two ways."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Headers:
        """Those of the answer; their names in any case."""

    def chunks(self, buffer: memoryview) -> Iterator[memoryview]:
        """The bytes as they come; a chunk is valid until the next. `buffer` may be used for them.
        Raises Transient where they end before everything that was announced."""

    def whole(self) -> httpx.Response:
        """The answer with all that it says, for one that is no object."""


class Carrier(Protocol):
    """Carries object bytes. For many threads."""

    def put(self, url: str, headers: Headers, size_bytes: int, chunks: Chunks) -> httpx.Response:
        """One PUT of `size_bytes` as they come; whatever is answered. Raises Transient, and what
        `chunks` raises."""

    def get(self, url: str, headers: Headers) -> AbstractContextManager[Body]:
        """One GET, for the block; whatever is answered. Raises Transient."""

    def close(self) -> None:
        """Close what is kept open."""


def put_bytes(
    carrier: Carrier,
    url: str,
    headers: Headers,
    size_bytes: int,
    chunks: Chunks,
    *,
    to_s3: bool = False,
) -> httpx.Response:
    """One PUT of `size_bytes` as they come. Raises Transient, or the error of the answer."""
    response = carrier.put(url, headers, size_bytes, chunks)
    raise_problem(response)
    if to_s3:
        check_is_of_s3(url, response.status_code, response.headers)
    return response


@contextmanager
def get_bytes(
    carrier: Carrier, url: str, headers: Headers, check: Check | None = None
) -> Iterator[Body]:
    """One GET whose body is read by the caller. Raises Transient, also where `check` does for a
    success, or the error of the answer."""
    with carrier.get(url, headers) as body:
        if not httpx.codes.is_success(body.status):
            raise_problem(body.whole())
        if check is not None:
            check(url, body.status, body.headers)
        yield body


def check_is_of_s3(url: str, status: int, headers: Headers) -> None:
    """S3 names an ETag for each object and part. A gateway's page with a 200 is neither: a part
    that it took is lost, and its bytes are not those of an object that is damaged."""
    if "ETag" not in headers:
        raise _of_something_else(url, status, "not an answer of S3", "a success without an ETag")


def check_is_an_object(url: str, status: int, headers: Headers) -> None:
    """The coordinator says of each object that it is bytes."""
    said = headers.get("Content-Type", "nothing")
    if said != OBJECT:
        raise _of_something_else(url, status, "not an object", f"{said} in place of {OBJECT}")


def _of_something_else(url: str, status: int, problem: str, detail: str) -> Transient:
    where = shown_url(url)
    return Transient(RemoteProblem(where=where, http_status=status, problem=problem, detail=detail))


@dataclass(frozen=True)
class ThroughHttpx:
    """Object bytes by httpx, which finds its way through every kind of proxy."""

    client: httpx.Client

    def put(self, url: str, headers: Headers, size_bytes: int, chunks: Chunks) -> httpx.Response:
        announced = {**headers, "Content-Length": str(size_bytes)}
        with transport_failures(url):
            return self.client.put(url, headers=announced, content=chunks)  # type: ignore[arg-type]

    @contextmanager
    def get(self, url: str, headers: Headers) -> Iterator[Body]:
        with transport_failures(url), self.client.stream("GET", url, headers=headers) as response:
            yield _HttpxBody(url, response)

    def close(self) -> None:
        """Nothing: whoever made the client closes it."""


@dataclass(frozen=True)
class _HttpxBody:
    _url: str
    _response: httpx.Response

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Headers:
        return self._response.headers

    def chunks(self, buffer: memoryview) -> Iterator[memoryview]:
        for chunk in self._response.iter_raw():
            yield memoryview(chunk)

    def whole(self) -> httpx.Response:
        self._response.read()
        return self._response
