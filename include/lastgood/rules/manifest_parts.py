"""The parts of a manifest: objects, runtime identity, restore contract, lineage.

Each reads itself from an unchecked `Node`, and writes itself back as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lastgood.errors import InvalidInput
from lastgood.rules.document import Node
from lastgood.rules.names import (
    GENERATION_LIMIT,
    SEQUENCE_LIMIT,
    ManifestDigest,
    check_digest,
    shown,
)
from lastgood.rules.paths import check_distinct, check_object_path, check_size

PARTS_LIMIT = 10_000

_OBJECT_FIELDS = ("path", "bytes", "sha256", "rank", "part_bytes", "part_sha256")
_RUNTIME_FIELDS = (
    "model_config",
    "tokenizer",
    "optimizer",
    "rng_state",
    "data_cursor",
    "code_version",
    "container_digest",
)


@dataclass(frozen=True, slots=True)
class ManifestLimits:
    """What a manifest may cost its reader."""

    objects: int = 100_000
    parts: int = 1_000_000  # part digests over all objects
    free_depth: int = 32  # nesting of sharding and runtime values
    free_bytes: int = 1 << 20  # each of them
    entries: int = 10_000  # metrics, parameters, dependencies, outputs: each


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """One file. `rank` is the process that owns it.

    Where it was sent in parts, `part_sha256` are their digests in order, and every part but the
    last has `part_bytes`.
    """

    path: str
    size_bytes: int
    sha256: str
    rank: int | None = None
    part_bytes: int | None = None
    part_sha256: tuple[str, ...] | None = None

    @classmethod
    def read(cls, node: Node, world_size: int) -> ManifestObject:
        read = node.fields(_OBJECT_FIELDS)
        size_bytes = read["bytes"].checked(check_size)
        sha256 = read_digest(read["sha256"])
        rank = read["rank"]
        return cls(
            read["path"].checked(check_object_path),
            size_bytes,
            sha256,
            None if rank.value is None else rank.integer(0, world_size - 1),
            *_read_parts(read["part_bytes"], read["part_sha256"], size_bytes, sha256),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
            "rank": self.rank,
            "part_bytes": self.part_bytes,
            "part_sha256": None if self.part_sha256 is None else list(self.part_sha256),
        }


def read_objects(node: Node, world_size: int, limits: ManifestLimits) -> tuple[ManifestObject, ...]:
    """All objects of a manifest, in their order."""
    items = node.items(limits.objects)
    if not items:
        raise node.error("a checkpoint has at least one object")
    objects: list[ManifestObject] = []
    parts = 0
    for item in items:
        objects.append(ManifestObject.read(item, world_size))
        parts += len(objects[-1].part_sha256 or ())
        if parts > limits.parts:
            raise item.error(f"more than {limits.parts} parts in all")
    paths = [item.path for item in objects]
    check_distinct(paths, lambda index: items[index].at("path", None).where)
    _check_sorted(paths, items)
    return tuple(objects)


def _check_sorted(paths: list[str], items: list[Node]) -> None:
    encoded = [path.encode() for path in paths]
    for index in range(1, len(encoded)):
        if encoded[index] < encoded[index - 1]:
            raise items[index].error("objects are not sorted by the UTF-8 bytes of their paths")


def _read_parts(
    part_bytes: Node, part_sha256: Node, size_bytes: int, sha256: str
) -> tuple[int | None, tuple[str, ...] | None]:
    if part_bytes.value is None and part_sha256.value is None:
        return None, None
    if part_bytes.value is None or part_sha256.value is None:
        raise part_sha256.error("part_bytes and part_sha256 are given together or not at all")
    each_bytes = part_bytes.integer(1)
    count = max(1, -(-size_bytes // each_bytes))  # an empty object is one empty part
    digests = tuple(read_digest(item) for item in part_sha256.items(PARTS_LIMIT))
    if len(digests) != count:
        raise part_sha256.error(
            f"{len(digests)} digests; {size_bytes} bytes in parts of {each_bytes} are {count} parts"
        )
    if count == 1 and digests[0] != sha256:
        raise part_sha256.error("the only part has another digest than the object")
    return each_bytes, digests


@dataclass(frozen=True, slots=True)
class RuntimeFact:
    """Something needed to use the checkpoint.

    Given as the value itself, its `sha256:` digest, or the path of the object that holds it.
    """

    form: Literal["value", "digest", "path"]
    content: Any

    @classmethod
    def read(cls, node: Node, paths: set[str], limits: ManifestLimits) -> RuntimeFact | None:
        if node.value is None:
            return None
        members = dict(node.members())
        match list(members.items()):
            case [("value", value)]:
                return cls("value", value.free(limits.free_depth, limits.free_bytes))
            case [("digest", digest)]:
                return cls("digest", _read_named_digest(digest))
            case [("path", path)]:
                if path.text() not in paths:
                    raise path.error(f"{shown(path.value)!r} is not among the objects")
                return cls("path", path.text())
        raise node.error("give null or exactly one of value, digest, path")

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

    @classmethod
    def read(cls, node: Node, paths: set[str], limits: ManifestLimits) -> RuntimeIdentity:
        read = node.fields(_RUNTIME_FIELDS)
        return cls(
            **{name: RuntimeFact.read(read[name], paths, limits) for name in _RUNTIME_FIELDS}
        )

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _RUNTIME_FIELDS}
        return {name: None if fact is None else fact.to_json() for name, fact in facts.items()}


@dataclass(frozen=True, slots=True)
class RestoreContract:
    """The registered contract by which the checkpoint is restored in a drill: never a command."""

    contract: str
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @classmethod
    def read(cls, node: Node, limits: ManifestLimits) -> RestoreContract | None:
        if node.value is None:
            return None
        read = node.fields(("contract", "parameters"))
        parameters = {key: item.scalar() for key, item in read_entries(read["parameters"], limits)}
        return cls(read["contract"].text(200), parameters)

    def to_json(self) -> dict[str, Any]:
        return {"contract": self.contract, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ResumedFrom:
    """The checkpoint of the same stage from which the writer resumed."""

    generation: int
    sequence: int
    manifest: ManifestDigest

    @classmethod
    def read(cls, node: Node, before: tuple[int, int]) -> ResumedFrom | None:
        """`before` is the (generation, sequence) of the checkpoint itself."""
        if node.value is None:
            return None
        read = node.fields(("generation", "sequence", "manifest"))
        generation = read["generation"].integer(1, GENERATION_LIMIT)
        sequence = read["sequence"].integer(0, SEQUENCE_LIMIT)
        if (generation, sequence) >= before:
            raise node.error("a checkpoint is resumed from an earlier one")
        return cls(generation, sequence, read_digest(read["manifest"]))

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "sequence": self.sequence,
            "manifest": self.manifest,
        }


def read_entries(node: Node, limits: ManifestLimits) -> list[tuple[str, Node]]:
    """The members of an object with free keys."""
    entries = list(node.members())
    if len(entries) > limits.entries:
        raise node.error(f"{len(entries)} entries; at most {limits.entries}")
    for key, item in entries:
        if not 0 < len(key) <= 200:
            raise item.error("a key has 1 to 200 characters")
        if "\0" in key:
            raise item.error("the key holds a NUL character")
    return entries


def read_digest(node: Node, value: object = None) -> ManifestDigest:
    """A SHA-256 in lower-case hex, at the node or (a part of it) given."""
    try:
        return check_digest(node.value if value is None else value, "")
    except InvalidInput as error:
        raise node.error(error.facts["reason"]) from None


def _read_named_digest(node: Node) -> str:
    algorithm, _, hexadecimal = node.text().partition(":")
    if algorithm != "sha256":
        raise node.error("give sha256: and 64 lower-case hex digits")
    return f"sha256:{read_digest(node, hexadecimal)}"
