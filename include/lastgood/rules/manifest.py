"""The manifest: the immutable document that says what a checkpoint is, object by object.

Read strictly, since it comes from a job: every refusal names the JSON path. Where the checkpoint
lies is not part of it. Its canonical bytes and digest are in `rules.canonical`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lastgood.errors import BadManifest, LastgoodError, UnknownManifestVersion
from lastgood.rules.document import Node
from lastgood.rules.manifest_parts import (
    ManifestLimits,
    ManifestObject,
    RestoreContract,
    ResumedFrom,
    RuntimeFact,
    RuntimeIdentity,
    read_digest,
    read_entries,
    read_objects,
)
from lastgood.rules.names import (
    GENERATION_LIMIT,
    SEQUENCE_LIMIT,
    CheckpointId,
    ManifestDigest,
    ProjectName,
    StageId,
    StageName,
    WorkloadName,
    check_name,
    shown,
)

__all__ = [
    "FORMAT_VERSION",
    "CheckpointKind",
    "Manifest",
    "ManifestLimits",
    "ManifestObject",
    "RestoreContract",
    "ResumedFrom",
    "RuntimeFact",
    "RuntimeIdentity",
]

FORMAT_VERSION = 1
DEFAULT_LIMITS = ManifestLimits()
_NOT_TOLD = RuntimeIdentity()

_FIELDS = (
    "format_version",
    "project",
    "workload",
    "stage",
    "generation",
    "sequence",
    "step",
    "kind",
    "world_size",
    "sharding",
    "objects",
    "runtime",
    "runtime_contract_version",
    "restore",
    "metrics",
    "resumed_from",
    "dependencies",
    "outputs",
    "final",
)


class CheckpointKind(StrEnum):
    FULL = "full"
    INCREMENTAL = "incremental"  # names the manifests that it needs as dependencies


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole manifest. `Manifest.parse` is the way in for anything that was sent.

    Objects are sorted by the UTF-8 bytes of their paths.
    """

    project: ProjectName
    workload: WorkloadName
    stage: StageName
    generation: int
    sequence: int
    step: int
    objects: tuple[ManifestObject, ...]
    kind: CheckpointKind = CheckpointKind.FULL
    world_size: int = 1
    sharding: Mapping[str, Any] = field(default_factory=dict)
    runtime: RuntimeIdentity = _NOT_TOLD
    runtime_contract_version: str | None = None
    restore: RestoreContract | None = None
    metrics: Mapping[str, int | float] = field(default_factory=dict)
    resumed_from: ResumedFrom | None = None
    dependencies: tuple[ManifestDigest, ...] = ()
    outputs: tuple[str, ...] = ()
    final: bool = False

    @classmethod
    def parse(cls, document: object, limits: ManifestLimits = DEFAULT_LIMITS) -> Manifest:
        """Read a parsed JSON document, strictly.

        Raises BadManifest with the JSON path; UnknownManifestVersion; InvalidName, InvalidPath or
        SizeInvalid (and their subclasses) with the JSON path as `where`.
        """
        return _parse(Node(document, "$", _refusal), limits)

    @property
    def checkpoint(self) -> CheckpointId:
        return CheckpointId.of(self.stage_id, self.generation, self.sequence)

    @property
    def stage_id(self) -> StageId:
        return StageId(self.project, self.workload, self.stage)

    @property
    def size_bytes(self) -> int:
        """The bytes of all objects."""
        return sum(item.size_bytes for item in self.objects)

    def to_json(self) -> dict[str, Any]:
        """The document, exactly as `parse` reads it."""
        return {
            "format_version": FORMAT_VERSION,
            "project": self.project,
            "workload": self.workload,
            "stage": self.stage,
            "generation": self.generation,
            "sequence": self.sequence,
            "step": self.step,
            "kind": self.kind.value,
            "world_size": self.world_size,
            "sharding": dict(self.sharding),
            "objects": [item.to_json() for item in self.objects],
            "runtime": self.runtime.to_json(),
            "runtime_contract_version": self.runtime_contract_version,
            "restore": None if self.restore is None else self.restore.to_json(),
            "metrics": dict(self.metrics),
            "resumed_from": None if self.resumed_from is None else self.resumed_from.to_json(),
            "dependencies": list(self.dependencies),
            "outputs": list(self.outputs),
            "final": self.final,
        }


def _refusal(where: str, reason: str) -> LastgoodError:
    return BadManifest(where=where, reason=reason)


def _parse(root: Node, limits: ManifestLimits) -> Manifest:
    _check_version(root)
    read = root.fields(_FIELDS)
    world_size = read["world_size"].integer(1)
    objects = read_objects(read["objects"], world_size, limits)
    generation = read["generation"].integer(1, GENERATION_LIMIT)
    sequence = read["sequence"].integer(0, SEQUENCE_LIMIT)
    kind = CheckpointKind(read["kind"].one_of([kind.value for kind in CheckpointKind]))
    dependencies = _distinct_digests(read["dependencies"], limits)
    if kind is CheckpointKind.INCREMENTAL and not dependencies:
        raise read["dependencies"].error("an incremental checkpoint names what it depends on")
    return Manifest(
        project=ProjectName(read["project"].checked(check_name)),
        workload=WorkloadName(read["workload"].checked(check_name)),
        stage=StageName(read["stage"].checked(check_name)),
        generation=generation,
        sequence=sequence,
        step=read["step"].integer(),
        objects=objects,
        kind=kind,
        world_size=world_size,
        sharding=_free_object(read["sharding"], limits),
        runtime=RuntimeIdentity.read(read["runtime"], {item.path for item in objects}, limits),
        runtime_contract_version=_optional_text(read["runtime_contract_version"]),
        restore=RestoreContract.read(read["restore"], limits),
        metrics={key: item.number() for key, item in read_entries(read["metrics"], limits)},
        resumed_from=ResumedFrom.read(read["resumed_from"], (generation, sequence)),
        dependencies=dependencies,
        outputs=tuple(item.text() for item in read["outputs"].items(limits.entries)),
        final=read["final"].flag(),
    )


def _check_version(root: Node) -> None:
    """Before all else: another version may have other fields."""
    if not isinstance(root.value, dict) or "format_version" not in root.value:
        raise root.error("not an object with a format_version")
    version = root.value["format_version"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise UnknownManifestVersion(
            where="$.format_version", version=shown(version), known=FORMAT_VERSION
        )


def _distinct_digests(node: Node, limits: ManifestLimits) -> tuple[ManifestDigest, ...]:
    digests = tuple(read_digest(item) for item in node.items(limits.entries))
    if len(set(digests)) != len(digests):
        raise node.error("a digest is named twice")
    return digests


def _free_object(node: Node, limits: ManifestLimits) -> Mapping[str, Any]:
    if not isinstance(node.value, dict):
        raise node.error("not an object")
    content: Mapping[str, Any] = node.free(limits.free_depth, limits.free_bytes)
    return content


def _optional_text(node: Node) -> str | None:
    return None if node.value is None else node.text()
