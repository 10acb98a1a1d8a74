"""The index of a sharded Hugging Face checkpoint: which shard holds which tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import dirname, join

from lastgood.validators.formats.base import Broken, Checkpoint, Problem
from lastgood.validators.formats.json_files import load_json

_SUFFIX = ".index.json"


class HuggingFaceIndex:
    """Each `*.safetensors.index.json` or `*.bin.index.json` against the shards beside it."""

    name = "huggingface-index"
    version = "2"
    reads_last = True

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        endings = (f".safetensors{_SUFFIX}", f".bin{_SUFFIX}")
        return [[path] for path in checkpoint.sizes if path.endswith(endings)]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        (path,) = paths
        index = load_json(checkpoint, path)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise Broken(path, None, "it has no weight_map")
        folder = dirname(path)
        shards: dict[str, set[str]] = {}
        for tensor, shard in weight_map.items():
            if not isinstance(shard, str):
                raise Broken(path, tensor, "weight_map names no file for it")
            shards.setdefault(join(folder, shard), set()).add(tensor)
        for shard, named in sorted(shards.items()):
            yield from _shard_problems(checkpoint, path, shard, named)


def _shard_problems(
    checkpoint: Checkpoint, index: str, shard: str, named: set[str]
) -> Iterator[Problem]:
    if shard not in checkpoint.sizes:
        yield Problem(index, min(named), f"it is said to be in {shard}, which is not there")
        return
    if shard not in checkpoint.claimed:
        said = f"it is said to be in {shard}, which is of no known format"
        yield Problem(index, min(named), said)
        return
    if shard not in checkpoint.loaded:
        return  # the shard itself is broken or could not be read, and that is told
    held = checkpoint.tensors.get(shard, {})
    for tensor in sorted(named - held.keys()):
        yield Problem(index, tensor, f"it is said to be in {shard}, which does not have it")
    for tensor in sorted(held.keys() - named):
        yield Problem(shard, tensor, f"{index} does not name it", "warn")
