"""How long an answer of S3 is waited for, how often it is asked, and where a search ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ConnectTimeoutError

from lastgood.stores.hurry import ANSWER_WITHIN, HURRY

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

UNANSWERED_ATTEMPTS = 2  # a connection that was kept open may be dead where the server is not
REFUSED_ATTEMPTS = 3
_BUSY = 429
_REDIRECTIONS = (301, 302, 307)


def hurry_when_asked(client: S3Client) -> None:
    """Let a client's requests heed `hurry.hurried`."""
    client.meta.events.register("before-call.s3", _answer_soon)
    # Before botocore's own retries, which it has no other way to end for one request.
    client.meta.events.register_first("needs-retry.s3", _give_up_soon)


def _answer_soon(context: dict[str, Any], **_: Any) -> None:
    if HURRY.get():
        patience = min(context["client_config"].read_timeout, ANSWER_WITHIN.total_seconds())
        context["read_timeout"] = patience


def _give_up_soon(
    attempts: int,
    operation: Any,
    response: tuple[Any, dict[str, Any]] | None,
    caught_exception: Exception | None,
    **_: Any,
) -> None:
    if not HURRY.get():
        return
    if isinstance(caught_exception, ConnectTimeoutError):
        raise caught_exception
    if caught_exception is not None and attempts >= UNANSWERED_ATTEMPTS:
        raise caught_exception
    if response is not None and attempts >= REFUSED_ATTEMPTS:
        http, told = response
        if http.status_code >= 500 or http.status_code == _BUSY:  # a region is still followed
            raise ClientError(told, operation.name)  # type: ignore[arg-type]


def follow_no_circle(client: S3Client) -> None:
    """End botocore's search for a bucket's region where the server's answer to that very search is
    another redirection without a region: it would follow that without an end."""
    client.meta.events.register_first("needs-retry.s3.HeadBucket", _end_circle)


def _end_circle(operation: Any, response: tuple[Any, dict[str, Any]] | None, **_: Any) -> None:
    if response is None or response[0].status_code not in _REDIRECTIONS:
        return
    told = response[1]
    if "x-amz-bucket-region" not in told["ResponseMetadata"]["HTTPHeaders"]:
        raise ClientError(told, operation.name)  # type: ignore[arg-type]
