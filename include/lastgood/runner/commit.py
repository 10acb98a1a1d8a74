"""What a training script says about a checkpoint, and the manifest that is made of it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from lastgood.rules.manifest import (
    CheckpointKind,
    Manifest,
    ManifestObject,
    RestoreContract,
    ResumedFrom,
    RuntimeIdentity,
)
from lastgood.rules.names import CheckpointId, ManifestDigest


class Facts(TypedDict, total=False):
    """What a manifest says beside its objects. All of it may be left out."""

    metrics: Mapping[str, float]  # finite; NumPy's scalars are taken too
    runtime: RuntimeIdentity
    runtime_contract_version: str
    restore: RestoreContract
    world_size: int  # default: the highest rank plus one
    sharding: Mapping[str, Any]
    dependencies: Sequence[str]  # manifest digests; given, the checkpoint is incremental
    outputs: Sequence[str]
    final: bool  # the last checkpoint of its stage


def kind_of(facts: Facts) -> CheckpointKind:
    """Full, unless the checkpoint depends on others."""
    return CheckpointKind.INCREMENTAL if facts.get("dependencies") else CheckpointKind.FULL


def manifest_of(
    checkpoint: CheckpointId,
    step: int,
    objects: Sequence[ManifestObject],
    resumed_from: ResumedFrom | None,
    facts: Facts,
) -> Manifest:
    """The whole manifest, checked as the coordinator will check it.

    Raises BadManifest or InvalidInput with the JSON path of what is wrong.
    """
    ranks = [item.rank for item in objects if item.rank is not None]
    manifest = Manifest(
        project=checkpoint.project,
        workload=checkpoint.workload,
        stage=checkpoint.stage,
        generation=checkpoint.generation,
        sequence=checkpoint.sequence,
        step=step,
        objects=tuple(sorted(objects, key=lambda item: item.path.encode())),
        kind=kind_of(facts),
        world_size=facts.get("world_size", max(ranks, default=0) + 1),
        sharding=facts.get("sharding", {}),
        runtime=facts.get("runtime", RuntimeIdentity()),
        runtime_contract_version=facts.get("runtime_contract_version"),
        restore=facts.get("restore"),
        metrics={name: _plain(value) for name, value in facts.get("metrics", {}).items()},
        resumed_from=resumed_from,
        dependencies=tuple(ManifestDigest(digest) for digest in facts.get("dependencies", ())),
        outputs=tuple(facts.get("outputs", ())),
        final=facts.get("final", False),
    )
    return Manifest.parse(manifest.to_json())


def _plain(value: float) -> int | float:
    """The number as JSON has it, also where it came from an array library."""
    return int(value) if isinstance(value, numbers.Integral) else float(value)
