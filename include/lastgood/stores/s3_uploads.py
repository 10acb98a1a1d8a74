"""Multipart uploads in S3, of which every object is one, however small."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from botocore.exceptions import ClientError

from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    PartInvalid,
    PendingUpload,
    Prefix,
    StoreError,
    UploadGone,
    UploadId,
)
from lastgood.stores.s3_client import UNSUPPORTED, code_of, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ABORTS = 20  # of one upload: a part that was on its way may arrive after an abort
SPOOL_BYTES = 8 << 20


class S3Uploads:
    """The pending uploads of one bucket and prefix."""

    def __init__(self, client: S3Client, store: str, bucket: str, prefix: str) -> None:
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix

    def create(self, key: Key) -> UploadId:
        with translated(self._store, key, "begin an upload"):
            answer = self._client.create_multipart_upload(Bucket=self._bucket, Key=self._full(key))
        return UploadId(answer["UploadId"])

    def presign(self, key: Key, upload_id: UploadId, number: int, expires_seconds: int) -> str:
        with translated(self._store, key, "presign a part"):
            return self._client.generate_presigned_url(
                "upload_part",
                Params={**self._upload(key, upload_id), "PartNumber": number},
                ExpiresIn=expires_seconds,
                HttpMethod="PUT",
            )

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        """Relay a part. It is kept aside until it is whole, so that a retry can send it again."""
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            sha256 = self._spool(spool, key, number, size_bytes, chunks)
            spool.seek(0)
            with (
                self._gone_explains(key, upload_id),
                translated(self._store, key, "send a part", upload=upload_id, part=number),
            ):
                answer = self._client.upload_part(
                    **self._upload(key, upload_id),
                    PartNumber=number,
                    Body=spool,
                    ContentLength=size_bytes,
                )
        return Part(number, size_bytes, etag=answer["ETag"], sha256=sha256)

    def _spool(
        self,
        spool: IO[bytes],
        key: Key,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> str:
        digest = hashlib.sha256()
        received = 0
        for chunk in chunks:
            received += memoryview(chunk).nbytes
            if received > size_bytes:
                raise self._invalid(key, number, f"more than {size_bytes} bytes came")
            spool.write(chunk)
            digest.update(chunk)
        if received != size_bytes:
            raise self._invalid(key, number, f"{received} of {size_bytes} bytes came")
        return digest.hexdigest()

    def parts(self, key: Key, upload_id: UploadId) -> list[Part]:
        """The parts held, in order, all pages."""
        held: dict[int, Part] = {}
        marker = 0
        with translated(self._store, key, "list parts", upload=upload_id):
            while True:
                page: Any = self._client.list_parts(
                    **self._upload(key, upload_id), PartNumberMarker=marker
                )
                fresh = [part for part in page.get("Parts", ()) if part["PartNumber"] not in held]
                for part in fresh:
                    number = part["PartNumber"]
                    held[number] = Part(number, part["Size"], etag=part["ETag"])
                if not page.get("IsTruncated"):
                    return [held[number] for number in sorted(held)]
                if not fresh:
                    raise self._stuck(key, "parts")
                marker = fresh[-1]["PartNumber"]

    def held_whole(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> list[Part]:
        """The parts held, if they are those named. PartInvalid if not; UploadGone."""
        held = self.parts(key, upload_id)
        self._check_whole(key, held, parts)
        return held

    def complete(self, key: Key, upload_id: UploadId, held: Sequence[Part]) -> None:
        """Publish. KeyExists if something is there and the server looks."""
        request: dict[str, Any] = {
            **self._upload(key, upload_id),
            "MultipartUpload": {
                "Parts": [{"PartNumber": part.number, "ETag": part.etag} for part in held]
            },
        }
        with (
            self._gone_explains(key, upload_id),
            translated(self._store, key, "complete an upload", upload=upload_id, part=len(held)),
        ):
            try:
                self._client.complete_multipart_upload(**request, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
                self._client.complete_multipart_upload(**request)

    def _check_whole(self, key: Key, held: Sequence[Part], asked: Sequence[Part]) -> None:
        if [part.number for part in asked] != list(range(1, len(asked) + 1)) or not asked:
            raise self._invalid(key, len(asked), "name every part, in order, from 1")
        if len(held) != len(asked):
            raise self._invalid(key, len(asked), f"{len(held)} parts are held")
        for ours, theirs in zip(held, asked, strict=True):
            if (ours.number, ours.size_bytes) != (theirs.number, theirs.size_bytes):
                raise self._invalid(key, theirs.number, f"{ours} is held, {theirs} was named")
            if theirs.etag is not None and theirs.etag.strip('"') != (ours.etag or "").strip('"'):
                raise self._invalid(key, theirs.number, f"its ETag is {ours.etag}")
        if any(part.size_bytes != held[0].size_bytes for part in held[:-1]):
            raise self._invalid(key, len(held), "parts are equal in size, but the last")

    def abort(self, key: Key, upload_id: UploadId) -> Outcome:
        """Abort until no part is left: one that was on its way may arrive after the first abort."""
        outcome = Outcome.GONE
        for attempt in range(ABORTS):
            try:
                with translated(self._store, key, "abort an upload", upload=upload_id):
                    self._client.abort_multipart_upload(**self._upload(key, upload_id))
            except UploadGone:
                if attempt == 0:
                    outcome = Outcome.ABSENT
            try:
                held = self.parts(key, upload_id)
            except UploadGone:
                return outcome
            if not held and attempt:
                return outcome
        reason = f"parts of upload {upload_id} are left after {ABORTS} aborts"
        raise StoreError(store=self._store, key=key, reason=reason)

    def pending(self, prefix: Prefix) -> Iterator[PendingUpload]:
        """Every pending upload below the prefix, ascending by key, with its parts' bytes."""
        found = sorted(self._listed(prefix), key=lambda one: (one[0].encode(), one[1]))
        for key, upload_id, initiated_at in found:
            try:
                parts = self.parts(key, upload_id)
            except UploadGone:
                continue
            held = sum(part.size_bytes for part in parts)
            yield PendingUpload(key, upload_id, held, len(parts), initiated_at)

    def _listed(self, prefix: Prefix) -> Iterator[tuple[Key, UploadId, Any]]:
        """All pages. Servers were seen that ignore the prefix or the markers, or repeat entries."""
        seen: set[tuple[str, str]] = set()
        markers: dict[str, Any] = {}
        full = self._prefix + prefix
        while True:
            with translated(self._store, prefix, "list uploads"):
                page: Any = self._client.list_multipart_uploads(
                    Bucket=self._bucket, Prefix=full, EncodingType="url", **markers
                )
            decode = unquote_plus if page.get("EncodingType") == "url" else str
            fresh = 0
            for upload in page.get("Uploads", ()):
                identity = (decode(upload["Key"]), upload["UploadId"])
                if identity in seen:
                    continue
                seen.add(identity)
                fresh += 1
                if identity[0].startswith(full):
                    key = Key(identity[0][len(self._prefix) :])
                    yield key, UploadId(identity[1]), upload.get("Initiated")
            if not page.get("IsTruncated"):
                return
            if not fresh:
                raise self._stuck(prefix, "uploads")
            markers = {
                "KeyMarker": decode(page.get("NextKeyMarker") or ""),
                "UploadIdMarker": page.get("NextUploadIdMarker") or "",
            }

    @contextmanager
    def _gone_explains(self, key: Key, upload_id: UploadId) -> Iterator[None]:
        """Some servers answer a mere 500 for an upload that is gone: ask again what is held."""
        try:
            yield
        except (UploadGone, KeyExists, PartInvalid):
            raise
        except StoreError:
            self.parts(key, upload_id)
            raise

    def _upload(self, key: Key, upload_id: UploadId) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._full(key), "UploadId": upload_id}

    def _full(self, key: Key) -> str:
        return self._prefix + key

    def _invalid(self, key: Key, number: int, reason: str) -> PartInvalid:
        return PartInvalid(store=self._store, key=key, part=number, reason=reason)

    def _stuck(self, key: str, what: str) -> StoreError:
        reason = f"the listing of {what} says that more follows, but repeats itself"
        return StoreError(store=self._store, key=key, reason=reason)
