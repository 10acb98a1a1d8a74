"""What a deletion certificate, and a day's digest of them, says; and the name that each has.

A certificate is made when the bytes of a tombstone are proven gone. It holds the intent with every
fact of the gate and the digests of what proved it, what the store answered for the keys, and the
proof. Both kinds of record are named by the SHA-256 of their canonical JSON, and each names the one
before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from lastgood.rules.canonical import canonical_json

FORMAT_VERSION = 1


def identity(document: Mapping[str, Any]) -> str:
    """The name of a record: the SHA-256 of its canonical JSON, in lower-case hex."""
    return hashlib.sha256(canonical_json(dict(document))).hexdigest()


class KeyDigest:
    """One digest over what a store answered for each key of a tombstone, in the order of the
    answers, and the keys that it still refuses."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.answers = 0
        self.refused: set[tuple[str, str | None]] = set()

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add the next answer: number, key, version_id, size_bytes, outcome, reason."""
        self._sha256.update(canonical_json(dict(answer)) + b"\n")
        self.answers += 1
        key = (answer["key"], answer["version_id"])
        if answer["outcome"] == "refused":
            self.refused.add(key)
        else:
            self.refused.discard(key)

    def to_json(self) -> dict[str, Any]:
        return {"answers": self.answers, "digest": self._sha256.hexdigest()}

    @classmethod
    def of(cls, answers: Iterable[Mapping[str, Any]]) -> KeyDigest:
        found = cls()
        for answer in answers:
            found.add(answer)
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in its chain: its number and the name of the one before it."""

    number: int
    previous: str | None

    @classmethod
    def after(cls, number: int, name: str) -> Place:
        return cls(number + 1, name)


FIRST = Place(1, None)


def certificate(
    place: Place,
    *,
    stage: str,
    intent: Mapping[str, Any],
    keys: KeyDigest,
    proof: Mapping[str, Any],
    recorded_at: datetime,
) -> dict[str, Any]:
    """The body of a certificate. `intent` is the tombstone's digested document."""
    return {
        "format_version": FORMAT_VERSION,
        "number": place.number,
        "previous": place.previous,
        "stage": stage,
        "intent": dict(intent),
        "intent_digest": identity(intent),
        "keys": keys.to_json(),
        "proof": dict(proof),
        "recorded_at": recorded_at.astimezone(UTC).isoformat(),
    }


@dataclass(frozen=True, slots=True)
class Continued:
    """The link of another incarnation of the catalog, as a store still shows it, that a chain goes
    on from: the records behind it were lost with that incarnation."""

    number: int
    digest: str
    day: date
    incarnation: int

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "digest": self.digest,
            "day": self.day.isoformat(),
            "incarnation": self.incarnation,
        }


def daily_digest(
    place: Place,
    *,
    project: str,
    catalog_id: str,
    incarnation: int,
    day: date,
    stages: Mapping[str, Mapping[str, Any]],
    continues: Continued | None = None,
) -> dict[str, Any]:
    """The body of a day's digest. `stages` has, for each stage with a deletion that was intended or
    proven that day, the heads of its two chains: `tombstones` and `certificates`."""
    return {
        "format_version": FORMAT_VERSION,
        "project": project,
        "number": place.number,
        "previous": place.previous,
        "catalog_id": catalog_id,
        "incarnation": incarnation,
        "day": day.isoformat(),
        "stages": {name: dict(heads) for name, heads in stages.items()},
        "continues": None if continues is None else continues.to_json(),
    }
