"""Asking an S3 server: scratch keys, bare requests, and how one was refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from lastgood.rules.store_profile import Answer, Finding
from lastgood.stores.base import Prefix
from lastgood.stores.s3_client import code_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from lastgood.stores.s3 import S3Store


class Asking:
    """Questions about one bucket, each with keys of its own below the scratch prefix."""

    def __init__(self, store: S3Store, prefix: Prefix) -> None:
        self.store = store
        self.client: S3Client = store.client
        self.prefix = prefix

    def begin(self, name: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an upload; where its object will be, and the upload itself."""
        where = self.where(name)
        begun = self.client.create_multipart_upload(**where, **more)
        return where, {**where, "UploadId": begun["UploadId"]}

    def put(self, name: str, data: bytes) -> dict[str, Any]:
        """Write an object; where it is."""
        where = self.where(name)
        self.client.put_object(**where, Body=data)
        return where

    def where(self, name: str) -> dict[str, Any]:
        """Bucket and key of a scratch object."""
        return {"Bucket": self.store.bucket, "Key": self.key(name)}

    def key(self, name: str) -> str:
        """The key of a scratch object in the bucket."""
        return f"{self.store.prefix}{self.prefix}{name}"

    def send(self, method: str, url: str, body: bytes = b"") -> int:
        """The status that a bare request gets. It goes the client's own way: proxy and TLS."""
        request = AWSRequest(method=method, url=url, data=body).prepare()
        session = self.client._endpoint.http_session  # type: ignore[attr-defined]
        status: int = session.send(request).status_code
        return status


def refusal(request: Callable[[], object]) -> str | None:
    """How a request was refused; None if it was not."""
    try:
        request()
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return f"HTTP {status} {code_of(error)}"
    return None


def finding(holds: bool, evidence: str) -> Finding:
    """Yes or no, and why."""
    return Finding(Answer.YES if holds else Answer.NO, evidence)


def sha256_header(data: bytes) -> str:
    """The SHA-256 of data as S3 takes it."""
    return base64_of(hashlib.sha256(data).digest())


def base64_of(digest: bytes) -> str:
    """A digest as S3 takes it."""
    return base64.b64encode(digest).decode()
