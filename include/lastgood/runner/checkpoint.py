"""What the coordinator says of a checkpoint, or of there being none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from lastgood.rules.manifest import ResumedFrom
from lastgood.rules.names import ManifestDigest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint."""

    id: str  # project/workload/stage/generation.sequence
    workload: str
    stage: str
    generation: int
    sequence: int
    step: int
    committed_at: datetime
    size_bytes: int
    manifest_digest: ManifestDigest
    metrics: Mapping[str, int | float]
    final: bool

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Checkpoint:
        """Read a CHECKPOINT of the API."""
        return cls(
            id=answer["id"],
            workload=answer["workload"],
            stage=answer["stage"],
            generation=answer["generation"],
            sequence=answer["sequence"],
            step=answer["step"],
            committed_at=instant(answer["committed_at"]),
            size_bytes=answer["bytes"],
            manifest_digest=ManifestDigest(answer["manifest_digest"]),
            metrics=answer["metrics"],
            final=answer["final"],
        )

    @property
    def position(self) -> str:
        """workload/stage/generation.sequence: how a reader of the project asks for it."""
        return f"{self.workload}/{self.stage}/{self.generation}.{self.sequence}"

    def as_resumed_from(self) -> ResumedFrom:
        """How a manifest names the checkpoint that its writer resumed from."""
        return ResumedFrom(self.generation, self.sequence, self.manifest_digest)

    def __str__(self) -> str:
        return f"{self.id} (step {self.step})"


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """There is nothing to resume from, and why. It is false where a checkpoint is true."""

    reasons: tuple[str, ...]

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return "no checkpoint: " + ("; ".join(self.reasons) or "no reason was given")


def checkpoint_or_none(
    answer: Mapping[str, Any] | None, reasons: list[str]
) -> Checkpoint | NoCheckpoint:
    """A CHECKPOINT of the API, or the explicit none."""
    return NoCheckpoint(tuple(reasons)) if answer is None else Checkpoint.from_json(answer)


def instant(text: str) -> datetime:
    """An RFC 3339 instant of the API."""
    return datetime.fromisoformat(text)
