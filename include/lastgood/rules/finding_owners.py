"""Who answers for a finding: the first of a project's rules that fits, else one for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.rules.document import Node


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Findings of a cause (None: of any) in a place that begins with `prefix` have this owner."""

    owner: str
    cause: str | None = None
    prefix: str = ""

    @classmethod
    def read(cls, node: Node) -> OwnerRule:
        """Read it from a project's configuration. A rule that fits everything is refused: that is
        what `finding_owner` says."""
        fields = node.fields(("owner",), ("cause", "prefix"))
        if len(fields) == 1:
            raise node.error("give cause, prefix or both; finding_owner is for all else")
        return cls(
            fields["owner"].text(200),
            fields["cause"].text(63) if "cause" in fields else None,
            fields["prefix"].text(1024) if "prefix" in fields else "",
        )

    def to_json(self) -> dict[str, Any]:
        return {"owner": self.owner, "cause": self.cause, "prefix": self.prefix}

    def fits(self, cause: str, key_range: str) -> bool:
        return self.cause in (None, cause) and key_range.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Owners:
    """A project's rules in their order, and who answers where none fits."""

    otherwise: str
    rules: Sequence[OwnerRule] = ()

    @classmethod
    def of(cls, project_owner: str, config: Mapping[str, Any]) -> Owners:
        """As a project's recorded configuration says."""
        rules: Iterable[Mapping[str, Any]] = config.get("finding_owners") or ()
        otherwise = str(config.get("finding_owner") or project_owner)
        return cls(otherwise, tuple(OwnerRule(**one) for one in rules))

    def of_finding(self, cause: str, key_range: str) -> str:
        """Who answers for a finding of this cause in this place."""
        fitting = (one.owner for one in self.rules if one.fits(cause, key_range))
        return next(fitting, self.otherwise)
