"""The S3 client: how it is configured, and what its errors mean."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from lastgood.connections import connection_of
from lastgood.stores.hurry import CONNECT_WITHIN
from lastgood.stores.s3_answers import REQUEST_ID, believe_only_s3
from lastgood.stores.s3_errors import MISSING as MISSING
from lastgood.stores.s3_errors import REFUSED as REFUSED
from lastgood.stores.s3_errors import meaning_of, silence
from lastgood.stores.s3_pages import parse_listings_fast
from lastgood.stores.s3_patience import follow_no_circle, hurry_when_asked

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONFIG = Config(
    signature_version="s3v4",
    retries={"mode": "standard", "max_attempts": 5},
    max_pool_connections=64,
    connect_timeout=CONNECT_WITHIN.total_seconds(),
    read_timeout=60,
    tcp_keepalive=True,
    # Checksums that nobody asked for are refused, or break presigned URLs, on compatible servers.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)

UNSUPPORTED = frozenset({"NotImplemented", "501", "MethodNotAllowed", "405"})


def client_from(connection: str | None) -> S3Client:
    """A client with the credentials, endpoint and region of an Airflow connection (also one given
    as `AIRFLOW_CONN_<ID>`); with None, of boto3's own configuration. Raises NoConnection, and
    ValueError or BotoCoreError for one that names no endpoint, region or profile."""
    if connection is None:
        return prepared(boto3.client("s3", config=CONFIG))
    connection_of(connection)  # the hook takes whatever credentials it finds in place of none
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    hook = S3Hook(aws_conn_id=connection)
    own = hook.config
    config = CONFIG if own is None else CONFIG.merge(own)
    return prepared(hook.get_client_type(config=config))


def metrics_from(connection: str | None) -> Any:
    """A CloudWatch client with the same credentials and region."""
    if connection is None:
        return boto3.client("cloudwatch")
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    return AwsGenericHook(aws_conn_id=connection, client_type="cloudwatch").get_conn()


def prepared(client: S3Client) -> S3Client:
    """Give a client the habits that the store relies on."""
    parse_listings_fast(client)
    hurry_when_asked(client)
    believe_only_s3(client)
    follow_no_circle(client)
    client.meta.events.register("before-call.s3.DeleteObjects", _prove_body)
    return client


class BulkForm(StrEnum):
    """By what a bulk delete proves its body. Some servers refuse it without Content-MD5, others
    refuse what the SDK sends by itself."""

    BOTH = "both"
    MD5 = "md5"
    CRC32 = "crc32"


BULK_FORM: ContextVar[BulkForm] = ContextVar("bulk_form", default=BulkForm.BOTH)


@contextmanager
def in_form(form: BulkForm | None) -> Iterator[None]:
    """Bulk deletes of this thread prove their body so."""
    chosen = BULK_FORM.set(form or BulkForm.BOTH)
    try:
        yield
    finally:
        BULK_FORM.reset(chosen)


def _prove_body(params: dict[str, Any], **_: Any) -> None:
    form = BULK_FORM.get()
    if form is not BulkForm.CRC32:
        digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
        params["headers"].setdefault("Content-MD5", base64.b64encode(digest).decode())
    if form is BulkForm.MD5:
        params["context"].pop("checksum", None)


def code_of(error: ClientError) -> str:
    """The S3 error code, or the HTTP status where there is no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def translated(
    store: str,
    key: str,
    action: str,
    *,
    bucket: str = "",
    upload: str | None = None,
    part: int = 0,
) -> Iterator[None]:
    """Turn what S3 says into what a store says. Retries are over by then. What is asked of a whole
    bucket has an empty key, and names the bucket."""
    try:
        yield
    except ClientError as error:
        raise meaning_of(
            error.response,
            described(error),
            store,
            key,
            action,
            bucket=bucket,
            upload=upload,
            part=part,
        ) from error
    except (BotoCoreError, HTTPError, ResponseParserError) as error:
        raise silence(error, store, key, action, bucket=bucket) from error


def described(error: ClientError) -> str:
    """Code, message and request id: what the backend's operators ask for."""
    about = error.response.get("Error", {})
    told = ": ".join(said for said in (about.get("Code"), about.get("Message")) if said)
    return f"{told} (request {request_of(error.response)})"


def request_of(answer: Mapping[str, Any]) -> str:
    """The request id of an answer; of one without a body it is among the headers alone."""
    told = answer.get("ResponseMetadata", {})
    named = told.get("RequestId") or told.get("HTTPHeaders", {}).get(REQUEST_ID)
    return str(named or "unknown")
