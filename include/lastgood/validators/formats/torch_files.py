"""Files of `torch.save`, read without PyTorch: the zip that it writes now, and the older form.

The pickle says which tensors lie in which storage; the storages are read piece by piece, so that
the largest tensor costs no more memory than the smallest. Nothing in the pickle runs: see
`formats.pickles`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from lastgood.validators.formats import pickles
from lastgood.validators.formats.base import Broken, Checkpoint, Problem, Tensor, shown_numbers
from lastgood.validators.formats.numbers import (
    DTYPES,
    Dtype,
    Values,
    element_count,
    fill,
)
from lastgood.validators.formats.pickles import Inert
from lastgood.validators.formats.zips import directory, window

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_ALWAYS = (".pt", ".pth")
_OFTEN = (".bin", ".ckpt")
_OLD_MAGIC = 0x1950A86A20F9469CFC6C

TORCH_DTYPES = {
    "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "float16": "F16",
    "half": "F16", "bfloat16": "BF16", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4_X2",
    "complex32": "C32", "complex64": "C64", "complex128": "C128",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "bool": "BOOL",
}  # fmt: skip
_STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
    "ByteStorage": "U8", "BoolStorage": "BOOL", "UntypedStorage": "U8",
    "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128",
    "QInt8Storage": "I8", "QUInt8Storage": "U8", "QInt32Storage": "I32", "QUInt4x2Storage": "U8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """What a pickle refers to: `key` names the bytes, `count` the elements."""

    key: str
    dtype: Dtype | None
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a storage lie."""

    start: int
    size_bytes: int


class TorchFiles:
    """Each `.pt` and `.pth`, and each `.bin` and `.ckpt` that begins like a file of torch.save."""

    name = "torch"
    version = "3"
    reads_last = False

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        return [
            [path]
            for path in checkpoint.sizes
            if path.endswith(_ALWAYS) or (path.endswith(_OFTEN) and _looks_like(checkpoint, path))
        ]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        (path,) = paths
        with checkpoint.open(path) as file:
            size_bytes = file.seek(0, 2)
            yield from check_saved(checkpoint, path, file, 0, size_bytes)


def _looks_like(checkpoint: Checkpoint, path: str) -> bool:
    name = path.rpartition("/")[2]
    if name.startswith(("pytorch_model", "adapter_model", "optimizer", "scheduler")):
        return True
    try:
        with checkpoint.open(path) as file:
            return file.read(4).startswith((_ZIP, _PICKLE))
    except Broken:
        return False


def check_saved(
    checkpoint: Checkpoint,
    path: str,
    file: BinaryIO,
    start: int,
    size_bytes: int,
    *,
    within: str = "",
) -> Iterator[Problem]:
    """Load everything that one `torch.save` wrote at a place of a file. `within` is put before the
    names of its tensors. Finds are remembered in the checkpoint."""
    whole = window(file, start, size_bytes)
    begin = whole.read(4)
    whole.seek(0)
    if begin == _ZIP:
        root, places = _read_zip(checkpoint, path, whole, size_bytes)
    elif begin[:1] == _PICKLE:
        root, places = _read_old(checkpoint, path, whole)
    else:
        raise Broken(path, within or None, "it is not what torch.save writes")
    yield from _check_tensors(checkpoint, path, whole, root, places, within)


def _storage(path: str, identity: Any) -> Storage:
    match identity:
        case ("storage", kind, str(key), str(), int(count), *_):
            pass
        case _:
            raise Broken(path, None, "its pickle refers to something that is no storage")
    name = getattr(kind, "global_name", "").rpartition(".")[2]
    return Storage(key, DTYPES.get(_STORAGES.get(name, "")), count)


def _read_zip(
    checkpoint: Checkpoint, path: str, whole: BinaryIO, size_bytes: int
) -> tuple[Any, Mapping[str, Place]]:
    entries = directory(path, whole, size_bytes)
    compressed = [entry for entry in entries if not entry.stored]
    if compressed:
        packed = max(compressed, key=lambda entry: entry.size_bytes)
        raise Broken(
            path,
            packed.name,
            f"{packed.packed_bytes} bytes that unpack to {packed.size_bytes}: torch.save does not"
            " compress, a zip bomb does",
        )
    pickled = [entry for entry in entries if entry.name.endswith("/data.pkl")]
    if len(pickled) != 1:
        raise Broken(path, None, f"the zip has {len(pickled)} entries data.pkl, not one")
    top = pickled[0].name.removesuffix("data.pkl")
    root = pickles.load(
        path,
        window(whole, pickled[0].start, pickled[0].size_bytes),
        persistent=lambda identity: _storage(path, identity),
        more=checkpoint.pickle_globals,
    )
    data = f"{top}data/"
    return root, {
        entry.name.removeprefix(data): Place(entry.start, entry.size_bytes)
        for entry in entries
        if entry.name.startswith(data)
    }


def _read_old(
    checkpoint: Checkpoint, path: str, whole: BinaryIO
) -> tuple[Any, Mapping[str, Place]]:
    """Four pickles, the list of storages, and each one's count and bytes."""
    storages: dict[str, Storage] = {}

    def persistent(identity: Any) -> Storage:
        storage = _storage(path, identity)
        storages[storage.key] = storage
        return storage

    magic = pickles.load(path, whole, more=checkpoint.pickle_globals)
    if magic != _OLD_MAGIC:
        pickles.load(path, whole)  # torch.load would read on: name what is in it
        raise Broken(path, None, "it is a pickle, but not one of torch.save")
    for _ in range(2):
        pickles.load(path, whole)
    root = pickles.load(path, whole, persistent=persistent, more=checkpoint.pickle_globals)
    keys = pickles.load(path, whole)
    places: dict[str, Place] = {}
    for key in keys if isinstance(keys, list) else ():
        count = bytearray(8)
        fill(whole, memoryview(count), path, None)
        dtype = storages[key].dtype if key in storages else None
        if dtype is None:
            raise Broken(path, None, f"storage {key!s:.40} has an unknown type")
        size = int.from_bytes(count, "little") * dtype.bits // 8
        places[key] = Place(whole.tell(), size)
        whole.seek(size, 1)
    return root, places


def _check_tensors(
    checkpoint: Checkpoint,
    path: str,
    whole: BinaryIO,
    root: Any,
    places: Mapping[str, Place],
    within: str,
) -> Iterator[Problem]:
    values = Values(checkpoint)
    unread = set(places)
    read: set[int] = set()  # tensors by identity: one may have several names
    used: Counter[str] = Counter()
    for found in pickles.walk(root):
        name = ".".join(part for part in (within, found.name) if part) or "(the whole file)"
        tensor = _tensor(path, name, found.value)
        if tensor is None:
            continue
        storage, offset, shape, stride, dtype = tensor
        if dtype is None:
            raise Broken(path, name, "its element type is unknown")
        if storage.key not in places:
            raise Broken(path, name, f"its storage {storage.key!s:.40} is not in the file")
        if type(offset) is not int or offset < 0:
            raise Broken(path, name, f"its storage offset is {shown_numbers(offset)}")
        span = _span(path, name, shape, stride)
        item = dtype.bits // 8
        place = places[storage.key]
        if (offset + span) * item > place.size_bytes:
            raise Broken(
                path,
                name,
                f"it ends at byte {shown_numbers((offset + span) * item)} of a storage of"
                f" {place.size_bytes}",
            )
        name = _own(name, used)
        checkpoint.found(path, name, Tensor(dtype.name, shape))
        if id(found.value) in read:
            continue
        read.add(id(found.value))
        whole.seek(place.start + offset * item)
        yield from values.check(path, name, dtype, whole, span * item)
        unread.discard(storage.key)
    for key in sorted(unread):
        whole.seek(places[key].start)
        yield from values.check(path, f"storage {key}", DTYPES["U8"], whole, places[key].size_bytes)


def _own(name: str, used: Counter[str]) -> str:
    """The name of one tensor of a file. Keys that are no text, or hold dots, may come to the same
    name, and are different ones for PyTorch: those after the first get a number."""
    used[name] += 1
    return name if used[name] == 1 else _own(f"{name} ({used[name]})", used)


def _tensor(
    path: str, tensor: str, value: Any
) -> tuple[Storage, int, tuple[int, ...], tuple[int, ...], Dtype | None] | None:
    """The parts of a rebuilt tensor, from the arguments that its pickle gives; None for what is no
    tensor. Raises Broken for arguments from which PyTorch could not build one."""
    name = getattr(value, "global_name", "")
    if not isinstance(value, Inert) or not name.startswith("torch._utils._rebuild_tensor"):
        return None
    match value.arguments:
        case (Storage() as storage, int(offset), shape, tuple() as stride, *rest):
            numbers = next(iter(shape.arguments), ()) if isinstance(shape, Inert) else shape
            if not isinstance(numbers, tuple | list):
                raise Broken(path, tensor, f"its shape is {shown_numbers(numbers)}")
            dtype = storage.dtype
            if name.endswith("_v3"):  # its storage is untyped, and the type comes last but one
                named = [getattr(one, "global_name", "") for one in rest]
                torch_name = next((n for n in named if n.startswith("torch.")), "")
                dtype = DTYPES.get(TORCH_DTYPES.get(torch_name.removeprefix("torch."), ""))
            return storage, offset, tuple(numbers), stride, dtype
    raise Broken(path, tensor, "it is rebuilt from what no tensor is made of")


def _span(path: str, name: str, shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of the storage lie between the tensor's first and last, inclusive."""
    numbers = [*shape, *stride]
    if len(shape) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
        said = f"shape {shown_numbers(shape)} and stride {shown_numbers(stride)}"
        raise Broken(path, name, f"{said} are not those of a tensor")
    if element_count(path, name, shape) == 0:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
