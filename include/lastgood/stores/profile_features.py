"""What an S3 bucket offers: pages of uploads, versions, locks, rules, tags, encryption."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from lastgood.rules.store_profile import Ability, Answer, Finding
from lastgood.stores.base import Key, Prefix
from lastgood.stores.profile_asking import Asking, finding, refusal
from lastgood.stores.profile_findings import FIRST, ODD_NAMES, SECOND, Findings
from lastgood.stores.s3_client import REFUSED, BulkForm, code_of, described, in_form
from lastgood.stores.s3_locks import NO_LOCK

MiB = 1 << 20
PROBE_RULE = "lastgood-probe"
UNEQUAL_BYTES = (5 * MiB, 6 * MiB, 1)  # no part but the last may be below 5 MiB


class Features(Asking):
    """Whether a bucket has what flows may use."""

    def uploads_paged(self) -> Finding:
        keys = [self.key(f"paged/{name}") for name in ODD_NAMES]
        begun = {
            self.client.create_multipart_upload(Bucket=self.store.bucket, Key=key)["UploadId"]
            for key in keys
        }
        seen: list[str] = []
        more: dict[str, Any] = {}
        for pages in range(1, len(keys) + 2):
            page: Any = self.client.list_multipart_uploads(
                Bucket=self.store.bucket, Prefix=self.key("paged/"), MaxUploads=1, **more
            )
            seen += [one["UploadId"] for one in page.get("Uploads", ())]
            if not page.get("IsTruncated"):
                whole = set(seen) == begun and len(seen) == len(begun)
                said = f"{len(set(seen))} of {len(begun)} in {pages} pages of one"
                if whole and pages == 1:
                    return Finding(Answer.UNKNOWN, said)
                return finding(whole, said)
            more = {
                "KeyMarker": page.get("NextKeyMarker") or "",
                "UploadIdMarker": page.get("NextUploadIdMarker") or "",
            }
        return Finding(Answer.NO, "its pages do not end")

    def unequal_parts(self) -> Finding:
        where, upload = self.begin("unequal")
        named: Any = [
            {
                "PartNumber": number,
                "ETag": self.client.upload_part(
                    **upload, PartNumber=number, Body=bytes(size_bytes)
                )["ETag"],
            }
            for number, size_bytes in enumerate(UNEQUAL_BYTES, 1)
        ]
        said = refusal(
            lambda: self.client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": named}
            )
        )
        if said is not None:
            return Finding(Answer.NO, said)
        size_bytes = self.client.head_object(**where)["ContentLength"]
        return finding(size_bytes == sum(UNEQUAL_BYTES), "parts of 5 MiB, 6 MiB and 1 byte")

    def versions(self) -> Finding:
        self.put("versioned", FIRST)
        self.put("versioned", SECOND)
        self.client.delete_object(**self.where("versioned"))
        listed = [
            one
            for one in self.store.list(self.prefix, versions=True)
            if one.key == f"{self.prefix}versioned"
        ]
        said = f"written twice and deleted: {len(listed)} are listed"
        return finding(len(listed) == 3, said)

    def object_lock(self) -> Findings:
        try:
            configured = self.client.get_object_lock_configuration(Bucket=self.store.bucket)
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
        where = self.where("held")
        written = self.client.put_object(**where, Body=FIRST)
        where["VersionId"] = written["VersionId"]
        try:
            self.client.put_object_legal_hold(**where, LegalHold={"Status": "ON"})
        except ClientError as error:
            if code_of(error) in REFUSED:
                return Finding(Answer.YES, "the bucket is configured so; no right to try it")
            return Finding(Answer.YES, f"the bucket is configured so; a hold: {described(error)}")
        try:
            said = refusal(lambda: self.client.delete_object(**where))
        finally:
            self.client.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
        if said is None:
            return Finding(Answer.NO, "a version under legal hold was deleted")
        return Finding(Answer.YES, f"deleting a version under legal hold: {said}")

    def _sees_locks(self) -> Finding:
        where = self.put("seen", FIRST)
        for ask in (self.client.get_object_retention, self.client.get_object_legal_hold):
            try:
                ask(**where)
            except ClientError as error:
                if code_of(error) not in NO_LOCK:
                    return Finding(Answer.NO, described(error))
        return Finding(Answer.YES, "retention and legal hold were answered")

    def lifecycle(self) -> Finding:
        if others := self._rules_of_others():
            return Finding(Answer.YES, f"its {len(others)} rules are read; none was written")
        bucket: Any = {"Bucket": self.store.bucket}
        rule: Any = {
            "ID": PROBE_RULE,
            "Status": "Enabled",
            "Filter": {"Prefix": self.key("expired/")},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        }
        self.client.put_bucket_lifecycle_configuration(
            **bucket, LifecycleConfiguration={"Rules": [rule]}
        )
        found = self._rules()
        # Rules are removed as a whole: not those that somebody else wrote meanwhile.
        if others := self._rules_of_others():
            return Finding(Answer.YES, f"{len(others)} rules that came meanwhile are read")
        self.client.delete_bucket_lifecycle(**bucket)
        told = [one.get("AbortIncompleteMultipartUpload", {}) for one in found]
        days = next((one.get("DaysAfterInitiation") for one in told), None)
        return finding(days == 7, f"written and read back: abort after {days} days")

    def _rules_of_others(self) -> list[Any]:
        """Without the one that a killed probe may have left."""
        return [rule for rule in self._rules() if rule.get("ID") != PROBE_RULE]

    def _rules(self) -> list[Any]:
        """The bucket's rules; none where it has no such configuration."""
        try:
            answer: Any = self.client.get_bucket_lifecycle_configuration(Bucket=self.store.bucket)
        except ClientError as error:
            if code_of(error) != "NoSuchLifecycleConfiguration":
                raise
            return []
        rules: list[Any] = answer.get("Rules", [])
        return rules

    def tags(self) -> Finding:
        where = self.put("tagged", FIRST)
        tags: Any = [{"Key": "lastgood-probe", "Value": "1"}]
        self.client.put_object_tagging(**where, Tagging={"TagSet": tags})
        found = self.client.get_object_tagging(**where)["TagSet"]
        return finding(found == tags, f"{len(found)} read back of 1")

    def bulk_delete(self, form: BulkForm) -> Finding:
        written = [
            self.client.put_object(**self.where(f"bulk-{form}/{number}"), Body=b"")
            for number in (1, 2)
        ]
        wanted: Any = [
            {"Key": self.key(f"bulk-{form}/{number}")}
            | ({"VersionId": one["VersionId"]} if "VersionId" in one else {})
            for number, one in enumerate(written, 1)
        ]
        with in_form(form):
            answer = self.client.delete_objects(
                Bucket=self.store.bucket, Delete={"Objects": wanted}
            )
        refused = answer.get("Errors", [])
        if refused and all(one.get("Code") in REFUSED for one in refused):
            return Finding(Answer.UNKNOWN, f"{len(refused)} of 2 may not be deleted")
        left = list(self.store.list(Prefix(f"{self.prefix}bulk-{form}/"), versions=True))
        return finding(not left, f"{len(left)} of 2 are left")

    def sse_s3(self) -> Finding:
        return self._encrypted("sse-s3", {"ServerSideEncryption": "AES256"})

    def sse_kms(self) -> Finding:
        key = self.store.encryption.kms_key
        asked = {"ServerSideEncryption": "aws:kms"} | ({"SSEKMSKeyId": key} if key else {})
        found = self._encrypted("sse-kms", asked)
        if found.answer is Answer.YES or key:
            return found
        return Finding(Answer.UNKNOWN, f"without a key in its configuration: {found.evidence}")

    def _encrypted(self, name: str, asked: dict[str, Any]) -> Finding:
        where = self.where(name)
        try:
            self.client.put_object(**where, Body=FIRST, **asked)
        except ClientError as error:
            return Finding(Answer.NO, described(error))
        head: Any = self.client.head_object(**where)
        same = all(head.get(header) == value for header, value in asked.items())
        said = head.get("ServerSideEncryption") or "nothing"
        return finding(same, f"HEAD says {said}")

    def encryption(self) -> Finding:
        key = Key(f"{self.prefix}encrypted")
        self.store.put_new(key, FIRST)
        return self.store.encryption_of(key)
