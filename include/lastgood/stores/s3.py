"""A prefix of an S3 bucket as a store: multipart uploads by presigned URLs, and nothing
replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import BotoCoreError

from lastgood.connections import NoConnection
from lastgood.rules.accounting import Number, Unreadable
from lastgood.rules.shards import Shard
from lastgood.rules.store_profile import Ability, Finding, FoundProfile, attests
from lastgood.stores.base import (
    EVERYTHING,
    Key,
    KeyExists,
    KeyMissing,
    KeyOutcome,
    Listing,
    Lock,
    Outcome,
    Part,
    PendingUpload,
    Prefix,
    SignedRequest,
    StoredObject,
    StoreError,
    StoreProfile,
    UploadId,
    Usage,
)
from lastgood.stores.begun import BegunUpload
from lastgood.stores.keys import path_of, prefix_in_bucket, prefix_path_of
from lastgood.stores.listing import StreamedListing
from lastgood.stores.parts import part_bytes_for
from lastgood.stores.s3_client import client_from, metrics_from, translated
from lastgood.stores.s3_deletes import bulk_form
from lastgood.stores.s3_encryption import NOT_ASKED, Encryption
from lastgood.stores.s3_heads import S3Heads
from lastgood.stores.s3_lifecycle import BucketLifecycle
from lastgood.stores.s3_locks import S3Locks
from lastgood.stores.s3_numbers import s3_numbers
from lastgood.stores.s3_objects import S3Objects
from lastgood.stores.s3_reader import S3Reader
from lastgood.stores.s3_small import S3SmallObjects
from lastgood.stores.s3_uploads import S3Uploads
from lastgood.stores.s3_versioning import BucketVersioning

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")  # where CloudWatch knows the bucket


def open_s3(
    name: str,
    bucket: str,
    prefix: str,
    connection: str | None,
    *,
    found: FoundProfile | None = None,
    encryption: Encryption = NOT_ASKED,
) -> S3Store:
    """Open the store behind an Airflow connection; `found` is what a probe found in it."""
    try:
        client = client_from(connection)
    except (NoConnection, BotoCoreError, ValueError) as error:
        of = f"its connection {connection!r}" if connection else "boto3's own configuration"
        raise StoreError(store=name, key="", reason=f"{of} cannot be used: {error}") from error
    store = S3Store(name, client, bucket, prefix, found=found, encryption=encryption)
    if client.meta.endpoint_url.endswith(AWS_DOMAINS):
        store.metrics = lambda: metrics_from(connection)
    return store


class S3Store:
    """See `base.Store` for what each method promises. Nothing is believed of a server that a probe
    did not find in it: without one, verification reads every byte, and on a bucket with versions
    the first version of a small object counts."""

    def __init__(
        self,
        name: str,
        client: S3Client,
        bucket: str,
        prefix: str = "",
        *,
        found: FoundProfile | None = None,
        encryption: Encryption = NOT_ASKED,
    ) -> None:
        """`client` comes from `s3_client`, `found` from a probe of this very place. Reads the
        bucket's versioning and whether versions may be locked. Raises VersioningSuspended."""
        self.name = name
        self.bucket = bucket
        self.prefix = prefix_in_bucket(prefix)
        self.client = self._client = client
        self.metrics: Callable[[], Any] | None = None  # makes a CloudWatch client
        self.encryption = encryption
        self._versioning = BucketVersioning(client, name, bucket)
        versioned = self._versioning.read()
        if found is None or found.has(Ability.VERSIONS) != versioned:
            found = FoundProfile("s3", {})  # what was found holds no more
        self._locks = S3Locks(client, name, bucket, self.prefix)
        self.profile = StoreProfile(
            kind="s3",
            presigns=True,
            direct=False,
            attests_sha256=attests(found),
            versioned=versioned,
            hides=versioned,
            locks=versioned and self._locks.possible(),
        )
        self._objects = S3Objects(
            client, name, bucket, self.prefix, versioned=versioned, form=bulk_form(found)
        )
        self._heads = S3Heads(
            client,
            name,
            bucket,
            self.prefix,
            versioned=versioned,
            attests=self.profile.attests_sha256,
        )
        self._small = S3SmallObjects(
            client,
            name,
            bucket,
            self.prefix,
            self._objects,
            self._heads.stat,
            # Servers were seen that refuse a conditional write only in a bucket without versions.
            first_counts=versioned and not found.has(Ability.CONDITIONAL_PUT),
            versioned=versioned,
            attests=self.profile.attests_sha256,
            encryption=encryption,
        )
        self._uploads = S3Uploads(
            client,
            name,
            bucket,
            self.prefix,
            attests=self.profile.attests_sha256,
            encryption=encryption,
        )

    @property
    def outdated(self) -> bool:
        """Whether the bucket's versioning was changed since: open the store anew."""
        return self._versioning.outdated

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        return self._small.put_new(key, data)

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        return self._small.read(key, limit_bytes)

    def stat(self, key: Key) -> StoredObject | None:
        return self._heads.stat(key)

    def encryption_of(self, key: Key) -> Finding:
        """What the store tells of an object's encryption at rest."""
        return self.encryption.read_back(self._heads.head(key) or {})

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
        self._versioning.require(self.profile.versioned)
        yield from self._objects.delete(objects)

    def locked(self, objects: Sequence[StoredObject]) -> Mapping[tuple[Key, str | None], Lock]:
        return self._locks.locked(objects) if self.profile.locks else {}

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
        copy = self._copy_prefix(prefix)
        self._versioning.require(self.profile.versioned)
        self._objects.hide(copy)

    def unquarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        copy = self._copy_prefix(prefix)
        self._versioning.require(self.profile.versioned)
        self._objects.show(copy)

    def protect(self, prefix: Prefix) -> None:
        """Nothing to do: parts are bound to an upload, and nothing else may write here."""

    def usage(self, prefix: Prefix = EVERYTHING) -> Usage:
        prefix_path_of(self.name, prefix)
        objects = sum(one.size_bytes for one in self._objects.listed(prefix, versions=True))
        parts = sum(upload.part_bytes_held for upload in self._uploads.pending(prefix))
        return Usage(objects + parts, None, how="listing")

    def numbers(self) -> Sequence[Number | Unreadable]:
        """See `numbers.AccountsFurther`: the server's statistics of the bucket, CloudWatch's."""
        return s3_numbers(
            self._client,
            self.metrics,
            self.name,
            self.bucket,
            whole=not self.prefix,
            now=datetime.now(UTC),
        )

    def part_bytes(self, size_bytes: int) -> int:
        return part_bytes_for(size_bytes)

    def create_upload(self, key: Key, size_bytes: int) -> UploadId:
        path_of(self.name, key)
        return self._uploads.create(key)

    def presign_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        expires_seconds: int,
        *,
        sha256: str | None = None,
    ) -> SignedRequest:
        return self._uploads.presign(key, upload_id, number, expires_seconds, sha256)

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

    def lifecycle(self) -> BucketLifecycle:
        """See `lifecycle.HasLifecycle`."""
        return BucketLifecycle(self._client, self.name, self.bucket, self.prefix)

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
