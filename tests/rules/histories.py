"""Histories of one stage for the tables of the retention rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from lastgood.rules.names import ManifestDigest
from lastgood.rules.policy import Policy, Role
from lastgood.rules.retention_rules import (
    AnyRule,
    Candidate,
    Level,
    Position,
    ReceiptVerdict,
)

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
PASSED = {Level.CHECKSUM: ReceiptVerdict.PASS}


def digest_of(number: int) -> ManifestDigest:
    return ManifestDigest(f"{number:064x}")


def checkpoint(
    sequence: int,
    *,
    generation: int = 1,
    at: datetime = NOON,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    receipts: Mapping[Level, ReceiptVerdict] | None = None,
    failed: bool = False,
    present: bool = True,
    quarantined: bool = False,
) -> Candidate:
    """A present copy that passed `checksum`, unless told otherwise."""
    return Candidate(
        generation=generation,
        sequence=sequence,
        step=sequence * 100 if step is None else step,
        committed_at=at,
        manifest=digest_of(generation * 1_000_000 + sequence),
        size_bytes=600,
        metrics=metrics or {},
        receipts=PASSED if receipts is None else receipts,
        failed=failed,
        present=present,
        quarantined=quarantined,
    )


def committed(instants: Iterable[datetime]) -> list[Candidate]:
    """One checkpoint at each instant, numbered from 1."""
    return [checkpoint(number, at=at) for number, at in enumerate(instants, start=1)]


def ticks(first: datetime, step: timedelta, count: int) -> list[datetime]:
    return [first + step * number for number in range(count)]


def local(zone: str, text: str, fold: int = 0) -> datetime:
    """The instant of a wall clock's `2026-03-29 03:30` in a zone, in UTC."""
    wall = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return wall.astimezone(UTC)


def walls(zone: str, *texts: str) -> list[datetime]:
    return [local(zone, text) for text in texts]


def sequences(kept: Iterable[Position]) -> list[int]:
    return sorted(sequence for _, sequence in kept)


def policy_of(**rules: AnyRule) -> Policy:
    """A policy with these roles and defaults for the rest."""
    return Policy("test", tuple(Role(name, rule) for name, rule in rules.items()))
