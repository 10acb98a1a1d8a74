"""SHA-256 in S3's additional checksums: base64 in headers, hexadecimal everywhere else."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

SHA256_HEADER = "x-amz-checksum-sha256"


def header_of(sha256: str) -> str:
    """A hexadecimal digest as S3 takes it."""
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def digest_in(header: str) -> str:
    """What S3 tells, in hexadecimal."""
    return base64.b64decode(header).hex()


def told_by(head: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The digest of the whole object, or else the one over its parts' digests, as HEAD tells. A
    composite is never taken for a whole object's digest, whichever way it is marked."""
    told = head.get("ChecksumSHA256")
    if not told:
        return None, None
    digest, dash, count = told.partition("-")
    if dash:
        return None, f"{digest_in(digest)}-{count}"
    return (None, None) if head.get("ChecksumType") == "COMPOSITE" else (digest_in(digest), None)
