"""The one gate before a copy is quarantined, and again before its bytes are deleted.

Each condition is a fact that is true, false or unknown, with its evidence. Only if all are true may
the copy go; an unknown one keeps it and asks for an alert. The facts are gathered under the stage's
lock, in the transaction that records the intent; the same judgement answers the sweep, the command
line, the API and the tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from lastgood.rules.policy import Prerequisite


class Truth(StrEnum):
    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, value: bool | None) -> Truth:
        """None is unknown."""
        if value is None:
            return cls.UNKNOWN
        return cls.TRUE if value else cls.FALSE


@dataclass(frozen=True, slots=True)
class Fact:
    """One condition, and what was seen: `receipt 5c1e… of 3.17 passed 02:14 ago`. `digests` name
    the records that say so: a receipt, a manifest, a mark."""

    truth: Truth
    evidence: str
    digests: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, value: bool | None, evidence: str, **digests: str) -> Fact:
        """The fact that is `value`; None is unknown."""
        return cls(Truth.of(value), evidence, digests)

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"truth": self.truth.value, "evidence": self.evidence}
        return said | ({"digests": dict(self.digests)} if self.digests else {})


UNKNOWN = Fact(Truth.UNKNOWN, "nobody looked")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """What must be true of a copy before it may go. Whatever is left out is unknown.

    `prerequisite_met` is that of the role which the copy leaves (see `prerequisite`).
    """

    newer_passed: Fact = UNKNOWN  # a newer checkpoint has a fresh enough pass of the gate's level
    newer_present: Fact = UNKNOWN  # and that newer copy is there
    no_hold: Fact = UNKNOWN
    no_reader: Fact = UNKNOWN
    no_active_generation: Fact = UNKNOWN  # none refers to it or resumed from it
    no_dependent: Fact = UNKNOWN  # no live manifest needs it
    no_lock: Fact = UNKNOWN  # its store keeps no version of it by a retention or a legal hold
    marked: Fact = UNKNOWN  # a candidate of the current live mark
    roles_released: Fact = UNKNOWN  # recomputed now, no role selects it and nothing else keeps it
    prerequisite_met: Fact = UNKNOWN
    floor_kept: Fact = UNKNOWN  # another present copy of the stage has a passing receipt
    catalog_current: Fact = UNKNOWN  # no store knows of a newer catalog
    clock_sane: Fact = UNKNOWN  # no jump of the catalog's clock is unexplained

    def items(self) -> Iterator[tuple[str, Fact]]:
        """Each condition by its name, in the order above."""
        for each in fields(self):
            yield each.name, getattr(self, each.name)

    def to_json(self) -> dict[str, dict[str, Any]]:
        return {name: fact.to_json() for name, fact in self.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[str, Any]]) -> GateFacts:
        """Read what `to_json` wrote, as a tombstone keeps it."""
        facts = {
            name: Fact(Truth(fact["truth"]), fact["evidence"], fact.get("digests", {}))
            for name, fact in document.items()
        }
        return cls(**facts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says, with the names of the conditions that speak against it."""

    allowed: bool
    refusals: tuple[str, ...]  # known to be false
    unknowns: tuple[str, ...]
    facts: GateFacts

    @property
    def alert(self) -> bool:
        """Something could not be known: an operator has to look."""
        return bool(self.unknowns)

    def to_json(self) -> dict[str, Any]:
        return {
            "allowed": self.allowed,
            "refusals": list(self.refusals),
            "unknowns": list(self.unknowns),
            "alert": self.alert,
            "facts": self.facts.to_json(),
        }

    def __str__(self) -> str:
        if self.allowed:
            return "may go: every condition is true"
        told = dict(self.facts.items())
        against = [f"{name}: {told[name].evidence}" for name in self.refusals]
        unknown = [f"{name} unknown: {told[name].evidence}" for name in self.unknowns]
        return "stays: " + "; ".join(against + unknown)


def judge(facts: GateFacts) -> Verdict:
    """Decide over one copy: it may go only if every single fact is true."""
    refusals = tuple(name for name, fact in facts.items() if fact.truth is Truth.FALSE)
    unknowns = tuple(name for name, fact in facts.items() if fact.truth is Truth.UNKNOWN)
    allowed = all(fact.truth is Truth.TRUE for _, fact in facts.items())
    return Verdict(allowed, refusals, unknowns, facts)


def prerequisite(
    asked: Prerequisite, *, newer_passed: Fact, anchor_verified: Fact, age_met: Fact
) -> Fact:
    """The fact that the left role's own prerequisite is met, from the facts that may answer it.

    `newer_passed`: a newer checkpoint passed at the gate's level. `anchor_verified`: the stage has
    an anchor and its manifest verifies. `age_met`: the copy is older than the role's `within`.
    """
    match asked:
        case Prerequisite.NEWER_RESTORED:
            return newer_passed
        case Prerequisite.ANCHOR_VERIFIED:
            return anchor_verified
        case Prerequisite.AGE_MET:
            return age_met
        case Prerequisite.NONE:
            return Fact(Truth.TRUE, "the role asks for nothing more")
