"""Connections: what may pass is told from what is final, and every failure is named."""

from __future__ import annotations

import email.utils
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import httpx

from lastgood.errors import LastgoodError
from lastgood.runner.problems import RemoteProblem, Unreachable, problem_of
from lastgood.runner.working.retry import Transient

CONNECT_TIMEOUT = timedelta(seconds=10)
SILENCE_TIMEOUT = timedelta(seconds=120)  # the longest wait for the next bytes, either way
IDLE_LIMIT = timedelta(seconds=3)  # below the 5 s after which uvicorn closes an idle connection
AGENT = "lastgood-runner"
TIMEOUT = httpx.Timeout(
    SILENCE_TIMEOUT.total_seconds(), connect=CONNECT_TIMEOUT.total_seconds(), pool=None
)
MAY_PASS = frozenset({408, 429})  # the only refusals that ask to be tried again
NO_ROOM = 507  # a decision, not a failure: the next sweep is further away than any patience
# What S3 says with a 400, though it is about the connection and not about the request.
_SLOW_DOWN = "SlowDown"
_PASSING_CODES = frozenset({"RequestTimeout", "IncompleteBody", _SLOW_DOWN})
_ASKS_FOR_LESS = frozenset({429, 503})  # too many requests, or more than it can bear
# What S3 says of a URL that has ended, beside 403: the credentials that signed it have.
_ENDED_CODES = frozenset({"ExpiredToken", "TokenRefreshRequired"})
_STORE_REFUSES = 403
_S3_ERROR = re.compile(r"<Code>([^<]+)</Code>(?:\s*<Message>([^<]*)</Message>)?")


class _WithoutSignatures(logging.Filter):
    """httpx logs each URL; a presigned one is a credential."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                part.copy_with(query=None)
                if isinstance(part, httpx.URL) and b"ignature=" in part.query
                else part
                for part in record.args
            )
        return True


logging.getLogger("httpx").addFilter(_WithoutSignatures())


@contextmanager
def transport_failures(url: str) -> Iterator[None]:
    """Turn failures of the connection into Transient."""
    try:
        yield
    except httpx.TransportError as failure:
        reason = f"{type(failure).__name__}: {failure}"
        raise Transient(Unreachable(where=shown_url(url), reason=reason)) from failure


def raise_problem(response: httpx.Response) -> None:
    """Raise what any answer but a success means: Transient where trying again may help."""
    if response.is_success:
        return
    error = _error_of(response)
    status = response.status_code
    code = error.facts.get("problem")
    passes = status in MAY_PASS or (status >= 500 and status != NO_ROOM)
    if passes or code in _PASSING_CODES:
        asks_for_less = status in _ASKS_FOR_LESS or code == _SLOW_DOWN
        raise Transient(error, retry_after(response), asks_for_less=asks_for_less)
    raise error


def url_has_ended(refused: RemoteProblem) -> bool:
    """Whether a store's refusal of a presigned URL may be overcome by a new one."""
    facts = refused.facts
    return facts["http_status"] == _STORE_REFUSES or facts["problem"] in _ENDED_CODES


def _error_of(response: httpx.Response) -> LastgoodError:
    where = shown_url(str(response.url))
    if "json" in response.headers.get("Content-Type", ""):
        with suppress(ValueError):  # what a proxy says, or only half of what was said
            return problem_of(response.json(), response.status_code, where)
    found = _S3_ERROR.search(response.text)
    request = response.headers.get("x-amz-request-id", "unknown")
    document = (
        {"type": found[1], "detail": f"{found[2] or found[1]} (request {request})"}
        if found
        else response.text or "nothing"
    )
    return problem_of(document, response.status_code, where)


def retry_after(response: httpx.Response) -> timedelta | None:
    """The Retry-After of an answer, in either of its forms."""
    text = response.headers.get("Retry-After", "")
    try:
        if text.isdecimal():
            return timedelta(seconds=int(text))
        until = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(until.astimezone(UTC) - answered_at(response), timedelta(0))


def answered_at(response: httpx.Response) -> datetime:
    """When the server says that it answered: waits are counted by its clock, not by ours."""
    try:
        return email.utils.parsedate_to_datetime(response.headers["Date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


def shown_url(url: str) -> str:
    """The URL without its query, which may be a signature."""
    return url.partition("?")[0]
