"""What becomes of writes to an S3 server: signed, conditional, replayed, with a digest."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from lastgood.rules.store_profile import Ability, Answer, Finding
from lastgood.stores.profile_asking import Asking, base64_of, finding, refusal, sha256_header
from lastgood.stores.profile_findings import FIRST, SECOND, Findings


class Writes(Asking):
    """Whether a bucket keeps to what was written first, and knows what it holds."""

    def signatures(self) -> Findings:
        where = self.put("signed", FIRST)
        url = self.client.generate_presigned_url("get_object", Params=where, ExpiresIn=60)
        wrong = url[:-4] + ("0000" if not url.endswith("0000") else "1111")
        bare = urlsplit(url)._replace(query="").geturl()
        right = self.send("GET", url)
        refused = {"a wrong signature": self.send("GET", wrong), "none": self.send("GET", bare)}
        said = ", ".join(f"{what}: HTTP {status}" for what, status in refused.items())
        enforced = all(status in (400, 401, 403) for status in refused.values())
        return {
            Ability.SIGNATURES: finding(enforced, said),
            Ability.PRESIGNED: finding(right == 200, f"a presigned read: HTTP {right}"),
        }

    def conditional_put(self) -> Finding:
        where = self.put("once", FIRST)
        said = refusal(
            lambda: self.client.put_object(**where, Body=SECOND, IfNoneMatch="*"),
        )
        return self._kept(where, said)

    def conditional_complete(self) -> Finding:
        where, upload = self.begin("completed")
        part = self.client.upload_part(**upload, PartNumber=1, Body=SECOND)
        self.client.put_object(**where, Body=FIRST)
        named: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        said = refusal(
            lambda: self.client.complete_multipart_upload(
                **upload, MultipartUpload=named, IfNoneMatch="*"
            )
        )
        return self._kept(where, said)

    def _kept(self, where: dict[str, Any], said: str | None) -> Finding:
        if self.client.get_object(**where)["Body"].read() != FIRST:
            return Finding(Answer.NO, "it replaced what was there")
        if said is None:
            return Finding(Answer.NO, "it said that it replaced, and did not")
        return Finding(Answer.YES, said)

    def replay(self) -> Finding:
        where, upload = self.begin("replayed")
        url = self.client.generate_presigned_url(
            "upload_part", Params={**upload, "PartNumber": 1}, ExpiresIn=60
        )
        sent = self.send("PUT", url, FIRST)
        held = self.client.list_parts(**upload).get("Parts", [])
        if sent != 200 or not held:
            return Finding(Answer.UNKNOWN, f"a presigned part: HTTP {sent}")
        named: Any = {"Parts": [{"PartNumber": 1, "ETag": held[0]["ETag"]}]}
        self.client.complete_multipart_upload(**upload, MultipartUpload=named)
        again = self.send("PUT", url, SECOND)
        unchanged = self.client.get_object(**where)["Body"].read() == FIRST
        return finding(unchanged, f"sent again after the completion: HTTP {again}")

    def sha256_object(self) -> Finding:
        where = self.where("digest")
        said = refusal(
            lambda: self.client.put_object(
                **where, Body=FIRST, ChecksumSHA256=sha256_header(SECOND)
            )
        )
        if said is None:
            return Finding(Answer.NO, "a wrong one was accepted")
        self.client.put_object(**where, Body=FIRST, ChecksumSHA256=sha256_header(FIRST))
        head = self.client.head_object(**where, ChecksumMode="ENABLED")
        if head.get("ChecksumSHA256") != sha256_header(FIRST):
            return Finding(Answer.NO, f"a wrong one: {said}; read back: nothing of it")
        return Finding(Answer.YES, f"a wrong one: {said}; the right one was read back")

    def sha256_parts(self) -> Finding:
        _, upload = self.begin("part-digest", ChecksumAlgorithm="SHA256")
        said = refusal(
            lambda: self.client.upload_part(
                **upload, PartNumber=1, Body=FIRST, ChecksumSHA256=sha256_header(SECOND)
            )
        )
        return finding(said is not None, said or "a wrong one was accepted")

    def sha256_composite(self) -> Finding:
        where, upload = self.begin("composite", ChecksumAlgorithm="SHA256")
        digest = sha256_header(FIRST)
        part = self.client.upload_part(**upload, PartNumber=1, Body=FIRST, ChecksumSHA256=digest)
        named: Any = {"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": digest}
        self.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [named]})
        found = self.client.head_object(**where, ChecksumMode="ENABLED").get("ChecksumSHA256")
        composite = base64_of(hashlib.sha256(hashlib.sha256(FIRST).digest()).digest())
        if found == f"{composite}-1":
            return Finding(Answer.YES, "read back, with the number of parts")
        if found == composite:
            return Finding(Answer.NO, "read back without its number of parts, like a whole one's")
        return Finding(Answer.NO, "nothing was read back" if found is None else "another one came")
