"""The policy: a versioned, content-addressed document of what is kept, and what must be proven to
delete the rest.

    name: default
    timezone: Europe/Berlin
    roles:
      hot:    {keep: newest, count: 4, leaves_when: newer_restored}
      warm:   {keep: every, interval: 6h, within: 2d, leaves_when: anchor_verified}
      anchor: {keep: every, interval: 1d, within: 7d, validated: format, leaves_when: age_met}
    gate: {level: restore, receipt_max_age: 7d}
    overrides:
      - {workloads: "ablation-*", roles: {hot: {keep: newest, count: 1}}}

A checkpoint may have several roles; what is kept is their union, and more (see `rules.retention`).
What holds for one stage is `policy.for_stage(workload, stage)`; only what is the whole project's
(see `rules.policy_overrides`) may be read from the policy itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lastgood.errors import InvalidPolicy, LastgoodError
from lastgood.rules import policy_sections as sections
from lastgood.rules.canonical import canonical_json
from lastgood.rules.document import Node
from lastgood.rules.policy_overrides import Override, read_overrides
from lastgood.rules.policy_roles import ANCHOR, Prerequisite, Role, read_roles, roles_json
from lastgood.rules.policy_sections import (
    CapacityPolicy,
    Forms,
    GatePolicy,
    LeasePolicy,
    Objectives,
    PromotionPolicy,
    QuarantinePolicy,
    RetirePolicy,
    UploadPolicy,
    ValidationPolicy,
    read_name,
    read_section,
    write_section,
)
from lastgood.rules.quantities import duration_text, read_duration
from lastgood.rules.retention_rules import Every

__all__ = ["ANCHOR", "Override", "Policy", "Prerequisite", "Role"]


@dataclass(frozen=True)
class Policy:
    """A whole policy. Without a role it would keep nothing, here or in an override: InvalidPolicy.

    Where it is the answer of `for_stage` it has no overrides, and its digest is not the project's.
    """

    name: str
    roles: tuple[Role, ...]
    timezone: str = "UTC"
    lineage: bool = True  # what a kept checkpoint was resumed from is kept, too
    forensic_retention: timedelta = timedelta(days=14)  # of failed attempts, as evidence
    gate: GatePolicy = field(default_factory=GatePolicy)
    quarantine: QuarantinePolicy = field(default_factory=QuarantinePolicy)
    retire: RetirePolicy = field(default_factory=RetirePolicy)
    promotion: PromotionPolicy = field(default_factory=PromotionPolicy)
    uploads: UploadPolicy = field(default_factory=UploadPolicy)
    capacity: CapacityPolicy = field(default_factory=CapacityPolicy)
    validate: ValidationPolicy = field(default_factory=ValidationPolicy)
    objectives: Objectives = field(default_factory=Objectives)
    leases: LeasePolicy = field(default_factory=LeasePolicy)
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        for where, roles in self._all_roles():
            if all(role.rule.most() == 0 for role in roles):
                raise InvalidPolicy(
                    policy=self.name,
                    where=where,
                    reason="no role keeps anything; give at least one",
                )

    def _all_roles(self) -> Iterator[tuple[str, tuple[Role, ...]]]:
        yield "roles", self.roles
        for number, override in enumerate(self.overrides):
            if override.roles is not None:
                yield f"overrides[{number}].roles", override.roles

    @classmethod
    def parse(cls, document: object, *, where: str) -> Policy:
        """Read a policy document, strictly; `where` names it in errors (a file, a version).

        Raises InvalidPolicy naming the key.
        """

        def refusal(key: str, reason: str) -> LastgoodError:
            return InvalidPolicy(policy=where, where=key or "the document", reason=reason)

        return _parse(Node(document, "", refusal))

    def for_stage(self, workload: str, stage: str) -> Policy:
        """The rules that hold for one stage: the first override that matches it, laid over this
        policy."""
        for override, rules in zip(self.overrides, self.overridden, strict=True):
            if override.matches(workload, stage):
                return rules
        return self

    def override_for(self, workload: str, stage: str) -> Override | None:
        """The override that holds for one stage, None where the policy's own rules do."""
        return next((one for one in self.overrides if one.matches(workload, stage)), None)

    @cached_property
    def overridden(self) -> tuple[Policy, ...]:
        """This policy under each of its overrides, in their order."""
        return tuple(replace(self, overrides=(), **one.changes()) for one in self.overrides)

    def role(self, name: str) -> Role | None:
        """The role of this name."""
        return next((role for role in self.roles if role.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The whole document, defaults included: what `parse` reads back as an equal policy."""
        overrides = [override.to_json() for override in self.overrides]
        return {
            "name": self.name,
            "timezone": self.timezone,
            "lineage": self.lineage,
            "roles": roles_json(self.roles),
            "forensic_retention": duration_text(self.forensic_retention),
            **{
                key: written
                for key, (_, forms) in _SECTIONS.items()
                if (written := write_section(getattr(self, key), forms))
            },
            **({"overrides": overrides} if overrides else {}),
        }

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical document, in lower-case hex: the identity of the policy."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()


_SECTIONS: Mapping[str, tuple[type, Forms]] = {
    "gate": (GatePolicy, sections.GATE),
    "quarantine": (QuarantinePolicy, sections.QUARANTINE),
    "retire": (RetirePolicy, sections.RETIRE),
    "promotion": (PromotionPolicy, sections.PROMOTION),
    "uploads": (UploadPolicy, sections.UPLOADS),
    "capacity": (CapacityPolicy, sections.CAPACITY),
    "validate": (ValidationPolicy, sections.VALIDATE),
    "objectives": (Objectives, sections.OBJECTIVES),
    "leases": (LeasePolicy, sections.LEASES),
}


def _parse(root: Node) -> Policy:
    optional = ("timezone", "lineage", "forensic_retention", *_SECTIONS, "overrides")
    read = root.fields(("name", "roles"), optional)
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
    policy = Policy(roles=read_roles(read["roles"], values.get("timezone", "UTC")), **values)
    _check_project_wide(policy, root)
    _check_rules(policy, root, root)
    if "overrides" in read:
        policy = _with_overrides(policy, root, read["overrides"])
    return policy


def _with_overrides(policy: Policy, root: Node, node: Node) -> Policy:
    found = read_overrides(node, policy.timezone, policy.__dict__)
    whole = replace(policy, overrides=found)
    for rules, item in zip(whole.overridden, node.items(), strict=True):
        _check_rules(rules, root, item)
    return whole


def _timezone(node: Node) -> str:
    name = node.text(64)
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise node.error(f"{name!r} is not an IANA time zone, as in Europe/Berlin") from None


def _check_project_wide(policy: Policy, root: Node) -> None:
    """What no section can know alone."""
    leases, capacity = policy.leases, policy.capacity
    if leases.grant > min(leases.writer, leases.reader):
        raise _at(root, "leases", "grant").error(
            "a grant may not outlast the writer and reader leases"
        )
    if capacity.soft.reaches(capacity.hard):
        raise _at(root, "capacity", "soft").error("must be below capacity.hard")


def _check_rules(rules: Policy, root: Node, own: Node) -> None:
    """The same for the rules of one stage. `own` is the override that they come from, or the whole
    document; an error names the section where it stands."""
    uploads = rules.uploads
    if timedelta(days=uploads.lifecycle_days) <= uploads.abort_after:
        if own is root:
            reason = "must be longer than uploads.abort_after"
            raise _at(root, "uploads", "lifecycle_days").error(reason)
        reason = "must be shorter than the policy's uploads.lifecycle_days"
        raise _at(own, "uploads", "abort_after").error(reason)
    if all(role.rule.most() == 0 or never_selects(role, rules) for role in rules.roles):
        place = own if _gives(own, "roles") else root
        raise _at(place, "roles").error(
            "no role can ever keep anything: each asks for receipts that validate never makes"
        )


def never_selects(role: Role, rules: Policy) -> bool:
    """Whether a role asks for receipts that these rules never make."""
    level = role.rule.validated if isinstance(role.rule, Every) else None
    return level is not None and all(
        rules.validate.cadence(reached).never for reached in level.at_least
    )


def _gives(node: Node, key: str) -> bool:
    return isinstance(node.value, dict) and key in node.value


def _at(node: Node, *keys: str) -> Node:
    for key in keys:
        node = node.at(key, None)
    return node
