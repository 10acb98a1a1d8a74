"""The lifecycle rules of a bucket over S3."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.stores.lifecycle import Lifecycle, LifecycleUnsupported
from lastgood.stores.s3_client import UNSUPPORTED, code_of, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NONE = frozenset({"NoSuchLifecycleConfiguration", "NoSuchLifecycle", "404"})
_MINIMUM = "TransitionDefaultMinimumObjectSize"


class BucketLifecycle:
    """See `lifecycle.LifecycleRules`."""

    def __init__(self, client: S3Client, store: str, bucket: str, prefix: str) -> None:
        self._client = client
        self._store = store
        self.bucket = bucket
        self.prefix = prefix

    def read(self) -> Lifecycle:
        """Raises LifecycleUnsupported, AccessRefused, StoreError."""
        with translated(self._store, "", "read the lifecycle rules", bucket=self.bucket):
            try:
                answer: Any = self._client.get_bucket_lifecycle_configuration(Bucket=self.bucket)
            except ClientError as error:
                if code_of(error) in _NONE:
                    return Lifecycle(())
                self._explain(error)
                raise
        return Lifecycle(tuple(answer.get("Rules", ())), answer.get(_MINIMUM))

    def write(self, wanted: Lifecycle) -> None:
        """Replace all rules. Raises LifecycleUnsupported, AccessRefused, StoreError."""
        request: Any = {
            "Bucket": self.bucket,
            "LifecycleConfiguration": {"Rules": [dict(rule) for rule in wanted.rules]},
        }
        if wanted.minimum_size is not None:
            request[_MINIMUM] = wanted.minimum_size
        self._client.meta.events.register(
            "before-call.s3.PutBucketLifecycleConfiguration",
            _add_content_md5,
            unique_id="lastgood-lifecycle-md5",
        )
        with translated(self._store, "", "write the lifecycle rules", bucket=self.bucket):
            try:
                self._client.put_bucket_lifecycle_configuration(**request)
            except ClientError as error:
                self._explain(error)
                raise

    def _explain(self, error: ClientError) -> None:
        if code_of(error) in UNSUPPORTED:
            raise LifecycleUnsupported(
                store=self._store, key=self.bucket, reason=code_of(error)
            ) from error


def _add_content_md5(params: dict[str, Any], **_: Any) -> None:
    """Older servers refuse the rules without it."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"].setdefault("Content-MD5", base64.b64encode(digest).decode())
