"""What S3 says when it refuses, by kind: each kind is its own error, with the way out.

An error is told after the retries are over. Throttling, timeouts, broken connections, errors of the
server and errors inside a 200 were tried again by then; a bucket in another region was followed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from botocore.exceptions import (
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    TokenRetrievalError,
)
from urllib3.exceptions import HTTPError

from lastgood.stores.base import (
    AccessRefused,
    KeyExists,
    KeyMissing,
    PartInvalid,
    StoreError,
    UploadGone,
)
from lastgood.stores.s3_answers import REQUEST_ID

MISSING = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})
UNKNOWN_CREDENTIALS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"})
REFUSED = UNKNOWN_CREDENTIALS | {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
BAD_PARTS = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall"})
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
THROTTLED = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded"}
    | {"BandwidthLimitExceeded", "429"}
)
SKEWED = frozenset({"RequestTimeTooSkewed", "RequestInTheFuture"})
ELSEWHERE = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "301", "307"}
)
# A key of SSE-KMS is refused by a code of its own (AWS), or by that of something else (Ceph says
# that the access key is unknown, AWS that access is denied) and words about it. Where a message
# names the action that was refused, that decides; the object's own key in it may be any words.
KMS_CODES = "KMS."
KMS_WORDS = re.compile(r"\bkms(?::\w|-key-?id\b| (?:managed )?key\b)", re.IGNORECASE)
REFUSED_ACTION = re.compile(r"not authorized to perform:? (\w+):\w", re.IGNORECASE)
# What may become of one key of a bulk delete, and may not the next time.
PASSING = THROTTLED | {"InternalError", "ServiceUnavailable", "OperationAborted", "RequestTimeout"}


class StoreThrottled(StoreError):
    """Store {store} throttles: {action}{of} was refused each time it was tried: {reason}.
    Let fewer tasks at it (the pool of its DAGs), or ask its operators for more."""

    type = "store-throttled"
    is_there = True


class StoreSilent(StoreError):
    """Store {store} gave no whole answer to {action}{of}, however often it was asked:
    {reason}. Look at the network between here and its endpoint."""

    type = "store-silent"


class CredentialsExpired(AccessRefused):
    """Store {store} refused {action}{of}, for its credentials have ended: {reason}. Renew
    those of its connection; what was begun can then go on."""

    type = "store-credentials-expired"
    is_there = True


class WrongCredentials(AccessRefused):
    """Store {store} does not know its credentials ({action}{of}): {reason}. Set login and
    password of its connection to the keys of a user of this endpoint."""

    type = "store-wrong-credentials"


class KmsKeyRefused(StoreError):
    """Store {store}: its server cannot use the key of SSE-KMS ({action}{of}): {reason}. What is
    written takes the `kms_key` of the store's file, what is read the key that it was written with:
    correct that setting, or have the key enabled and allowed to the user of its connection."""

    type = "store-kms-key-refused"


class BucketMissing(StoreError):
    """Store {store}: there is no bucket {bucket!r} at the endpoint of its connection ({action}):
    {reason}. Make it, or correct the store's file or the connection."""

    type = "store-bucket-missing"


class ClockSkewed(AccessRefused):
    """Store {store} refused {action}{of}, for the clock of this machine is not the store's:
    {reason}. Set the clock by NTP."""

    type = "store-clock-skewed"
    is_there = True


class WrongRegion(StoreError):
    """Store {store}: its bucket is not in the region, or not at the endpoint, that its connection
    names: {action}{of} was sent to {region}: {reason}. Name that at the connection."""

    type = "store-wrong-region"
    is_there = True


class VersioningSuspended(StoreError):
    """Store {store}: versioning of bucket {bucket!r} is suspended, and there a deletion destroys or
    hides, depending on when an object was written. Enable it, or use another bucket."""

    type = "store-versioning-suspended"
    is_there = True


class VersioningChanged(StoreError):
    """Store {store}: the versioning of bucket {bucket!r} was changed since the store was opened, so
    nothing is hidden, shown or deleted. `lastgood store probe {store}` finds what holds now."""

    type = "store-versioning-changed"
    is_there = True


def meaning_of(
    response: Mapping[str, Any],
    reason: str,
    store: str,
    key: str,
    action: str,
    *,
    bucket: str = "",
    upload: str | None = None,
    part: int = 0,
) -> StoreError:
    """What the error response of S3 means for a store; `upload` and `part` where it was about
    one, `bucket` where it may be about all of it."""
    about = response.get("Error", {})
    code = str(about.get("Code", ""))
    where = {"store": store, "key": key, "action": action, "reason": reason, "bucket": bucket}
    if code == "NoSuchUpload" or (upload is not None and code in MISSING):
        return UploadGone(store=store, upload=upload, key=key)
    if code in MISSING and (key or not bucket):
        return KeyMissing(store=store, key=key)
    if code in ("PreconditionFailed", "412"):
        return KeyExists(store=store, key=key)
    if code in BAD_PARTS:
        return PartInvalid(store=store, key=key, part=part, reason=reason)
    if code == "NoSuchBucket" or code in MISSING:
        return BucketMissing(**{**where, "bucket": about.get("BucketName") or bucket})
    if code in ELSEWHERE:
        return WrongRegion(**where, region=_region(response))
    if _is_about_kms(code, str(about.get("Message") or ""), key):
        return KmsKeyRefused(**where)
    if code == "503" and _request_id_of(response):  # of a HEAD: SlowDown has no body there
        return StoreThrottled(**where)
    for codes, kind in _KINDS.items():
        if code in codes:
            return kind(**where)
    return StoreError(store=store, key=key, bucket=bucket, reason=f"{action}: {reason}")


def _is_about_kms(code: str, message: str, key: str) -> bool:
    if code in THROTTLED | PASSING:  # a server whose KMS is busy passes
        return False
    if code.startswith(KMS_CODES):
        return True
    refused = REFUSED_ACTION.search(message)
    if refused is not None:
        return refused[1].lower() == "kms"
    if "/" in key:  # one word alone may be any of the message's
        for name in (key, quote(key), quote_plus(key, safe="/")):
            message = re.sub(rf"(?<!\w)(?:\S*/)?{re.escape(name)}(?!\w)", "", message)
    return KMS_WORDS.search(message) is not None


_KINDS: Mapping[frozenset[str], type[StoreError]] = {
    UNKNOWN_CREDENTIALS: WrongCredentials,
    REFUSED: AccessRefused,
    EXPIRED: CredentialsExpired,
    THROTTLED: StoreThrottled,
    SKEWED: ClockSkewed,
}


def silence(error: Exception, store: str, key: str, action: str, *, bucket: str = "") -> StoreError:
    """What it means that there was no answer, or only half of one: `error` is botocore's, or what
    it lets through of the connection's."""
    where = {"store": store, "key": key, "bucket": bucket}
    if isinstance(error, NoCredentialsError | CredentialRetrievalError | TokenRetrievalError):
        return CredentialsExpired(**where, action=action, reason=str(error))
    if isinstance(error, ConnectionError | HTTPClientError | HTTPError):
        return StoreSilent(**where, action=action, reason=str(error))
    return StoreError(**where, reason=f"{action}: {error}")


def _request_id_of(response: Mapping[str, Any]) -> str | None:
    headers: Mapping[str, str] = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers.get(REQUEST_ID)


def _region(response: Mapping[str, Any]) -> str:
    about = response.get("Error", {})
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    named = about.get("Region") or headers.get("x-amz-bucket-region")
    place = about.get("Endpoint") or headers.get("location") or "a place it does not name"
    return f"region {named}" if named else str(place)
