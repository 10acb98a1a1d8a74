"""The policy: a versioned, content-addressed document of what is kept, and what must be proven to
delete the rest.

    name: default
    timezone: Europe/Berlin
    roles:
      hot:    {keep: newest, count: 4, leaves_when: newer_restored}
      warm:   {keep: every, interval: 6h, within: 2d, leaves_when: anchor_verified}
      anchor: {keep: every, interval: 1d, within: 7d, validated: format, leaves_when: age_met}
    gate: {level: restore, receipt_max_age: 7d}

A checkpoint may have several roles; what is kept is their union, and more (see `rules.retention`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lastgood.errors import InvalidPolicy, LastgoodError
from lastgood.rules import policy_sections as sections
from lastgood.rules import policy_text
from lastgood.rules.canonical import canonical_json
from lastgood.rules.document import Node
from lastgood.rules.policy_sections import (
    CapacityPolicy,
    Forms,
    GatePolicy,
    LeasePolicy,
    Objectives,
    QuarantinePolicy,
    RetirePolicy,
    UploadPolicy,
    ValidationPolicy,
    read_name,
    read_section,
    write_section,
)
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


@dataclass(frozen=True)
class Policy:
    """A whole policy. Without a role it would keep nothing: InvalidPolicy."""

    name: str
    roles: tuple[Role, ...]
    timezone: str = "UTC"
    lineage: bool = True  # what a kept checkpoint was resumed from is kept, too
    forensic_retention: timedelta = timedelta(days=14)  # of failed attempts, as evidence
    gate: GatePolicy = field(default_factory=GatePolicy)
    quarantine: QuarantinePolicy = field(default_factory=QuarantinePolicy)
    retire: RetirePolicy = field(default_factory=RetirePolicy)
    uploads: UploadPolicy = field(default_factory=UploadPolicy)
    capacity: CapacityPolicy = field(default_factory=CapacityPolicy)
    validate: ValidationPolicy = field(default_factory=ValidationPolicy)
    objectives: Objectives = field(default_factory=Objectives)
    leases: LeasePolicy = field(default_factory=LeasePolicy)

    def __post_init__(self) -> None:
        if not self.roles or all(role.rule.most() == 0 for role in self.roles):
            raise InvalidPolicy(
                policy=self.name, where="roles", reason="no role keeps anything; give at least one"
            )

    @classmethod
    def parse(cls, document: object, *, where: str) -> Policy:
        """Read a policy document, strictly; `where` names it in errors (a file, a version).

        Raises InvalidPolicy naming the key.
        """

        def refusal(key: str, reason: str) -> LastgoodError:
            return InvalidPolicy(policy=where, where=key or "the document", reason=reason)

        return _parse(Node(document, "", refusal))

    def role(self, name: str) -> Role | None:
        """The role of this name."""
        return next((role for role in self.roles if role.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The whole document, defaults included: what `parse` reads back as an equal policy."""
        return {
            "name": self.name,
            "timezone": self.timezone,
            "lineage": self.lineage,
            "roles": {role.name: _role_json(role) for role in self.roles},
            "forensic_retention": duration_text(self.forensic_retention),
            **{
                key: write_section(getattr(self, key), forms)
                for key, (_, forms) in _SECTIONS.items()
            },
        }

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical document, in lower-case hex: the identity of the policy."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()

    def warnings(self) -> tuple[str, ...]:
        """What an operator must know before this policy is applied."""
        return policy_text.warnings(self)

    def __str__(self) -> str:
        return policy_text.sentences(self)


_SECTIONS: Mapping[str, tuple[type, Forms]] = {
    "gate": (GatePolicy, sections.GATE),
    "quarantine": (QuarantinePolicy, sections.QUARANTINE),
    "retire": (RetirePolicy, sections.RETIRE),
    "uploads": (UploadPolicy, sections.UPLOADS),
    "capacity": (CapacityPolicy, sections.CAPACITY),
    "validate": (ValidationPolicy, sections.VALIDATE),
    "objectives": (Objectives, sections.OBJECTIVES),
    "leases": (LeasePolicy, sections.LEASES),
}


def _parse(root: Node) -> Policy:
    read = root.fields(("name", "roles"), ("timezone", "lineage", "forensic_retention", *_SECTIONS))
    values: dict[str, Any] = {"name": read_name(read["name"])}
    if "timezone" in read:
        values["timezone"] = _timezone(read["timezone"])
    if "lineage" in read:
        values["lineage"] = read["lineage"].flag()
    if "forensic_retention" in read:
        values["forensic_retention"] = read_duration(read["forensic_retention"])
    for key, (kind, forms) in _SECTIONS.items():
        if key in read:
            values[key] = read_section(kind, read[key], forms)
    policy = Policy(roles=_roles(read["roles"], values.get("timezone", "UTC")), **values)
    _check_whole(policy, root)
    return policy


def _timezone(node: Node) -> str:
    name = node.text(64)
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise node.error(f"{name!r} is not an IANA time zone, as in Europe/Berlin") from None


def _roles(node: Node, zone: str) -> tuple[Role, ...]:
    roles = [_role(name, child, zone) for name, child in node.members()]
    if not roles:
        raise node.error("no role keeps anything; give at least one")
    return tuple(sorted(roles, key=_order))


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
    if role.leaves_when is Prerequisite.AGE_MET and getattr(role.rule, "within", None) is None:
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
        validated=sections.LEVEL.read(read["validated"]) if "validated" in read else None,
        zone=zone,
    )


def _role_json(role: Role) -> dict[str, Any]:
    document: dict[str, Any] = {"leaves_when": role.leaves_when.value}
    if role.tier is not None:
        document["tier"] = role.tier
    match role.rule:
        case Newest(count):
            return document | {"keep": "newest", "count": count}
        case Best(metric, mode, count):
            return document | {"keep": "best", "metric": metric, "mode": mode, "count": count}
        case Steps(every):
            return document | {"keep": "steps", "every": every}
        case Every(interval, within, validated):
            spans = {"interval": interval, "within": within}
            document |= {key: duration_text(span) for key, span in spans.items() if span}
            return (
                document | {"keep": "every"} | ({"validated": validated.value} if validated else {})
            )


def _check_whole(policy: Policy, root: Node) -> None:
    """What no section can know alone."""

    def refuse(reason: str, *keys: str) -> LastgoodError:
        node = root
        for key in keys:
            node = node.at(key, None)
        return node.error(reason)

    leases = policy.leases
    if leases.grant > min(leases.writer, leases.reader):
        raise refuse("a grant may not outlast the writer and reader leases", "leases", "grant")
    if timedelta(days=policy.uploads.lifecycle_days) <= policy.uploads.abort_after:
        raise refuse("must be longer than uploads.abort_after", "uploads", "lifecycle_days")
    soft, hard = policy.capacity.soft, policy.capacity.hard
    if soft.reaches(hard):
        raise refuse("must be below capacity.hard", "capacity", "soft")
    for role in policy.roles:
        if role.leaves_when is Prerequisite.ANCHOR_VERIFIED and not (
            role.name != ANCHOR and policy.role(ANCHOR)
        ):
            raise refuse(
                f"anchor_verified needs another role named {ANCHOR}",
                "roles",
                role.name,
                "leaves_when",
            )
