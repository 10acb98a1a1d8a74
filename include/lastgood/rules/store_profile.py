"""What a store was found to do, and what follows from it.

A finding comes from doing and reading back. Nothing is concluded from the name of a product: two
buckets of one server differ, because versioning changes what a conditional write does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

PROBE_VERSION = 1
"""Raised when the probe asks more or otherwise; a profile of another version is made anew."""


class Answer(StrEnum):
    """Whether a store can do something. `unknown`: it could not be asked, and counts as no."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Ability(StrEnum):
    """What is asked of a store, in the order in which it is shown."""

    SIGNATURES = "signatures"
    CONDITIONAL_PUT = "conditional-put"
    CONDITIONAL_COMPLETE = "conditional-complete"
    REPLAY_REFUSED = "replay-refused"
    PRESIGNED = "presigned"
    SHA256_OBJECT = "sha256-object"
    SHA256_PARTS = "sha256-parts"
    SHA256_COMPOSITE = "sha256-composite"
    UPLOADS_LISTED = "uploads-listed"
    UPLOADS_PAGED = "uploads-paged"
    UNEQUAL_PARTS = "unequal-parts"
    VERSIONS = "versions"
    HIDES = "hides"
    OBJECT_LOCK = "object-lock"
    LOCKS_SEEN = "locks-seen"
    LIFECYCLE = "lifecycle"
    TAGS = "tags"
    BULK_DELETE_MD5 = "bulk-delete-md5"
    BULK_DELETE_CRC32 = "bulk-delete-crc32"
    SSE_S3 = "sse-s3"
    SSE_KMS = "sse-kms"
    ENCRYPTION = "encryption"


MEANINGS: Mapping[Ability, str] = MappingProxyType(
    {
        Ability.SIGNATURES: "a request with a wrong signature, or with none, is refused",
        Ability.CONDITIONAL_PUT: "a write with If-None-Match refuses to replace",
        Ability.CONDITIONAL_COMPLETE: "completing an upload with If-None-Match refuses to replace",
        Ability.REPLAY_REFUSED: "a part sent after the completion changes nothing",
        Ability.PRESIGNED: "parts and reads go by presigned URLs",
        Ability.SHA256_OBJECT: "a wrong SHA-256 of an object is refused, a right one is read back",
        Ability.SHA256_PARTS: "a wrong SHA-256 of a part is refused",
        Ability.SHA256_COMPOSITE: "the SHA-256 over those of the parts is read back, as such",
        Ability.UPLOADS_LISTED: "pending uploads are listed, with exact keys, below a prefix",
        Ability.UPLOADS_PAGED: "their listing goes on over pages",
        Ability.UNEQUAL_PARTS: "parts may differ in size",
        Ability.VERSIONS: "what is replaced or deleted stays as a version",
        Ability.HIDES: "a quarantined object cannot be read under its key, until that is undone",
        Ability.OBJECT_LOCK: "versions can be locked against deletion",
        Ability.LOCKS_SEEN: "these credentials may see whether a version is locked",
        Ability.LIFECYCLE: "a rule that aborts old uploads is kept as it was written",
        Ability.TAGS: "objects carry tags",
        Ability.BULK_DELETE_MD5: "many keys are deleted at once, by Content-MD5",
        Ability.BULK_DELETE_CRC32: "many keys are deleted at once, by the SDK's own checksum",
        Ability.SSE_S3: "an object is encrypted by a key of the store, and says so",
        Ability.SSE_KMS: "an object is encrypted by a named key, and says so",
        Ability.ENCRYPTION: "what is written is encrypted as the store's configuration asks",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer, and what it rests on."""

    answer: Answer
    evidence: str


@dataclass(frozen=True, slots=True)
class FoundProfile:
    """What a store was found to do. An ability without a finding is unknown."""

    kind: str  # for people, not for decisions
    findings: Mapping[Ability, Finding]
    version: int = PROBE_VERSION

    def has(self, ability: Ability) -> bool:
        """Whether the store was seen to do it."""
        return self.finding(ability).answer is Answer.YES

    def finding(self, ability: Ability) -> Finding:
        """What was found about an ability."""
        return self.findings.get(ability, Finding(Answer.UNKNOWN, "not asked"))

    def to_json(self) -> dict[str, Any]:
        """The profile as it is kept."""
        return {
            "kind": self.kind,
            "version": self.version,
            "findings": {
                ability.value: {"answer": found.answer.value, "evidence": found.evidence}
                for ability, found in self.findings.items()
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FoundProfile:
        """A kept profile; what this version does not ask any more is left out."""
        known = {ability.value for ability in Ability}
        return cls(
            kind=document["kind"],
            version=document["version"],
            findings={
                Ability(name): Finding(Answer(found["answer"]), found["evidence"])
                for name, found in document["findings"].items()
                if name in known
            },
        )


def choices(profile: FoundProfile) -> dict[str, str]:
    """What flows do in such a store, in words, by subject."""
    return {
        "publishing": _publishing(profile),
        "verification": _verification(profile),
        "quarantine": _quarantine(profile),
        "deletion": _deletion(profile),
        "locks": _locks(profile),
        "encryption": profile.finding(Ability.ENCRYPTION).evidence,
    }


def _publishing(profile: FoundProfile) -> str:
    if profile.has(Ability.CONDITIONAL_PUT):
        small = "small objects by conditional writes"
    elif profile.has(Ability.VERSIONS):
        small = "of small objects the first version counts, later ones are taken back"
    else:
        small = "small objects after a look"
    if profile.has(Ability.CONDITIONAL_COMPLETE):
        return f"{small}; uploads completed conditionally"
    return f"{small}; uploads completed after a look, by the coordinator alone"


def _verification(profile: FoundProfile) -> str:
    received_here = profile.has(Ability.SHA256_PARTS) and not profile.has(Ability.PRESIGNED)
    if attests(profile) or received_here:
        return "by the SHA-256 that the store attests, and a read of the last byte"
    return "by reading every byte"


def _quarantine(profile: FoundProfile) -> str:
    if profile.has(Ability.VERSIONS):
        return "a delete marker over each object, removed to undo it"
    if profile.has(Ability.HIDES):
        return "moved out of sight, and back to undo it"
    tag = " and a tag" if profile.has(Ability.TAGS) else ""
    return f"a state in the catalog{tag}; no grant to read it"


def _deletion(profile: FoundProfile) -> str:
    by = " by VersionId" if profile.has(Ability.VERSIONS) else ""
    if profile.has(Ability.BULK_DELETE_MD5) or profile.has(Ability.BULK_DELETE_CRC32):
        return f"up to 1,000 keys in a request{by}"
    return f"key by key{by}"


def _locks(profile: FoundProfile) -> str:
    unasked = profile.finding(Ability.OBJECT_LOCK).answer is Answer.UNKNOWN
    if unasked and profile.has(Ability.VERSIONS):
        return "may not be seen: each version is asked for its own, and what is not told is locked"
    if not profile.has(Ability.OBJECT_LOCK):
        return "none: every deletion is tried"
    if profile.has(Ability.LOCKS_SEEN):
        return "retention and legal hold are asked for before quarantine and deletion, by version"
    return "cannot be seen with these credentials: every version counts as locked"


def attests(profile: FoundProfile) -> bool:
    """Whether an uploaded object need not be read again: a wrong SHA-256 of a part was refused,
    and the digest of all parts was read back as what it is."""
    return profile.has(Ability.SHA256_PARTS) and profile.has(Ability.SHA256_COMPOSITE)


def refusals(profile: FoundProfile, accepted: frozenset[str] = frozenset()) -> dict[str, str]:
    """Why such a store cannot hold checkpoints, by the word with which its configuration would
    accept that; what can be accepted and was is left out."""
    found = {}
    if profile.finding(Ability.SIGNATURES).answer is Answer.NO:
        found["unsigned-requests"] = "whoever reaches it can write and delete without its secret"
    if not _writes_once(profile):
        found["replaced-keys"] = (
            "it ignores If-None-Match and keeps no versions: two catalogs that claim it at once"
            " would both believe to own it; enable versioning, or use another store"
        )
    if profile.finding(Ability.REPLAY_REFUSED).answer is Answer.NO:
        found["replayed-parts"] = "a part that is sent after the completion changes the object"
    return {word: reason for word, reason in found.items() if word not in accepted}


ACCEPTABLE = frozenset({"unsigned-requests", "replaced-keys"})
"""What a store's configuration can accept by name; a replayed part never."""


def _writes_once(profile: FoundProfile) -> bool:
    return profile.has(Ability.CONDITIONAL_PUT) or profile.has(Ability.VERSIONS)
