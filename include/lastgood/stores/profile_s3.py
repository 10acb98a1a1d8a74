"""What a bucket of an S3 server does: asked of the server itself, beside the store's own code.

A question that the server refuses for want of a permission stays unknown. One that fails otherwise
is answered with no, and the failure is the evidence.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError

from lastgood.rules.store_profile import Ability, Answer, Finding
from lastgood.stores.base import Key, Prefix, StoreError
from lastgood.stores.profile import FIRST, ODD_NAMES, SECOND, Findings, uploads_listed
from lastgood.stores.s3_client import REFUSED, BulkForm, code_of, described, in_form
from lastgood.stores.s3_locks import NO_LOCK

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from lastgood.stores.s3 import S3Store

MiB = 1 << 20
UNEQUAL_BYTES = (5 * MiB, 6 * MiB, 1)  # no part but the last may be below 5 MiB
Question = Callable[[], Finding | Findings]


def probe_s3(store: S3Store, prefix: Prefix) -> Findings:
    """Ask everything, below the scratch prefix. Raises StoreError where the server cannot be
    reached."""
    asking = _Asking(store, prefix)
    questions: Mapping[tuple[Ability, ...], Question] = {
        (Ability.SIGNATURES, Ability.PRESIGNED): asking.signatures,
        (Ability.CONDITIONAL_PUT,): asking.conditional_put,
        (Ability.CONDITIONAL_COMPLETE,): asking.conditional_complete,
        (Ability.REPLAY_REFUSED,): asking.replay,
        (Ability.SHA256_OBJECT,): asking.sha256_object,
        (Ability.SHA256_PARTS,): asking.sha256_parts,
        (Ability.SHA256_COMPOSITE,): asking.sha256_composite,
        (Ability.UPLOADS_LISTED,): lambda: uploads_listed(store, Prefix(f"{prefix}pending/")),
        (Ability.UPLOADS_PAGED,): asking.uploads_paged,
        (Ability.UNEQUAL_PARTS,): asking.unequal_parts,
        (Ability.VERSIONS,): asking.versions,
        (Ability.OBJECT_LOCK, Ability.LOCKS_SEEN): asking.object_lock,
        (Ability.LIFECYCLE,): asking.lifecycle,
        (Ability.TAGS,): asking.tags,
        (Ability.BULK_DELETE_MD5,): lambda: asking.bulk_delete(BulkForm.MD5),
        (Ability.BULK_DELETE_CRC32,): lambda: asking.bulk_delete(BulkForm.CRC32),
        (Ability.SSE_S3,): asking.sse_s3,
        (Ability.SSE_KMS,): asking.sse_kms,
        (Ability.ENCRYPTION,): asking.encryption,
    }
    findings: Findings = {}
    for abilities, question in questions.items():
        findings |= _answered(store, prefix, abilities, question)
    return findings


def _answered(
    store: S3Store, prefix: Prefix, abilities: tuple[Ability, ...], question: Question
) -> Findings:
    try:
        found = question()
    except ClientError as error:
        answer = Answer.UNKNOWN if code_of(error) in REFUSED else Answer.NO
        found = Finding(answer, described(error))
    except BotoCoreError as error:
        reason = f"probe {', '.join(abilities)}: {error}"
        raise StoreError(store=store.name, key=prefix, reason=reason) from error
    return dict.fromkeys(abilities, found) if isinstance(found, Finding) else found


class _Asking:
    """The questions, each with keys of its own."""

    def __init__(self, store: S3Store, prefix: Prefix) -> None:
        self._store = store
        self._client: S3Client = store.client
        self._prefix = prefix

    def signatures(self) -> Findings:
        where = self._put("signed", FIRST)
        url = self._client.generate_presigned_url("get_object", Params=where, ExpiresIn=60)
        wrong = url[:-4] + ("0000" if not url.endswith("0000") else "1111")
        bare = urlsplit(url)._replace(query="").geturl()
        right = self._send("GET", url)
        refused = {"a wrong signature": self._send("GET", wrong), "none": self._send("GET", bare)}
        said = ", ".join(f"{what}: HTTP {status}" for what, status in refused.items())
        enforced = all(status in (400, 401, 403) for status in refused.values())
        return {
            Ability.SIGNATURES: _finding(enforced, said),
            Ability.PRESIGNED: _finding(right == 200, f"a presigned read: HTTP {right}"),
        }

    def conditional_put(self) -> Finding:
        where = self._put("once", FIRST)
        said = _refusal(
            lambda: self._client.put_object(**where, Body=SECOND, IfNoneMatch="*"),
        )
        return self._kept(where, said)

    def conditional_complete(self) -> Finding:
        where, upload = self._begin("completed")
        part = self._client.upload_part(**upload, PartNumber=1, Body=SECOND)
        self._client.put_object(**where, Body=FIRST)
        named: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        said = _refusal(
            lambda: self._client.complete_multipart_upload(
                **upload, MultipartUpload=named, IfNoneMatch="*"
            )
        )
        return self._kept(where, said)

    def _kept(self, where: dict[str, Any], said: str | None) -> Finding:
        if self._client.get_object(**where)["Body"].read() != FIRST:
            return Finding(Answer.NO, "it replaced what was there")
        if said is None:
            return Finding(Answer.NO, "it said that it replaced, and did not")
        return Finding(Answer.YES, said)

    def replay(self) -> Finding:
        where, upload = self._begin("replayed")
        url = self._client.generate_presigned_url(
            "upload_part", Params={**upload, "PartNumber": 1}, ExpiresIn=60
        )
        sent = self._send("PUT", url, FIRST)
        held = self._client.list_parts(**upload).get("Parts", [])
        if sent != 200 or not held:
            return Finding(Answer.UNKNOWN, f"a presigned part: HTTP {sent}")
        named: Any = {"Parts": [{"PartNumber": 1, "ETag": held[0]["ETag"]}]}
        self._client.complete_multipart_upload(**upload, MultipartUpload=named)
        again = self._send("PUT", url, SECOND)
        unchanged = self._client.get_object(**where)["Body"].read() == FIRST
        return _finding(unchanged, f"sent again after the completion: HTTP {again}")

    def sha256_object(self) -> Finding:
        where = self._where("digest")
        said = _refusal(
            lambda: self._client.put_object(**where, Body=FIRST, ChecksumSHA256=_sha256(SECOND))
        )
        if said is None:
            return Finding(Answer.NO, "a wrong one was accepted")
        self._client.put_object(**where, Body=FIRST, ChecksumSHA256=_sha256(FIRST))
        head = self._client.head_object(**where, ChecksumMode="ENABLED")
        if head.get("ChecksumSHA256") != _sha256(FIRST):
            return Finding(Answer.NO, f"a wrong one: {said}; read back: nothing of it")
        return Finding(Answer.YES, f"a wrong one: {said}; the right one was read back")

    def sha256_parts(self) -> Finding:
        _, upload = self._begin("part-digest", ChecksumAlgorithm="SHA256")
        said = _refusal(
            lambda: self._client.upload_part(
                **upload, PartNumber=1, Body=FIRST, ChecksumSHA256=_sha256(SECOND)
            )
        )
        return _finding(said is not None, said or "a wrong one was accepted")

    def sha256_composite(self) -> Finding:
        where, upload = self._begin("composite", ChecksumAlgorithm="SHA256")
        digest = _sha256(FIRST)
        part = self._client.upload_part(**upload, PartNumber=1, Body=FIRST, ChecksumSHA256=digest)
        named: Any = {"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": digest}
        self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [named]})
        found = self._client.head_object(**where, ChecksumMode="ENABLED").get("ChecksumSHA256")
        composite = _base64(hashlib.sha256(hashlib.sha256(FIRST).digest()).digest())
        if found == f"{composite}-1":
            return Finding(Answer.YES, "read back, with the number of parts")
        if found == composite:
            return Finding(Answer.NO, "read back without its number of parts, like a whole one's")
        return Finding(Answer.NO, "nothing was read back" if found is None else "another one came")

    def uploads_paged(self) -> Finding:
        keys = [self._key(f"paged/{name}") for name in ODD_NAMES]
        begun = {
            self._client.create_multipart_upload(Bucket=self._store.bucket, Key=key)["UploadId"]
            for key in keys
        }
        seen: list[str] = []
        more: dict[str, Any] = {}
        for pages in range(1, len(keys) + 2):
            page: Any = self._client.list_multipart_uploads(
                Bucket=self._store.bucket, Prefix=self._key("paged/"), MaxUploads=1, **more
            )
            seen += [one["UploadId"] for one in page.get("Uploads", ())]
            if not page.get("IsTruncated"):
                whole = set(seen) == begun and len(seen) == len(begun)
                said = f"{len(set(seen))} of {len(begun)} in {pages} pages of one"
                if whole and pages == 1:
                    return Finding(Answer.UNKNOWN, said)
                return _finding(whole, said)
            more = {
                "KeyMarker": page.get("NextKeyMarker") or "",
                "UploadIdMarker": page.get("NextUploadIdMarker") or "",
            }
        return Finding(Answer.NO, "its pages do not end")

    def unequal_parts(self) -> Finding:
        where, upload = self._begin("unequal")
        named: Any = [
            {
                "PartNumber": number,
                "ETag": self._client.upload_part(
                    **upload, PartNumber=number, Body=bytes(size_bytes)
                )["ETag"],
            }
            for number, size_bytes in enumerate(UNEQUAL_BYTES, 1)
        ]
        said = _refusal(
            lambda: self._client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": named}
            )
        )
        if said is not None:
            return Finding(Answer.NO, said)
        size_bytes = self._client.head_object(**where)["ContentLength"]
        return _finding(size_bytes == sum(UNEQUAL_BYTES), "parts of 5 MiB, 6 MiB and 1 byte")

    def versions(self) -> Finding:
        self._put("versioned", FIRST)
        self._put("versioned", SECOND)
        self._client.delete_object(**self._where("versioned"))
        listed = [
            one
            for one in self._store.list(self._prefix, versions=True)
            if one.key == f"{self._prefix}versioned"
        ]
        said = f"written twice and deleted: {len(listed)} are listed"
        return _finding(len(listed) == 3, said)

    def object_lock(self) -> Findings:
        try:
            configured = self._client.get_object_lock_configuration(Bucket=self._store.bucket)
        except ClientError as error:
            if code_of(error) in REFUSED:
                unseen = Finding(Answer.NO, described(error))
                return {
                    Ability.OBJECT_LOCK: Finding(Answer.UNKNOWN, described(error)),
                    Ability.LOCKS_SEEN: unseen,
                }
            none = Finding(Answer.NO, "the bucket has no such configuration")
            return {Ability.OBJECT_LOCK: none, Ability.LOCKS_SEEN: Finding(Answer.UNKNOWN, "none")}
        state = configured["ObjectLockConfiguration"].get("ObjectLockEnabled")
        if state != "Enabled":
            return {Ability.OBJECT_LOCK: Finding(Answer.NO, f"it is {state}")}
        return {Ability.OBJECT_LOCK: self._locks(), Ability.LOCKS_SEEN: self._sees_locks()}

    def _locks(self) -> Finding:
        where = self._where("held")
        written = self._client.put_object(**where, Body=FIRST)
        where["VersionId"] = written["VersionId"]
        try:
            self._client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
        except ClientError as error:
            if code_of(error) in REFUSED:
                return Finding(Answer.YES, "the bucket is configured so; no right to try it")
            return Finding(Answer.YES, f"the bucket is configured so; a hold: {described(error)}")
        try:
            said = _refusal(lambda: self._client.delete_object(**where))
        finally:
            self._client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
        if said is None:
            return Finding(Answer.NO, "a version under legal hold was deleted")
        return Finding(Answer.YES, f"deleting a version under legal hold: {said}")

    def _sees_locks(self) -> Finding:
        where = self._put("seen", FIRST)
        for ask in (self._client.get_object_retention, self._client.get_object_legal_hold):
            try:
                ask(**where)
            except ClientError as error:
                if code_of(error) not in NO_LOCK:
                    return Finding(Answer.NO, described(error))
        return Finding(Answer.YES, "retention and legal hold were answered")

    def lifecycle(self) -> Finding:
        bucket: Any = {"Bucket": self._store.bucket}
        try:
            known = self._client.get_bucket_lifecycle_configuration(**bucket)
            return Finding(
                Answer.YES, f"its {len(known['Rules'])} rules are read; none was written"
            )
        except ClientError as error:
            if code_of(error) != "NoSuchLifecycleConfiguration":
                raise
        rule: Any = {
            "ID": "lastgood-probe",
            "Status": "Enabled",
            "Filter": {"Prefix": self._key("expired/")},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        }
        try:
            self._client.put_bucket_lifecycle_configuration(
                **bucket, LifecycleConfiguration={"Rules": [rule]}
            )
            found = self._client.get_bucket_lifecycle_configuration(**bucket)["Rules"]
        finally:
            self._client.delete_bucket_lifecycle(**bucket)
        days = found[0].get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        return _finding(days == 7, f"written and read back: abort after {days} days")

    def tags(self) -> Finding:
        where = self._put("tagged", FIRST)
        tags: Any = [{"Key": "lastgood-probe", "Value": "1"}]
        self._client.put_object_tagging(**where, Tagging={"TagSet": tags})
        found = self._client.get_object_tagging(**where)["TagSet"]
        return _finding(found == tags, f"{len(found)} read back of 1")

    def bulk_delete(self, form: BulkForm) -> Finding:
        written = [
            self._client.put_object(**self._where(f"bulk-{form}/{number}"), Body=b"")
            for number in (1, 2)
        ]
        wanted: Any = [
            {"Key": self._key(f"bulk-{form}/{number}")}
            | ({"VersionId": one["VersionId"]} if "VersionId" in one else {})
            for number, one in enumerate(written, 1)
        ]
        with in_form(form):
            self._client.delete_objects(Bucket=self._store.bucket, Delete={"Objects": wanted})
        left = list(self._store.list(Prefix(f"{self._prefix}bulk-{form}/"), versions=True))
        return _finding(not left, f"{len(left)} of 2 are left")

    def sse_s3(self) -> Finding:
        return self._encrypted("sse-s3", {"ServerSideEncryption": "AES256"})

    def sse_kms(self) -> Finding:
        key = self._store.encryption.kms_key
        asked = {"ServerSideEncryption": "aws:kms"} | ({"SSEKMSKeyId": key} if key else {})
        found = self._encrypted("sse-kms", asked)
        if found.answer is Answer.YES or key:
            return found
        return Finding(Answer.UNKNOWN, f"without a key in its configuration: {found.evidence}")

    def _encrypted(self, name: str, asked: dict[str, Any]) -> Finding:
        where = self._where(name)
        try:
            self._client.put_object(**where, Body=FIRST, **asked)
        except ClientError as error:
            return Finding(Answer.NO, described(error))
        head: Any = self._client.head_object(**where)
        same = all(head.get(header) == value for header, value in asked.items())
        said = head.get("ServerSideEncryption") or "nothing"
        return _finding(same, f"HEAD says {said}")

    def encryption(self) -> Finding:
        key = Key(f"{self._prefix}encrypted")
        self._store.put_new(key, FIRST)
        return self._store.encryption_of(key)

    def _begin(self, name: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        where = self._where(name)
        begun = self._client.create_multipart_upload(**where, **more)
        return where, {**where, "UploadId": begun["UploadId"]}

    def _put(self, name: str, data: bytes) -> dict[str, Any]:
        where = self._where(name)
        self._client.put_object(**where, Body=data)
        return where

    def _where(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._store.bucket, "Key": self._key(name)}

    def _key(self, name: str) -> str:
        return f"{self._store.prefix}{self._prefix}{name}"

    def _send(self, method: str, url: str, body: bytes = b"") -> int:
        """The status that a bare request gets. It goes the client's own way: proxy and TLS."""
        request = AWSRequest(method=method, url=url, data=body).prepare()
        session = self._client._endpoint.http_session  # type: ignore[attr-defined]
        status: int = session.send(request).status_code
        return status


def _refusal(request: Callable[[], object]) -> str | None:
    """How a request was refused; None if it was not."""
    try:
        request()
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return f"HTTP {status} {code_of(error)}"
    return None


def _finding(holds: bool, evidence: str) -> Finding:
    return Finding(Answer.YES if holds else Answer.NO, evidence)


def _sha256(data: bytes) -> str:
    return _base64(hashlib.sha256(data).digest())


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
