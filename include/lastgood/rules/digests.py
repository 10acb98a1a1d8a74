"""Digests over digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def composite_of(part_sha256s: Sequence[str]) -> str:
    """The SHA-256 over the SHA-256s (hexadecimal) of all parts, in order, and their number:
    "<digest>-<parts>". It is what S3 keeps of an upload, and never a whole object's digest."""
    joined = b"".join(bytes.fromhex(sha256) for sha256 in part_sha256s)
    return f"{hashlib.sha256(joined).hexdigest()}-{len(part_sha256s)}"
