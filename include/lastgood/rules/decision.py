"""What a decision of retention consists of, and the digest of a whole project's.

The decision itself is made by `rules.retention.decide`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from lastgood.rules.names import ManifestDigest, StageId
from lastgood.rules.policy import Prerequisite, Role
from lastgood.rules.retention_rules import Position


class ReasonKind(StrEnum):
    """Why a checkpoint is kept, in the order in which reasons are told."""

    ROLE = "role"
    NEWEST = "newest"
    HOLD = "hold"
    READER = "reader"
    ACTIVE = "active"
    FLOOR = "floor"
    LINEAGE = "lineage"
    DEPENDENCY = "dependency"


_ORDER = {kind: number for number, kind in enumerate(ReasonKind)}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason to keep a checkpoint; `name` is the role, or whoever or whatever refers to it."""

    kind: ReasonKind
    name: str
    text: str = field(compare=False)

    @property
    def order(self) -> tuple[int, str]:
        return _ORDER[self.kind], self.name

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind.value, "name": self.name, "text": self.text}


@dataclass(frozen=True, slots=True)
class Leaving:
    """How a candidate goes: no reason keeps it. `role` is the one that it leaves, None where it had
    none."""

    role: Role | None
    text: str

    @property
    def role_name(self) -> str:
        return "none" if self.role is None else self.role.name

    @property
    def prerequisite(self) -> Prerequisite:
        return Prerequisite.NONE if self.role is None else self.role.leaves_when


Referrers = Mapping[Position, Iterable[str]]


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What keeps checkpoints of the stage beside the policy, as of the moment of the decision.

    `holds`, `readers` and `active` name who refers to each checkpoint. `depends_on` has, for each
    manifest of the stage, the manifests that it needs. `needed_elsewhere` are manifests that those
    of other stages need, with who needs them. `resumed_from` has the origin of each checkpoint.
    `retired`: an operator has ended the stage's life, so that roles, newest and floor keep nothing.
    `pressed_since`: when the project came to stand above soft, if it still does.
    """

    holds: Referrers = field(default_factory=dict)
    readers: Referrers = field(default_factory=dict)
    active: Referrers = field(default_factory=dict)
    depends_on: Mapping[ManifestDigest, Iterable[ManifestDigest]] = field(default_factory=dict)
    needed_elsewhere: Mapping[ManifestDigest, Iterable[str]] = field(default_factory=dict)
    resumed_from: Mapping[Position, Position] = field(default_factory=dict)
    retired: bool = False
    pressed_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class StageDecision:
    """Every checkpoint that still exists is either kept, with its reasons, or a candidate.

    Both are in ascending order. `floor` is the copy that the floor protects, `anchor` the newest
    proven one in the role that lets others leave.
    """

    kept: Mapping[Position, tuple[Reason, ...]]
    candidates: Mapping[Position, Leaving]
    floor: Position | None
    anchor: Position | None


class DecisionDigest:
    """The digest of a whole project's decision, fed one stage at a time in ascending order.

    It covers every checkpoint with the kinds and names of its reasons, not their wording.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._last: StageId | None = None

    def add(self, stage: StageId, decision: StageDecision) -> None:
        """Take the next stage in. Raises ValueError for one out of order."""
        if self._last is not None and stage <= self._last:
            raise ValueError(f"{stage} was added after {self._last}")
        self._last = stage
        begin = f"[{_json(str(stage))}"
        lines = [
            f"{begin},{generation},{sequence},{end}\n"
            for generation, sequence, end in _told(decision)
        ]
        self._hash.update("".join(lines).encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _told(decision: StageDecision) -> Iterator[tuple[int, int, str]]:
    """Each position with the rest of its line: the JSON array of stage, generation, sequence, verb
    and why."""
    for (generation, sequence), reasons in decision.kept.items():
        why = tuple([(reason.kind.value, reason.name) for reason in reasons])
        yield generation, sequence, _end("kept", why)
    for (generation, sequence), leaving in decision.candidates.items():
        yield generation, sequence, _end("leaves", leaving.role_name)


@lru_cache(maxsize=4096)
def _end(verb: str, why: object) -> str:
    return f"{_json(verb)},{_json(why)}]"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
