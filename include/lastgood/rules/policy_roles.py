"""The roles of a policy: named reasons to keep checkpoints, read from its document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from lastgood.rules.document import Node
from lastgood.rules.policy_sections import LEVEL, read_name
from lastgood.rules.quantities import duration_text, read_duration
from lastgood.rules.retention_rules import AnyRule, Best, Every, Newest, Steps

ANCHOR = "anchor"  # the role whose verified checkpoint lets others leave by `anchor_verified`
_COUNT_LIMIT = 1_000_000


class Prerequisite(StrEnum):
    """What a role asks for before a checkpoint that it no longer selects may go."""

    NONE = "none"
    NEWER_RESTORED = "newer_restored"  # a newer checkpoint passed at the gate's level
    ANCHOR_VERIFIED = "anchor_verified"  # the stage has an anchor and its manifest verifies
    AGE_MET = "age_met"  # it is older than the role's `within`


@dataclass(frozen=True, slots=True)
class Role:
    """A named reason to keep checkpoints. `tier` says where such a copy belongs."""

    name: str
    rule: AnyRule
    leaves_when: Prerequisite = Prerequisite.NONE
    tier: str | None = None

    @property
    def within(self) -> timedelta | None:
        """How long the role keeps what it selects; None where age plays no part."""
        return self.rule.within if isinstance(self.rule, Every) else None

    def age_met(self, committed_at: datetime, at: datetime) -> bool:
        """Whether a checkpoint is older than the role's `within`; true where it has none."""
        return self.within is None or at - committed_at > self.within

    def to_json(self) -> dict[str, Any]:
        """What `read_roles` reads back as an equal role of this name."""
        document: dict[str, Any] = {"leaves_when": self.leaves_when.value}
        if self.tier is not None:
            document["tier"] = self.tier
        return document | _rule_json(self.rule)


def roles_json(roles: Iterable[Role]) -> dict[str, Any]:
    """The section as it stands in a document."""
    return {role.name: role.to_json() for role in roles}


def read_roles(node: Node, zone: str) -> tuple[Role, ...]:
    """The roles of a document, with calendar rules in the zone; without any it is refused."""
    roles = tuple(sorted((_role(name, child, zone) for name, child in node.members()), key=_order))
    if not roles:
        raise node.error("no role keeps anything; give at least one")
    for role in roles:
        if role.leaves_when is Prerequisite.ANCHOR_VERIFIED and not _has_other_anchor(roles, role):
            place = node.at(role.name, None).at("leaves_when", None)
            raise place.error(f"anchor_verified needs another role named {ANCHOR}")
    return roles


def _has_other_anchor(roles: Iterable[Role], role: Role) -> bool:
    return role.name != ANCHOR and any(other.name == ANCHOR for other in roles)


def _order(role: Role) -> tuple[int, timedelta, str]:
    """As people think of them, and independent of the document's order: hot, warm, anchor, best."""
    kinds = (Newest, Every, Best, Steps)
    interval = role.rule.interval if isinstance(role.rule, Every) else timedelta(0)
    return kinds.index(type(role.rule)), interval, role.name


_ROLE_FIELDS = {
    "newest": (("count",), ()),
    "every": (("interval",), ("within", "validated")),
    "best": (("metric", "mode", "count"), ()),
    "steps": (("every",), ()),
}


def _role(name: str, node: Node, zone: str) -> Role:
    keep = dict(node.members()).get("keep")
    if keep is None:
        raise node.error(f"keep is missing; give one of {', '.join(_ROLE_FIELDS)}")
    required, optional = _ROLE_FIELDS[keep.one_of(list(_ROLE_FIELDS))]
    read = node.fields(("keep", *required), (*optional, "tier", "leaves_when"))
    role = Role(
        name=read_name(replace(node, value=name)),
        rule=_rule(str(keep.value), read, zone),
        leaves_when=_prerequisite(read),
        tier=read_name(read["tier"]) if "tier" in read else None,
    )
    if role.leaves_when is Prerequisite.AGE_MET and role.within is None:
        raise read["leaves_when"].error("age_met needs a role with `within`")
    return role


def _prerequisite(read: dict[str, Node]) -> Prerequisite:
    if "leaves_when" not in read:
        return Prerequisite.NONE
    return Prerequisite(read["leaves_when"].one_of(list(Prerequisite)))


def _rule(keep: str, read: dict[str, Node], zone: str) -> AnyRule:
    match keep:
        case "newest":
            return Newest(read["count"].integer(1, _COUNT_LIMIT))
        case "best":
            mode: Literal["min", "max"] = (
                "max" if read["mode"].one_of(("min", "max")) == "max" else "min"
            )
            return Best(read["metric"].text(200), mode, read["count"].integer(1, _COUNT_LIMIT))
        case "steps":
            return Steps(read["every"].integer(1))
    return Every(
        interval=read_duration(read["interval"]),
        within=read_duration(read["within"]) if "within" in read else None,
        validated=LEVEL.read(read["validated"]) if "validated" in read else None,
        zone=zone,
    )


def _rule_json(rule: AnyRule) -> dict[str, Any]:
    match rule:
        case Newest(count):
            return {"keep": "newest", "count": count}
        case Best(metric, mode, count):
            return {"keep": "best", "metric": metric, "mode": mode, "count": count}
        case Steps(every):
            return {"keep": "steps", "every": every}
        case Every(interval, within, validated):
            spans = {"interval": interval, "within": within}
            document = {key: duration_text(span) for key, span in spans.items() if span}
            level = {"validated": validated.value} if validated else {}
            return {"keep": "every"} | document | level
