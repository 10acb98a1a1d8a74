"""Whether an answer is one that S3 gives to what was asked.

Between a client and its server stand gateways, and some answer with pages of their own: a 200 of a
login page read as a listing without keys, a 404 of a gateway that lost its routes read as an object
that is gone. What does not look like S3's answer counts as a failure of the server: it is tried
again, and told if it stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NOT_S3 = "NotAnAnswerOfS3"
REQUEST_ID = "x-amz-request-id"
_LISTINGS = frozenset({"ListBucketResult", "ListVersionsResult"})
# The root of each document that something is concluded from.
_DOCUMENTS: Mapping[str, frozenset[str]] = {
    "ListObjectsV2": _LISTINGS,
    "ListObjectVersions": _LISTINGS,
    "ListMultipartUploads": frozenset({"ListMultipartUploadsResult"}),
    "ListParts": frozenset({"ListPartsResult"}),
    "CreateMultipartUpload": frozenset({"InitiateMultipartUploadResult"}),
    "CompleteMultipartUpload": frozenset({"CompleteMultipartUploadResult"}),
    "DeleteObjects": frozenset({"DeleteResult"}),
    "GetBucketVersioning": frozenset({"VersioningConfiguration"}),
    "GetBucketLifecycleConfiguration": frozenset({"LifecycleConfiguration"}),
    "GetObjectLockConfiguration": frozenset({"ObjectLockConfiguration"}),
    "GetObjectRetention": frozenset({"Retention"}),
    "GetObjectLegalHold": frozenset({"LegalHold"}),
    "GetObjectTagging": frozenset({"Tagging"}),
}
_WITH_ETAG = frozenset({"GetObject", "HeadObject", "PutObject", "UploadPart"})
_CONCLUSIVE = (403, 404)  # errors from which something is concluded
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?<(?:\w+:)?(\w+)")
_ERROR_END = re.compile(rb"</(?:\w+:)?(?:Error|ErrorResponse)>\s*$")
_BAD_GATEWAY = 502


def believe_only_s3(client: S3Client) -> None:
    """Let a client take what is no answer of S3 for a failed request."""
    client.meta.events.register("before-parse.s3", _Believing().look)


class _Believing:
    def __init__(self) -> None:
        # Whether this server was seen to name a request: in its answers to HEAD, and to others.
        self._names_requests = {True: False, False: False}

    def look(
        self,
        operation_model: Any,
        response_dict: dict[str, Any],
        customized_response_dict: dict[str, Any],
        **_: Any,
    ) -> None:
        wrong = self._wrong(operation_model.name, response_dict)
        if wrong is None:
            return
        message = f"its {response_dict['status_code']} {wrong}"
        customized_response_dict["Error"] = {"Code": NOT_S3, "Message": message}
        close = getattr(response_dict["body"], "close", None)
        if close is not None:
            close()
        response_dict.update(status_code=_BAD_GATEWAY, body=b"")

    def _wrong(self, operation: str, answer: Mapping[str, Any]) -> str | None:
        status, headers, body = answer["status_code"], answer["headers"], answer["body"]
        is_head, has_id = operation == "HeadObject", REQUEST_ID in headers
        self._names_requests[is_head] |= has_id
        if status in _CONCLUSIVE and (is_head or not body):
            if self._names_requests[is_head] and not has_id:
                return "has no request id, unlike others of this server"
        elif status in _CONCLUSIVE and not _is_error(body):
            return "comes with what is no error document"
        if not 200 <= status < 300:
            return None
        if operation in _WITH_ETAG and "etag" not in headers:
            return "has no ETag"
        documents = _DOCUMENTS.get(operation)
        # Some servers name a document for its operation.
        if documents and _root(body) not in documents | {f"{operation}Response"}:
            return f"comes without {' or '.join(sorted(documents))}"
        return None


def _is_error(body: bytes) -> bool:
    return _root(body) in ("Error", "ErrorResponse") and _ERROR_END.search(body) is not None


def _root(body: bytes) -> str:
    found = _ROOT.match(body)
    return found[1].decode() if found else ""
