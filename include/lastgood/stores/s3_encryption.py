"""Encryption at rest of an S3 store: what its configuration asks for, and what HEAD says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.rules.store_profile import Answer, Finding

ALGORITHMS = {"SSE-S3": "AES256", "SSE-KMS": "aws:kms"}


@dataclass(frozen=True, slots=True)
class Encryption:
    """`asked` is a key of ALGORITHMS; None leaves it to the bucket."""

    asked: str | None = None
    kms_key: str | None = None

    @property
    def request(self) -> dict[str, Any]:
        """What a write carries."""
        if self.asked is None:
            return {}
        key = {"SSEKMSKeyId": self.kms_key} if self.kms_key else {}
        return {"ServerSideEncryption": ALGORITHMS[self.asked], **key}

    def read_back(self, head: Mapping[str, Any]) -> Finding:
        """What an object's HEAD proves. What was asked for and is not told is unknown, never no:
        the backend may encrypt below."""
        told = head.get("ServerSideEncryption")
        key = f", key {head['SSEKMSKeyId']}" if head.get("SSEKMSKeyId") else ""
        said = f"HEAD says {told}{key}" if told else "HEAD says nothing"
        if told is None or any(head.get(name) != value for name, value in self.request.items()):
            asked = self.asked or "nothing"
            return Finding(Answer.UNKNOWN, f"asked for was {asked}, {said}")
        return Finding(Answer.YES, said)


NOT_ASKED = Encryption()


def encryption_of(declared: str | None, kms_key: str | None) -> Encryption:
    """What a store's configuration asks for: other words than SSE-S3 and SSE-KMS are for people."""
    return Encryption(declared, kms_key) if declared in ALGORITHMS else NOT_ASKED
