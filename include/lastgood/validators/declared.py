"""What a manifest declares about its files, against what was found in them.

A job declares it in the manifest's `sharding`, beside whatever else it keeps there:

    {"ranks": "every", "tensors": {"model.safetensors": {"layer.weight": {"dtype": "F32",
                                                                          "shape": [16, 64]}}}}

`ranks`: "every" rank of the world owns an object, or "some" do. Untold, a checkpoint in which two
or more ranks own objects has to have all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lastgood.validators.formats.base import Checkpoint, Problem, Tensor, shown_numbers

MANIFEST = "manifest"


def rank_problems(
    ranks: Collection[int], world_size: int, sharding: Mapping[str, Any]
) -> Iterator[Problem]:
    """A rank that owns nothing although it has to. `ranks` are those that own an object."""
    told = sharding.get("ranks")
    complete = told == "every" or (told != "some" and len(set(ranks)) > 1)
    missing = sorted(set(range(world_size)) - set(ranks)) if complete else []
    if missing:
        named = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        yield Problem(
            MANIFEST, None, f"no object is of rank {named}; the world has {world_size} ranks"
        )


def tensor_problems(checkpoint: Checkpoint, sharding: Mapping[str, Any]) -> Iterator[Problem]:
    """Tensors that are not there, or are not as declared."""
    files = sharding.get("tensors", {})
    if not isinstance(files, dict) or not all(isinstance(one, dict) for one in files.values()):
        yield Problem(MANIFEST, None, "sharding.tensors is not by file and tensor", "warn")
        return
    for path, tensors in files.items():
        found = checkpoint.tensors.get(path, {})
        if path not in checkpoint.sizes:
            yield Problem(path, None, "the manifest declares its tensors, but it is not there")
            continue
        for name, declared in tensors.items():
            yield from _differences(path, name, declared, found.get(name))


def _differences(path: str, name: str, declared: Any, found: Tensor | None) -> Iterator[Problem]:
    if not isinstance(declared, dict):
        yield Problem(path, name, "it is declared by no dtype and shape", "warn")
        return
    if found is None:
        yield Problem(path, name, "the manifest declares it, the file does not have it")
        return
    dtype, shape = declared.get("dtype", found.dtype), declared.get("shape", list(found.shape))
    if dtype != found.dtype:
        yield Problem(
            path, name, f"the manifest declares {dtype!s:.20}, the file has {found.dtype}"
        )
    if shape != list(found.shape):
        yield Problem(
            path,
            name,
            f"the manifest declares shape {shape!s:.100}, the file has"
            f" {shown_numbers(found.shape)}",
        )
