"""PyTorch Distributed Checkpoint: `.metadata` beside the `.distcp` files of all ranks.

The metadata says for each tensor which chunks it has, and for each chunk where its bytes lie; those
are what `torch.save` wrote. The metadata is a pickle and read as one that could be hostile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname, join
from typing import Any

from lastgood.validators.formats import pickles
from lastgood.validators.formats.base import Broken, Checkpoint, Problem, Tensor, shown_numbers
from lastgood.validators.formats.numbers import element_count
from lastgood.validators.formats.pickles import Inert
from lastgood.validators.formats.torch_files import TORCH_DTYPES, check_saved

_METADATA, _SHARD = ".metadata", ".distcp"
_BYTES = "BytesStorageMetadata"


@dataclass(frozen=True, slots=True)
class _Slice:
    """Where one item of the checkpoint lies. `offset` is its place in its tensor."""

    tensor: str
    offset: tuple[int, ...] | None
    path: str
    start: int
    size_bytes: int
    transformed: bool


@dataclass(slots=True)
class _Declared:
    """What the metadata says of one tensor: its chunks by their offset."""

    dtype: str | None
    shape: tuple[int, ...]
    chunks: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)


class TorchDistributed:
    """Each folder with a `.metadata`, and with it its `.distcp` files."""

    name = "torch-distributed"
    version = "4"
    reads_last = False

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        groups: dict[str, list[str]] = {}
        for path in checkpoint.sizes:
            if basename(path) == _METADATA or path.endswith(_SHARD):
                groups.setdefault(dirname(path), []).append(path)
        return [
            paths for paths in groups.values() if any(path.endswith(_SHARD) for path in paths)
        ] + [paths for paths in groups.values() if all(basename(p) == _METADATA for p in paths)]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        path = join(dirname(paths[0]), _METADATA)
        if path not in paths:
            raise Broken(path, None, f"it is not there, beside {paths[0]}")
        with checkpoint.open(path) as file:
            checkpoint.bytes_read += checkpoint.sizes[path]
            root = pickles.load(path, file, more=checkpoint.pickle_globals)
        declared = dict(_declared(path, root))
        slices = _slices(path, root)
        yield from _unplaced(path, root, slices)
        yield from _uncovered(path, declared, slices)
        for shard, items in _by_shard(slices).items():
            yield from _check_shard(checkpoint, path, shard, items, declared)
        unnamed = sorted({p for p in paths if p != path} - {one.path for one in slices})
        for shard in unnamed:
            yield Problem(shard, None, f"{path} says of nothing that it lies here", "warn")


def _declared(path: str, root: Any) -> Iterator[tuple[str, _Declared]]:
    told = root.field("state_dict_metadata") if isinstance(root, Inert) else None
    if not isinstance(told, dict):
        raise Broken(path, None, "it has no state_dict_metadata")
    for name, one in told.items():
        if not isinstance(name, str) or not isinstance(one, Inert):
            raise Broken(path, None, "state_dict_metadata is not by name")
        shape = _numbers(one.field("size"))
        if shape is None and one.global_name.endswith(_BYTES):
            continue  # not a tensor
        if shape is None:
            raise Broken(path, name, "its size is not told")
        dtype = _dtype_name(one.field("properties"))
        tensor = _Declared(TORCH_DTYPES.get(dtype or ""), shape)
        for chunk in _listed(path, name, one.field("chunks")):
            offset, size = _numbers(chunk.field("offsets")), _numbers(chunk.field("sizes"))
            if offset is None or size is None or not len(offset) == len(size) == len(shape):
                raise Broken(path, name, "a chunk has no offsets and sizes")
            if any(o + s > whole for o, s, whole in zip(offset, size, shape, strict=True)):
                raise Broken(
                    path,
                    name,
                    f"chunk {shown_numbers(offset)} reaches beyond shape {shown_numbers(shape)}",
                )
            if offset in tensor.chunks:
                raise Broken(path, name, f"chunk {shown_numbers(offset)} is there twice")
            tensor.chunks[offset] = size
        yield name, tensor


def _listed(path: str, name: str, chunks: Any) -> Sequence[Inert]:
    if chunks is None:
        return ()
    if not isinstance(chunks, list | tuple) or not all(isinstance(one, Inert) for one in chunks):
        raise Broken(path, name, "its chunks are no list of chunks")
    return chunks


def _dtype_name(properties: Any) -> str | None:
    """The state of TensorProperties is a tuple that begins with the type, or a mapping."""
    if not isinstance(properties, Inert):
        return None
    state = properties.state
    one = state[0] if isinstance(state, tuple) and state else properties.field("dtype")
    name: str = getattr(one, "global_name", "")
    return name.removeprefix("torch.") or None


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A torch.Size, or any sequence of whole numbers."""
    if isinstance(value, Inert) and value.global_name == "torch.Size" and value.arguments:
        value = value.arguments[0]
    if isinstance(value, tuple | list) and all(type(n) is int and n >= 0 for n in value):
        return tuple(value)
    return None


def _slices(path: str, root: Inert) -> list[_Slice]:
    told = root.field("storage_data")
    if not isinstance(told, dict):
        raise Broken(path, None, "it has no storage_data")
    slices = []
    for index, info in told.items():
        name = index.field("fqn") if isinstance(index, Inert) else None
        shard = info.field("relative_path") if isinstance(info, Inert) else None
        start, size = (_whole(info, key) for key in ("offset", "length"))
        if not isinstance(name, str) or not isinstance(shard, str) or start is None or size is None:
            raise Broken(path, name if isinstance(name, str) else None, "its place is not told")
        transformed = bool(info.field("transform_descriptors"))
        offset = _numbers(index.field("offset"))
        slices.append(_Slice(name, offset, join(dirname(path), shard), start, size, transformed))
    return slices


def _whole(value: Any, key: str) -> int | None:
    number = value.field(key) if isinstance(value, Inert) else None
    return number if type(number) is int and number >= 0 else None


def _unplaced(path: str, root: Inert, slices: Sequence[_Slice]) -> Iterator[Problem]:
    """What is declared and lies nowhere: PyTorch would find that out when it restores."""
    placed = {one.tensor for one in slices}
    for name, one in root.field("state_dict_metadata").items():
        if one.global_name.endswith(_BYTES) and name not in placed:
            yield Problem(path, name, "it is declared, but is in no file")


def _uncovered(
    path: str, declared: Mapping[str, _Declared], slices: Sequence[_Slice]
) -> Iterator[Problem]:
    """Tensors whose chunks do not make up the whole, or lie nowhere."""
    placed = {(one.tensor, one.offset) for one in slices}
    for name, tensor in declared.items():
        whole = element_count(path, name, tensor.shape)
        covered = sum(element_count(path, name, size) for size in tensor.chunks.values())
        if covered != whole:
            yield Problem(path, name, f"its chunks have {covered} of {whole} elements")
        overlapping = _overlapping(tensor.chunks)
        if overlapping is not None:
            yield Problem(path, name, f"chunk {shown_numbers(overlapping)} overlaps another one")
        for offset in tensor.chunks:
            if (name, offset) not in placed and (name, None) not in placed:
                yield Problem(path, name, f"chunk {shown_numbers(offset)} is in no file")


def _overlapping(chunks: Mapping[tuple[int, ...], tuple[int, ...]]) -> tuple[int, ...] | None:
    """A chunk that has elements of another one: their number alone does not make up a tensor."""
    filled = sorted((offset, size) for offset, size in chunks.items() if 0 not in size)
    for place, (offset, size) in enumerate(filled):
        for other, other_size in filled[place + 1 :]:
            if other and other[0] >= offset[0] + size[0]:
                break
            sides = zip(offset, size, other, other_size, strict=True)
            if all(o < p + q and p < o + s for o, s, p, q in sides):
                return other
    return None


def _by_shard(slices: Sequence[_Slice]) -> dict[str, list[_Slice]]:
    shards: dict[str, list[_Slice]] = {}
    for one in sorted(slices, key=lambda one: (one.path, one.start)):
        shards.setdefault(one.path, []).append(one)
    return shards


def _check_shard(
    checkpoint: Checkpoint,
    path: str,
    shard: str,
    items: Sequence[_Slice],
    declared: Mapping[str, _Declared],
) -> Iterator[Problem]:
    first = items[0].tensor
    if shard not in checkpoint.sizes:
        yield Problem(path, first, f"it is said to be in {shard}, which is not there")
        return
    reached = 0
    with checkpoint.open(shard) as file:
        file_bytes = file.seek(0, 2)
        for one in items:
            if one.start < reached:
                raise Broken(shard, one.tensor, "its bytes overlap those of another one")
            reached = one.start + one.size_bytes
            if reached > file_bytes:
                raise Broken(
                    shard,
                    one.tensor,
                    f"it ends at byte {shown_numbers(reached)}, the file at {file_bytes}",
                )
            yield from _check_slice(checkpoint, file, one, declared.get(one.tensor))


def _check_slice(
    checkpoint: Checkpoint, file: Any, one: _Slice, declared: _Declared | None
) -> Iterator[Problem]:
    if one.transformed:
        yield Problem(one.path, one.tensor, "it is stored transformed, not looked into", "warn")
        return
    if declared is None:
        yield from check_saved(
            checkpoint, one.path, file, one.start, one.size_bytes, within=one.tensor
        )
        return
    offset = one.offset if one.offset is not None else next(iter(declared.chunks), ())
    name = one.tensor if not any(offset) else f"{one.tensor}{shown_numbers(offset)}"
    yield from check_saved(checkpoint, one.path, file, one.start, one.size_bytes, within=name)
    held = checkpoint.tensors.get(one.path, {}).get(name)
    size = declared.chunks.get(offset)
    if held is None or size is None:
        yield Problem(one.path, name, "the metadata and the file name different chunks")
    elif held != Tensor(declared.dtype or held.dtype, size):
        expected = f"{declared.dtype} {shown_numbers(size)}"
        found = f"{held.dtype} {shown_numbers(held.shape)}"
        yield Problem(one.path, name, f"the metadata says {expected}, the file has {found}")
