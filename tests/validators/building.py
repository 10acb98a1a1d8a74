"""Checkpoints on disk, whole and broken, with the manifest that belongs to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.rules.names import ProjectName, StageName, WorkloadName
from lastgood.validators.isolation import Limits

STEP = 7
LIMITS = Limits(
    time=timedelta(seconds=60),
    cpu=timedelta(seconds=60),
    memory_bytes=512 << 20,
    disk_bytes=16 << 20,
    tasks=32,
)
SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U8": 1}


def manifest_of(
    root: Path,
    *,
    ranks: Mapping[str, int] | None = None,
    world_size: int = 1,
    sharding: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of what lies below a folder now."""
    objects = []
    for file in root.rglob("*"):
        if file.is_file() and not file.is_symlink():
            path = file.relative_to(root).as_posix()
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            objects.append(ManifestObject(path, len(content), digest, (ranks or {}).get(path)))
    return Manifest(
        project=ProjectName("demo"),
        workload=WorkloadName("mlp"),
        stage=StageName("pretrain"),
        generation=1,
        sequence=1,
        step=STEP,
        objects=tuple(sorted(objects, key=lambda one: one.path.encode())),
        world_size=world_size,
        sharding=sharding or {},
    )


def with_size(manifest: Manifest, path: str, size_bytes: int) -> Manifest:
    """The manifest with another size of one object, as it was before something happened to it."""
    objects = tuple(
        replace(one, size_bytes=size_bytes) if one.path == path else one for one in manifest.objects
    )
    return replace(manifest, objects=objects)


def entry(begin: int, end: int, shape: Sequence[int], dtype: str = "F32") -> dict[str, Any]:
    """One tensor of a safetensors header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def write_safetensors(file: Path, header: Mapping[str, Any] | bytes, data: bytes) -> None:
    """A file with exactly this header and data, however wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_tensors(file: Path, tensors: Mapping[str, bytes], *, step: int | None = None) -> None:
    """A sound file of F32 vectors from their bytes."""
    header: dict[str, Any] = {} if step is None else {"__metadata__": {"step": str(step)}}
    begin = 0
    for name, content in tensors.items():
        header[name] = entry(begin, begin + len(content), [len(content) // 4])
        begin += len(content)
    write_safetensors(file, header, b"".join(tensors.values()))
