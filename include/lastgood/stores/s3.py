"""A prefix of an S3 bucket as a store: multipart uploads by presigned URLs, and nothing
replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import ClientError

from lastgood.rules.shards import Shard
from lastgood.stores.base import (
    EVERYTHING,
    Key,
    KeyExists,
    KeyMissing,
    KeyOutcome,
    Listing,
    Outcome,
    Part,
    PendingUpload,
    Prefix,
    StoredObject,
    StoreError,
    StoreProfile,
    UploadId,
    Usage,
)
from lastgood.stores.begun import BegunUpload
from lastgood.stores.keys import path_of, prefix_path_of
from lastgood.stores.listing import StreamedListing
from lastgood.stores.parts import part_bytes_for
from lastgood.stores.s3_client import MISSING, UNSUPPORTED, client_from, code_of, translated
from lastgood.stores.s3_objects import S3Objects
from lastgood.stores.s3_reader import S3Reader
from lastgood.stores.s3_uploads import S3Uploads

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PUT_ATTEMPTS = 5  # of a conditional write that lost a race (409)


def open_s3(name: str, bucket: str, prefix: str, connection: str | None) -> S3Store:
    """Open the store behind an Airflow connection."""
    return S3Store(name, client_from(connection), bucket, prefix)


class S3Store:
    """See `base.Store` for what each method promises. It attests nothing, so verification reads: an
    ETag is no checksum, and additional checksums are believed only of a server that was seen to
    refuse a wrong one."""

    def __init__(self, name: str, client: S3Client, bucket: str, prefix: str = "") -> None:
        """`client` comes from `s3_client`. Reads the bucket's versioning. StoreError where it is
        suspended: a delete would then destroy, or hide, depending on when an object was written."""
        self.name = name
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client
        versioned = self._read_versioning()
        self.profile = StoreProfile(
            kind="s3",
            presigns=True,
            direct=False,
            attests_sha256=False,
            versioned=versioned,
            hides=versioned,
        )
        self._objects = S3Objects(client, name, bucket, self.prefix, versioned=versioned)
        self._uploads = S3Uploads(client, name, bucket, self.prefix)

    def _read_versioning(self) -> bool:
        with translated(self.name, "", f"read the versioning of bucket {self.bucket}"):
            try:
                status = self._client.get_bucket_versioning(Bucket=self.bucket).get("Status")
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
                return False
        if status == "Suspended":
            reason = f"versioning of bucket {self.bucket} is suspended; enable it, or use another"
            raise StoreError(store=self.name, key="", reason=reason)
        return status == "Enabled"

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        path_of(self.name, key)
        for _ in range(PUT_ATTEMPTS):
            # The look before is for servers that ignore If-None-Match.
            there = self.stat(key)
            if there is not None:
                if there.size_bytes != len(data) or self.read(key) != data:
                    raise KeyExists(store=self.name, key=key)
                return there
            written = self._put_if_none(key, data)
            if written is not None:
                return written
        raise StoreError(store=self.name, key=key, reason="another writer was always first")

    def _put_if_none(self, key: Key, data: bytes) -> StoredObject | None:
        """None if somebody else wrote meanwhile, whatever became of it."""
        request: Any = {**self._where(key), "Body": data}
        with translated(self.name, key, "write"):
            try:
                answer = self._client.put_object(**request, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
                    return None
                if code_of(error) not in UNSUPPORTED:
                    raise
                answer = self._client.put_object(**request)
        version_id = answer.get("VersionId") if self.profile.versioned else None
        return StoredObject(key, len(data), version_id=version_id)

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        with self.open(key, size_bytes=limit_bytes + 1) as stream:
            data = stream.read()
        if len(data) > limit_bytes:
            raise StoreError(store=self.name, key=key, reason=f"larger than {limit_bytes} bytes")
        return data

    def stat(self, key: Key) -> StoredObject | None:
        with translated(self.name, key, "stat"):
            try:
                head = self._client.head_object(**self._where(key))
            except ClientError as error:
                if code_of(error) in MISSING:
                    return None
                raise
        return StoredObject(
            key,
            head["ContentLength"],
            version_id=head.get("VersionId") if self.profile.versioned else None,
            modified_at=head.get("LastModified"),
        )

    def attested_parts(self, key: Key) -> Sequence[Part] | None:
        return None

    @contextmanager
    def open(
        self,
        key: Key,
        *,
        start: int = 0,
        size_bytes: int | None = None,
        version_id: str | None = None,
    ) -> Iterator[BinaryIO]:
        where = self._where(key)
        if version_id is not None:
            where["VersionId"] = version_id
        reader = S3Reader(self._client, self.name, key, where, start, size_bytes)
        with closing(reader):
            yield cast(BinaryIO, reader)

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        yield from self._objects.delete(objects)

    def prune(self, prefix: Prefix) -> None:
        """Nothing to do: a bucket has no folders."""

    def list(self, prefix: Prefix, *, versions: bool = False) -> Listing[StoredObject]:
        prefix_path_of(self.name, prefix)
        return StreamedListing(lambda: self._objects.listed(prefix, versions=versions))

    def list_shard(self, shard: Shard) -> Listing[StoredObject]:
        """See `sharded.ListsShards`: the server begins after the shard's lower bound."""
        versions = self.profile.versioned
        return StreamedListing(
            lambda: self._objects.listed(EVERYTHING, versions=versions, shard=shard)
        )

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        self._objects.hide(self._copy_prefix(prefix))

    def unquarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        self._objects.show(self._copy_prefix(prefix))

    def protect(self, prefix: Prefix) -> None:
        """Nothing to do: parts are bound to an upload, and nothing else may write here."""

    def usage(self, prefix: Prefix = EVERYTHING) -> Usage:
        prefix_path_of(self.name, prefix)
        objects = sum(one.size_bytes for one in self._objects.listed(prefix, versions=True))
        parts = sum(upload.part_bytes_held for upload in self._uploads.pending(prefix))
        return Usage(objects + parts, None, how="listing")

    def part_bytes(self, size_bytes: int) -> int:
        return part_bytes_for(size_bytes)

    def create_upload(self, key: Key, size_bytes: int) -> UploadId:
        path_of(self.name, key)
        return self._uploads.create(key)

    def presign_part(self, key: Key, upload_id: UploadId, number: int, expires_seconds: int) -> str:
        return self._uploads.presign(key, upload_id, number, expires_seconds)

    def presign_read(self, key: Key, expires_seconds: int, *, version_id: str | None = None) -> str:
        where = self._where(key)
        if version_id is not None:
            where["VersionId"] = version_id
        with translated(self.name, key, "presign a read"):
            return self._client.generate_presigned_url(
                "get_object", Params=where, ExpiresIn=expires_seconds, HttpMethod="GET"
            )

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        return self._uploads.write_part(key, upload_id, number, size_bytes, chunks)

    def parts(self, key: Key, upload_id: UploadId) -> Sequence[Part]:
        return self._uploads.parts(key, upload_id)

    def complete_upload(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> StoredObject:
        held = self._uploads.held_whole(key, upload_id, parts)
        # The look before is for servers that ignore If-None-Match on completion.
        if self.stat(key) is not None:
            raise KeyExists(store=self.name, key=key)
        self._uploads.complete(key, upload_id, held)
        published = self.stat(key)
        if published is None:
            raise KeyMissing(store=self.name, key=key)
        return published

    def abort_upload(self, key: Key, upload_id: UploadId) -> Outcome:
        return self._uploads.abort(key, upload_id)

    def uploads(self, prefix: Prefix) -> Listing[PendingUpload]:
        prefix_path_of(self.name, prefix)
        return StreamedListing(lambda: self._uploads.pending(prefix))

    def begun_uploads(self, prefix: Prefix) -> Listing[BegunUpload]:
        """See `begun.ListsBegun`: no request for the parts of each."""
        prefix_path_of(self.name, prefix)
        return StreamedListing(lambda: self._uploads.begun(prefix))

    def direct_path(self, prefix: Prefix) -> str:
        raise StoreError(store=self.name, key=prefix, reason="a bucket is no folder")

    def local_path(self, prefix: Prefix) -> str | None:
        return None

    def _copy_prefix(self, prefix: Prefix) -> Prefix:
        if not prefix_path_of(self.name, prefix):
            raise StoreError(store=self.name, key=prefix, reason="this is the whole store")
        return prefix

    def _where(self, key: Key) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": self.prefix + key}
