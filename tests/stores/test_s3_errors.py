"""An S3 server's refusal is told by what was refused, whatever the object's key says."""

from __future__ import annotations

import pytest

from lastgood.stores.base import AccessRefused, StoreError
from lastgood.stores.s3_errors import KmsKeyRefused, WrongCredentials, meaning_of

KEY = "checkpoints/demo/kms key/kms:1.bin"
USER = "User: arn:aws:sts::1:assumed-role/kms-keyid-reader/job"
BY_POLICY = "because no identity-based policy allows the"


@pytest.mark.parametrize(
    ("code", "message", "key", "kind"),
    [
        ("AccessDenied", f"Access to {KEY} is denied", KEY, AccessRefused),
        ("AccessDenied", f"no right to 'b/kms-key-id/{KEY}'", KEY, AccessRefused),
        ("AccessDenied", "no right to /b/a/kms%20key/kms%3A1", "a/kms key/kms:1", AccessRefused),
        (
            "AccessDenied",
            f'{USER} is not authorized to perform: s3:GetObject on resource: "arn:aws:s3:::b/{KEY}"'
            f" {BY_POLICY} s3:GetObject action",
            KEY,
            AccessRefused,
        ),
        (
            "AccessDenied",
            f"{USER} is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:eu:1:key/2"
            f" {BY_POLICY} kms:Decrypt action",
            "e",
            KmsKeyRefused,
        ),
        ("InvalidAccessKeyId", f"Failed for {KEY}, kms-keyid: lost", KEY, KmsKeyRefused),
        ("InvalidAccessKeyId", f"Unknown, for {KEY}", KEY, WrongCredentials),
        ("AccessDenied", "The kms key is not to be used by you", "key", KmsKeyRefused),
    ],
)
def test_a_key_that_reads_like_kms_is_no_refused_kms_key(
    code: str, message: str, key: str, kind: type[StoreError]
) -> None:
    answer = {"Error": {"Code": code, "Message": message}}
    found = meaning_of(answer, message, "cold", key, "read", bucket="b")
    assert type(found) is kind
