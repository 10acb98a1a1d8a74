"""Overrides: other rules for some workloads of a project, inside its one policy document.

    overrides:
      - workloads: "ablation-*"
        stages: "sft"
        roles: {hot: {keep: newest, count: 1}}

The first override that matches a stage holds for it, and no other. A section that it names replaces
the policy's own section whole; the others stay as they are. What is decided for a project as a
whole stands in the policy alone: capacity, leases, retirement, the time zone, how old a mark may
be, when a sweep stops and asks, and the bucket's own rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from lastgood.rules import policy_sections as sections
from lastgood.rules.document import Node
from lastgood.rules.globs import ALL, Glob
from lastgood.rules.policy_roles import Role, read_roles, roles_json
from lastgood.rules.policy_sections import (
    Forms,
    GatePolicy,
    Objectives,
    QuarantinePolicy,
    UploadPolicy,
    ValidationPolicy,
    write_section,
)
from lastgood.rules.quantities import duration_text, read_duration

MOST_OVERRIDES = 100

# The keys of an overridden section that are the whole project's; they keep the policy's own values.
_PROJECT_WIDE: Mapping[str, tuple[str, ...]] = {
    "gate": ("mark_max_age",),
    "quarantine": ("approve_above", "share_guard", "share_guard_min"),
    "uploads": ("lifecycle_days",),
    "validate": (),
    "objectives": (),
}
_KINDS: Mapping[str, tuple[type, Forms]] = {
    "gate": (GatePolicy, sections.GATE),
    "quarantine": (QuarantinePolicy, sections.QUARANTINE),
    "uploads": (UploadPolicy, sections.UPLOADS),
    "validate": (ValidationPolicy, sections.VALIDATE),
    "objectives": (Objectives, sections.OBJECTIVES),
}
_NEVER = ("name", "timezone", "capacity", "leases", "retire", "promotion", "overrides")


@dataclass(frozen=True)
class Override:
    """Other rules for the stages that it matches; None leaves a section as the policy has it."""

    workloads: Glob
    stages: Glob = ALL
    roles: tuple[Role, ...] | None = None
    lineage: bool | None = None
    forensic_retention: timedelta | None = None
    gate: GatePolicy | None = None
    quarantine: QuarantinePolicy | None = None
    uploads: UploadPolicy | None = None
    validate: ValidationPolicy | None = None
    objectives: Objectives | None = None

    def matches(self, workload: str, stage: str) -> bool:
        """Whether it is for a stage, unless a former one is."""
        return self.workloads.matches(workload) and self.stages.matches(stage)

    def covers(self, other: Override) -> bool:
        """Whether every stage that the other matches is matched by this one."""
        return self.workloads.covers(other.workloads) and self.stages.covers(other.stages)

    def meets(self, other: Override) -> bool:
        """Whether both can match the same stage."""
        return self.workloads.meets(other.workloads) and self.stages.meets(other.stages)

    def changes(self) -> dict[str, Any]:
        """Its sections by name."""
        named = {one.name: getattr(self, one.name) for one in fields(self)[2:]}
        return {name: value for name, value in named.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """What `read_overrides` reads back as an equal one."""
        document: dict[str, Any] = {"workloads": str(self.workloads), "stages": str(self.stages)}
        for name, value in self.changes().items():
            document[name] = _section_json(name, value)
        return document

    def __str__(self) -> str:
        stages = "" if self.stages.matches_all else f", stages {self.stages}"
        return f"workloads {self.workloads}{stages}"


def read_overrides(node: Node, zone: str, own: Mapping[str, Any]) -> tuple[Override, ...]:
    """The overrides of a document. `own` are the policy's own sections by name. One that no stage
    could ever come to is refused."""
    found: list[Override] = []
    for item in node.items(MOST_OVERRIDES):
        override = _override(item, zone, own)
        for number, former in enumerate(found):
            if former.covers(override):
                raise item.error(
                    f"it matches nothing: overrides[{number}], {former}, comes first and covers it"
                )
        found.append(override)
    return tuple(found)


def _override(node: Node, zone: str, own: Mapping[str, Any]) -> Override:
    _refuse_project_wide(node, _NEVER)
    read = node.fields(
        ("workloads",), ("stages", "roles", "lineage", "forensic_retention", *_KINDS)
    )
    workloads = Glob.read(read["workloads"])
    stages = Glob.read(read["stages"]) if "stages" in read else ALL
    if workloads.matches_all and stages.matches_all:
        raise read["workloads"].error("it is for every stage: give its sections to the policy")
    values: dict[str, Any] = {}
    if "roles" in read:
        values["roles"] = read_roles(read["roles"], zone)
    if "lineage" in read:
        values["lineage"] = read["lineage"].flag()
    if "forensic_retention" in read:
        values["forensic_retention"] = read_duration(read["forensic_retention"])
    for key in _KINDS:
        if key in read:
            values[key] = _section(key, read[key], own[key])
    if not values:
        raise node.error("it changes nothing; give at least one section, such as roles or gate")
    return Override(workloads, stages, **values)


def _section(key: str, node: Node, own: object) -> Any:
    kind, _ = _KINDS[key]
    _refuse_project_wide(node, _PROJECT_WIDE[key])
    forms = _forms(key)
    values = {name: forms[name].read(child) for name, child in node.fields((), forms).items()}
    return kind(**values, **{name: getattr(own, name) for name in _PROJECT_WIDE[key]})


def _forms(key: str) -> Forms:
    return {name: form for name, form in _KINDS[key][1].items() if name not in _PROJECT_WIDE[key]}


def _refuse_project_wide(node: Node, keys: tuple[str, ...]) -> None:
    for key, child in node.members():
        if key in keys:
            raise child.error("it is the whole project's, not a workload's: give it in the policy")


def _section_json(name: str, value: Any) -> Any:
    match name:
        case "roles":
            return roles_json(value)
        case "lineage":
            return value
        case "forensic_retention":
            return duration_text(value)
    return write_section(value, _forms(name))
