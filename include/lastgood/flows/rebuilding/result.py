"""What a rebuild found and did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastgood.flows.rebuilding.scan import FoundPrefix


@dataclass(frozen=True, slots=True)
class Problem:
    """Something with a name that did not become, or stay, a checkpoint, and why."""

    checkpoint: str
    store: str
    prefix: str
    size_bytes: int
    reason: str
    objects: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class StageResult:
    """A stage after the rebuild: jobs acquire after `generation`; `latest` is its pointer."""

    stage: str
    generation: int
    latest: str | None
    blocked: bool


@dataclass(slots=True)
class Result:
    """What a rebuild found and did; of a dry run, what it would.

    `not_whole` had a marker and did not verify; `leftovers` have none; both stay as evidence.
    `damaged` were known before, and their restores are answered no more. `gone` are known copies
    whose marker is gone, `being_deleted` those whose deletion was recorded before and is only
    finished. `contradicted` is what the catalog knows otherwise: it stays as it was.
    """

    dry_run: bool
    catalog_id: str
    incarnation: int | None = None
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)
    markers: int = 0
    added: int = 0
    confirmed: int = 0
    taken_back: list[str] = field(default_factory=list)
    not_whole: list[Problem] = field(default_factory=list)
    leftovers: list[Problem] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    being_deleted: list[str] = field(default_factory=list)
    contradicted: list[Problem] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    holds: dict[str, str] = field(default_factory=dict)

    @property
    def flawless(self) -> bool:
        """Whether everything with a marker is a checkpoint now."""
        return not (self.not_whole or self.damaged or self.contradicted)

    def counts(self) -> dict[str, int]:
        """The numbers alone."""
        return {
            "markers": self.markers,
            "added": self.added,
            "confirmed": self.confirmed,
            "taken_back": len(self.taken_back),
            "not_whole": len(self.not_whole),
            "leftovers": len(self.leftovers),
            "damaged": len(self.damaged),
            "gone": len(self.gone),
            "being_deleted": len(self.being_deleted),
            "contradicted": len(self.contradicted),
            "stages": len(self.stages),
        }


def problem(found: FoundPrefix, reason: str, objects: Sequence[Mapping[str, Any]] = ()) -> Problem:
    """What is wrong with what lies below a prefix."""
    return Problem(
        str(found.checkpoint), found.store, found.prefix, found.size_bytes, reason, tuple(objects)
    )
