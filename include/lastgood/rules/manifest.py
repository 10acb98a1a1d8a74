"""The manifest: the immutable document that says what a checkpoint is, object by object.

Read strictly, since it comes from a job: every refusal names the JSON path. Where the checkpoint
lies is not part of it. Its canonical bytes and digest are in `rules.canonical`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from lastgood.errors import BadManifest, InvalidInput, LastgoodError, UnknownManifestVersion
from lastgood.rules.document import Node
from lastgood.rules.names import (
    GENERATION_LIMIT,
    SEQUENCE_LIMIT,
    CheckpointId,
    ManifestDigest,
    ProjectName,
    StageId,
    StageName,
    WorkloadName,
    check_digest,
    check_name,
    shown,
)
from lastgood.rules.paths import check_object_path, check_object_paths, check_size

FORMAT_VERSION = 1
PARTS_LIMIT = 10_000

_RUNTIME_FIELDS = (
    "model_config",
    "tokenizer",
    "optimizer",
    "rng_state",
    "data_cursor",
    "code_version",
    "container_digest",
)
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


@dataclass(frozen=True, slots=True)
class ManifestLimits:
    """What a manifest may cost its reader."""

    objects: int = 100_000
    parts: int = 1_000_000  # part digests over all objects
    free_depth: int = 32  # nesting of sharding and runtime values
    free_bytes: int = 1 << 20  # each of them
    entries: int = 10_000  # metrics, parameters, dependencies, outputs: each


DEFAULT_LIMITS = ManifestLimits()


class CheckpointKind(StrEnum):
    FULL = "full"
    INCREMENTAL = "incremental"  # names the manifests that it needs as dependencies


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """One file. Where it was sent in parts, `part_sha256` are their digests in order, and every part
    but the last has `part_bytes`. `rank` is the process that owns it."""

    path: str
    size_bytes: int
    sha256: str
    rank: int | None = None
    part_bytes: int | None = None
    part_sha256: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
            "rank": self.rank,
            "part_bytes": self.part_bytes,
            "part_sha256": None if self.part_sha256 is None else list(self.part_sha256),
        }


@dataclass(frozen=True, slots=True)
class RuntimeFact:
    """Something needed to use the checkpoint: the value itself, its `sha256:` digest, or the path of
    the object that holds it."""

    form: Literal["value", "digest", "path"]
    content: Any

    def to_json(self) -> dict[str, Any]:
        return {self.form: self.content}


@dataclass(frozen=True, slots=True)
class RuntimeIdentity:
    """What the training process was, beside its weights. None: not told."""

    model_config: RuntimeFact | None = None
    tokenizer: RuntimeFact | None = None
    optimizer: RuntimeFact | None = None
    rng_state: RuntimeFact | None = None
    data_cursor: RuntimeFact | None = None
    code_version: RuntimeFact | None = None
    container_digest: RuntimeFact | None = None

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _RUNTIME_FIELDS}
        return {name: None if fact is None else fact.to_json() for name, fact in facts.items()}


@dataclass(frozen=True, slots=True)
class RestoreContract:
    """The registered contract by which the checkpoint is restored in a drill: never a command."""

    contract: str
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"contract": self.contract, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ResumedFrom:
    """The checkpoint of the same stage from which the writer resumed."""

    generation: int
    sequence: int
    manifest: ManifestDigest

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "sequence": self.sequence,
            "manifest": self.manifest,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole manifest. `Manifest.parse` is the way in for anything that was sent; objects are sorted
    by the UTF-8 bytes of their paths."""

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
    runtime: RuntimeIdentity = RuntimeIdentity()
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
    objects = _objects(read["objects"], world_size, limits)
    generation = read["generation"].integer(1, GENERATION_LIMIT)
    sequence = read["sequence"].integer(0, SEQUENCE_LIMIT)
    kind = CheckpointKind(read["kind"].one_of([kind.value for kind in CheckpointKind]))
    dependencies = _distinct_digests(read["dependencies"], limits)
    if kind is CheckpointKind.INCREMENTAL and not dependencies:
        read["dependencies"].refuse("an incremental checkpoint names what it depends on")
    return Manifest(
        project=ProjectName(_name(read["project"])),
        workload=WorkloadName(_name(read["workload"])),
        stage=StageName(_name(read["stage"])),
        generation=generation,
        sequence=sequence,
        step=read["step"].integer(),
        objects=objects,
        kind=kind,
        world_size=world_size,
        sharding=_free_object(read["sharding"], limits),
        runtime=_runtime(read["runtime"], {item.path for item in objects}, limits),
        runtime_contract_version=_optional_text(read["runtime_contract_version"]),
        restore=_restore(read["restore"], limits),
        metrics={key: item.number() for key, item in _entries(read["metrics"], limits)},
        resumed_from=_resumed_from(read["resumed_from"], (generation, sequence)),
        dependencies=dependencies,
        outputs=tuple(item.text() for item in read["outputs"].items(limits.entries)),
        final=read["final"].flag(),
    )


def _check_version(root: Node) -> None:
    """Before all else: another version may have other fields."""
    if not isinstance(root.value, dict) or "format_version" not in root.value:
        root.refuse("not an object with a format_version")
    version = root.value["format_version"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise UnknownManifestVersion(
            where="$.format_version", version=shown(version), known=FORMAT_VERSION
        )


def _objects(node: Node, world_size: int, limits: ManifestLimits) -> tuple[ManifestObject, ...]:
    items = node.items(limits.objects)
    if not items:
        node.refuse("a checkpoint has at least one object")
    objects: list[ManifestObject] = []
    parts = 0
    for item in items:
        objects.append(_object(item, world_size))
        parts += len(objects[-1].part_sha256 or ())
        if parts > limits.parts:
            item.refuse(f"more than {limits.parts} parts in all")
    check_object_paths((item.path for item in objects), lambda index: f"$.objects[{index}].path")
    order = [item.path.encode() for item in objects]
    for index in range(1, len(order)):
        if order[index] < order[index - 1]:
            items[index].refuse("objects are not sorted by the UTF-8 bytes of their paths")
    return tuple(objects)


def _object(node: Node, world_size: int) -> ManifestObject:
    read = node.fields(("path", "bytes", "sha256", "rank", "part_bytes", "part_sha256"))
    rank = read["rank"]
    size_bytes = check_size(read["bytes"].value, read["bytes"].where)
    sha256 = _digest(read["sha256"])
    part_bytes, part_sha256 = _parts(read["part_bytes"], read["part_sha256"], size_bytes, sha256)
    return ManifestObject(
        path=check_object_path(read["path"].value, read["path"].where),
        size_bytes=size_bytes,
        sha256=sha256,
        rank=None if rank.value is None else rank.integer(0, world_size - 1),
        part_bytes=part_bytes,
        part_sha256=part_sha256,
    )


def _parts(
    part_bytes: Node, part_sha256: Node, size_bytes: int, sha256: str
) -> tuple[int | None, tuple[str, ...] | None]:
    if part_bytes.value is None and part_sha256.value is None:
        return None, None
    if part_bytes.value is None or part_sha256.value is None:
        part_sha256.refuse("part_bytes and part_sha256 are given together or not at all")
    each_bytes = part_bytes.integer(1)
    count = max(1, -(-size_bytes // each_bytes))  # an empty object is one empty part
    digests = tuple(_digest(item) for item in part_sha256.items(PARTS_LIMIT))
    if len(digests) != count:
        part_sha256.refuse(
            f"{len(digests)} digests; {size_bytes} bytes in parts of {each_bytes} are {count} parts"
        )
    if count == 1 and digests[0] != sha256:
        part_sha256.refuse("the only part has another digest than the object")
    return each_bytes, digests


def _runtime(node: Node, paths: set[str], limits: ManifestLimits) -> RuntimeIdentity:
    read = node.fields(_RUNTIME_FIELDS)
    return RuntimeIdentity(
        **{name: _runtime_fact(read[name], paths, limits) for name in _RUNTIME_FIELDS}
    )


def _runtime_fact(node: Node, paths: set[str], limits: ManifestLimits) -> RuntimeFact | None:
    if node.value is None:
        return None
    members = list(node.members())
    match [key for key, _ in members]:
        case ["value"]:
            content = members[0][1].free(limits.free_depth, limits.free_bytes)
            return RuntimeFact("value", content)
        case ["digest"]:
            digest = members[0][1]
            algorithm, _, hexadecimal = digest.text().partition(":")
            if algorithm != "sha256":
                digest.refuse("give sha256: and 64 lower-case hex digits")
            return RuntimeFact("digest", f"sha256:{_digest(digest, hexadecimal)}")
        case ["path"]:
            path = members[0][1].text()
            if path not in paths:
                members[0][1].refuse(f"{shown(path)!r} is not among the objects")
            return RuntimeFact("path", path)
    node.refuse("give null or exactly one of value, digest, path")


def _restore(node: Node, limits: ManifestLimits) -> RestoreContract | None:
    if node.value is None:
        return None
    read = node.fields(("contract", "parameters"))
    parameters = {key: item.scalar() for key, item in _entries(read["parameters"], limits)}
    return RestoreContract(read["contract"].text(200), parameters)


def _resumed_from(node: Node, position: tuple[int, int]) -> ResumedFrom | None:
    if node.value is None:
        return None
    read = node.fields(("generation", "sequence", "manifest"))
    generation = read["generation"].integer(1, GENERATION_LIMIT)
    sequence = read["sequence"].integer(0, SEQUENCE_LIMIT)
    if (generation, sequence) >= position:
        node.refuse("a checkpoint is resumed from an earlier one")
    return ResumedFrom(generation, sequence, _digest(read["manifest"]))


def _distinct_digests(node: Node, limits: ManifestLimits) -> tuple[ManifestDigest, ...]:
    digests = tuple(_digest(item) for item in node.items(limits.entries))
    if len(set(digests)) != len(digests):
        node.refuse("a digest is named twice")
    return digests


def _entries(node: Node, limits: ManifestLimits) -> list[tuple[str, Node]]:
    entries = list(node.members())
    if len(entries) > limits.entries:
        node.refuse(f"{len(entries)} entries; at most {limits.entries}")
    for key, item in entries:
        if not 0 < len(key) <= 200:
            item.refuse("a key has 1 to 200 characters")
    return entries


def _free_object(node: Node, limits: ManifestLimits) -> Mapping[str, Any]:
    if not isinstance(node.value, dict):
        node.refuse("not an object")
    content: Mapping[str, Any] = node.free(limits.free_depth, limits.free_bytes)
    return content


def _optional_text(node: Node) -> str | None:
    return None if node.value is None else node.text()


def _name(node: Node) -> str:
    return check_name(node.value, node.where)


def _digest(node: Node, value: object = None) -> ManifestDigest:
    try:
        return check_digest(node.value if value is None else value, node.where)
    except InvalidInput as error:
        node.refuse(error.facts["reason"])
