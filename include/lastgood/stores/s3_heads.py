"""What an S3 server tells of one object without its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.stores.base import Key, StoredObject
from lastgood.stores.s3_client import MISSING, code_of, translated
from lastgood.stores.s3_digests import told_by

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Heads:
    """HEAD of the objects below one prefix of one bucket. `attests`: the server checks what it
    receives against its SHA-256, so that the one that it tells is believed."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        bucket: str,
        prefix: str,
        *,
        versioned: bool,
        attests: bool,
    ) -> None:
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._versioned = versioned
        self._attests = attests

    def stat(self, key: Key) -> StoredObject | None:
        """See `base.Store.stat`."""
        head = self.head(key)
        if head is None:
            return None
        sha256, composite = told_by(head) if self._attests else (None, None)
        return StoredObject(
            key,
            head["ContentLength"],
            version_id=head.get("VersionId") if self._versioned else None,
            modified_at=head.get("LastModified"),
            sha256=sha256,
            composite=composite,
        )

    def head(self, key: Key) -> Any:
        """The server's answer, None for a key that is not there. Raises StoreError."""
        asked: Any = {"Bucket": self._bucket, "Key": self._prefix + key}
        if self._attests:
            asked["ChecksumMode"] = "ENABLED"
        with translated(self._store, key, "stat"):
            try:
                return self._client.head_object(**asked)
            except ClientError as error:
                if code_of(error) in MISSING:
                    return None
                self._hear_why(error, asked)
                raise

    def _hear_why(self, refused: ClientError, asked: Any) -> None:
        """A HEAD is refused without a word: let a read say why."""
        if code_of(refused) in ("400", "403"):
            self._client.get_object(**asked, Range="bytes=0-0")["Body"].close()
