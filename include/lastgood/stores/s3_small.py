"""Small objects of an S3 store (manifests, markers, control keys): written once, never replaced.

Where a server refuses a conditional write only sometimes, or never, the first version since the
last delete marker counts under a key: it is read, and whoever wrote a later one takes it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.stores.base import Key, KeyExists, KeyMissing, StoredObject, StoreError
from lastgood.stores.keys import path_of
from lastgood.stores.s3_client import UNSUPPORTED, code_of, translated
from lastgood.stores.s3_digests import header_of
from lastgood.stores.s3_encryption import Encryption
from lastgood.stores.s3_objects import S3Objects
from lastgood.stores.s3_reader import S3Reader

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PUT_ATTEMPTS = 5  # of a conditional write that lost a race (409)


class S3SmallObjects:
    """The small objects below one prefix of one bucket."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        bucket: str,
        prefix: str,
        objects: S3Objects,
        stat: Callable[[Key], StoredObject | None],
        *,
        first_counts: bool,
        versioned: bool,
        attests: bool,
        encryption: Encryption,
    ) -> None:
        """`stat` is the store's; `attests`: the server checks what it receives against its
        SHA-256."""
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._objects = objects
        self._stat = stat
        self._first_counts = first_counts
        self._versioned = versioned
        self._attests = attests
        self._encryption = encryption

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        """See `base.Store.put_new`."""
        path_of(self._store, key)
        for _ in range(PUT_ATTEMPTS):
            # The look before is for servers that ignore If-None-Match.
            there = self._objects.first(key) if self._first_counts else self._stat(key)
            if there is not None:
                if there.size_bytes != len(data) or self.read(key, len(data)) != data:
                    raise KeyExists(store=self._store, key=key)
                return there
            written = self._put_if_none(key, data)
            if written is not None and self._stays(written):
                return written
        raise StoreError(store=self._store, key=key, reason="another writer was always first")

    def _stays(self, written: StoredObject) -> bool:
        """Whether what was just written is what counts under its key; if not, it is taken back."""
        if not self._first_counts:
            return True
        first = self._objects.first(written.key)
        if first is None or first.version_id == written.version_id:
            return True
        list(self._objects.delete([written]))
        return False

    def _put_if_none(self, key: Key, data: bytes) -> StoredObject | None:
        """None if somebody else wrote meanwhile, whatever became of it."""
        request: Any = {**self._where(key), "Body": data, **self._encryption.request}
        if self._attests:
            request["ChecksumSHA256"] = header_of(hashlib.sha256(data).hexdigest())
        with translated(self._store, key, "write"):
            try:
                answer = self._client.put_object(**request, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
                    return None
                if code_of(error) not in UNSUPPORTED:
                    raise
                answer = self._client.put_object(**request)
        version_id = answer.get("VersionId") if self._versioned else None
        return StoredObject(key, len(data), version_id=version_id)

    def read(self, key: Key, limit_bytes: int) -> bytes:
        """See `base.Store.read`."""
        where = self._where(key)
        if self._first_counts:
            first = self._objects.first(key)
            if first is None:
                raise KeyMissing(store=self._store, key=key)
            where["VersionId"] = first.version_id
        with closing(S3Reader(self._client, self._store, key, where, 0, limit_bytes + 1)) as reader:
            data: bytes = reader.read()
        if len(data) > limit_bytes:
            raise StoreError(store=self._store, key=key, reason=f"larger than {limit_bytes} bytes")
        return data

    def _where(self, key: Key) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}
