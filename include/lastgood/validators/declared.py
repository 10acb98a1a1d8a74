"""What a manifest declares about its files, against what was found in them.

A job declares it in the manifest's `sharding`, beside whatever else it keeps there:

    {"ranks": "every", "tensors": {"model.safetensors": {"layer.weight": {"dtype": "F32",
                                                                          "shape": [16, 64]}}}}

`ranks`: "every" rank of the world owns an object, or "some" do. Untold, a checkpoint in which two
or more ranks own objects has to have all of them; one in which a single rank of several owns all
may be whole, as where every rank has the same state, or not: that is a warning.

Shards that are numbered in their names, as in `model-00002-of-00003.bin`, have to be all there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from lastgood.validators.formats.base import Checkpoint, Problem, Tensor, shown_numbers

MANIFEST = "manifest"
_NUMBERED = re.compile(
    r"(.*?)(\d{3,9})-of-(\d{3,9})(\.(?:safetensors|bin|pt|pth|ckpt|npz|npy))", re.DOTALL
)
_SHOWN = 10


def rank_problems(
    ranks: Collection[int], world_size: int, sharding: Mapping[str, Any]
) -> Iterator[Problem]:
    """A rank that owns nothing although it has to. `ranks` are those that own an object."""
    told = sharding.get("ranks")
    complete = told == "every" or (told != "some" and len(set(ranks)) > 1)
    missing = sorted(set(range(world_size)) - set(ranks)) if complete else []
    if missing:
        said = f"no object is of rank {_listed(missing)}; the world has {world_size} ranks"
        yield Problem(MANIFEST, None, said)
    elif told is None and world_size > 1 and len(set(ranks)) == 1:
        said = f"only rank {_listed(sorted(set(ranks)))} of {world_size} owns objects"
        yield Problem(MANIFEST, None, f"{said}; sharding.ranks tells whether that is all", "warn")


def number_problems(paths: Iterable[str]) -> Iterator[Problem]:
    """Shards that are missing from those that number themselves."""
    sets: dict[tuple[str, str, int], dict[int, str]] = {}
    for path in paths:
        found = _NUMBERED.fullmatch(path)
        if found is not None and len(found[2]) == len(found[3]):
            before, number, total, after = found.groups()
            sets.setdefault((before, after, int(total)), {})[int(number)] = path
    for (_, _, total), members in sorted(sets.items()):
        missing = _absent(members, total)
        if missing:
            said = f"of {total} shards number {_listed(missing)} is not there"
            yield Problem(members[min(members)], None, said)


def _absent(members: Mapping[int, str], total: int) -> list[int]:
    """At most as many as are shown, and one more: a name may claim any number."""
    first = 0 if 0 in members else 1
    absent: list[int] = []
    for number in range(first, total + first):
        if number not in members:
            absent.append(number)
        if len(absent) > _SHOWN or number > len(members) + _SHOWN + first:
            break
    return absent


def _listed(numbers: Collection[int]) -> str:
    named = [str(number) for number in numbers][:_SHOWN]
    return ", ".join(named) + (", …" if len(numbers) > _SHOWN else "")


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
