"""Multipart uploads in S3, of which every object is one, however small."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    PartInvalid,
    PendingUpload,
    Prefix,
    SignedRequest,
    StoreError,
    UploadGone,
    UploadId,
)
from lastgood.stores.begun import BegunUpload, several
from lastgood.stores.s3_client import UNSUPPORTED, code_of, translated
from lastgood.stores.s3_digests import SHA256_HEADER, digest_in, header_of
from lastgood.stores.s3_encryption import NOT_ASKED, Encryption
from lastgood.stores.s3_upload_pages import UploadPages

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ABORTS = 20  # of one upload: a part that was on its way may arrive after an abort
SPOOL_BYTES = 8 << 20


class S3Uploads:
    """The pending uploads of one bucket and prefix."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        bucket: str,
        prefix: str,
        *,
        attests: bool = False,
        encryption: Encryption = NOT_ASKED,
    ) -> None:
        """`attests`: the server checks each part against its SHA-256, which then comes with it."""
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._attests = attests
        self._encryption = encryption

    def create(self, key: Key) -> UploadId:
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": self._full(key),
            **self._encryption.request,
        }
        if self._attests:
            request["ChecksumAlgorithm"] = "SHA256"
        with translated(self._store, key, "begin an upload"):
            answer = self._client.create_multipart_upload(**request)
        return UploadId(answer["UploadId"])

    def presign(
        self, key: Key, upload_id: UploadId, number: int, expires_seconds: int, sha256: str | None
    ) -> SignedRequest:
        request: dict[str, Any] = {**self._upload(key, upload_id), "PartNumber": number}
        if self._attests:
            if sha256 is None:
                raise self._invalid(key, number, "its URL is made for its SHA-256: name that")
            request["ChecksumSHA256"] = header_of(sha256)
        with translated(self._store, key, "presign a part"):
            url = self._client.generate_presigned_url(
                "upload_part", Params=request, ExpiresIn=expires_seconds, HttpMethod="PUT"
            )
        digest = request.get("ChecksumSHA256")
        return SignedRequest(url, {} if digest is None else {SHA256_HEADER: digest})

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
            proof: dict[str, Any] = {"ChecksumSHA256": header_of(sha256)} if self._attests else {}
            with (
                self._gone_explains(key, upload_id),
                translated(self._store, key, "send a part", upload=upload_id, part=number),
            ):
                answer = self._client.upload_part(
                    **self._upload(key, upload_id),
                    PartNumber=number,
                    Body=spool,
                    ContentLength=size_bytes,
                    **proof,
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
                    held[number] = Part(
                        number, part["Size"], etag=part["ETag"], sha256=self._attested(part)
                    )
                if not page.get("IsTruncated"):
                    return [held[number] for number in sorted(held)]
                # A truncated page may be empty: what it says to go on with decides.
                following = max([page.get("NextPartNumberMarker") or 0, *held])
                if following <= marker:
                    raise self._stuck(key, "parts")
                marker = following

    def held_whole(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> list[Part]:
        """The parts held, if they are those named. PartInvalid if not; UploadGone."""
        held = self.parts(key, upload_id)
        self._check_whole(key, held, parts)
        return held

    def complete(self, key: Key, upload_id: UploadId, held: Sequence[Part]) -> None:
        """Publish. KeyExists if something is there and the server looks."""
        request: dict[str, Any] = {
            **self._upload(key, upload_id),
            "MultipartUpload": {"Parts": [self._named(part) for part in held]},
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

    def _named(self, part: Part) -> dict[str, Any]:
        proof = {} if part.sha256 is None else {"ChecksumSHA256": header_of(part.sha256)}
        return {"PartNumber": part.number, "ETag": part.etag, **proof}

    def _attested(self, part: Mapping[str, Any]) -> str | None:
        told = part.get("ChecksumSHA256")
        return digest_in(told) if self._attests and told else None

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
        for one, parts in several(self._with_parts, self.begun(prefix), over_network=True):
            if parts is not None:
                held = sum(part.size_bytes for part in parts)
                yield PendingUpload(one.key, one.upload_id, held, len(parts), one.initiated_at)

    def _with_parts(self, one: BegunUpload) -> tuple[BegunUpload, list[Part] | None]:
        try:
            return one, self.parts(one.key, one.upload_id)
        except UploadGone:
            return one, None

    def begun(self, prefix: Prefix) -> Iterator[BegunUpload]:
        """Every pending upload below the prefix, ascending by key; nothing before the last page."""
        pages = UploadPages(self._client, self._store, self._bucket, self._prefix + prefix)
        found = [
            replace(one, key=Key(one.key.removeprefix(self._prefix))) for one in pages.uploads()
        ]
        yield from sorted(found, key=lambda one: (one.key.encode(), one.upload_id))

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
