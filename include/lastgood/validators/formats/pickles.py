"""Pickles, read so that nothing in them can run.

Whatever a pickle names, `Inert` stands in for it: no module is imported, no function is called. A
name that PyTorch's `weights_only` does not know is a failure all the same, because the checkpoint
can then only be loaded by running what it says. A policy may name further globals as harmless
(`validate.pickle_globals`), such as a trainer's arguments.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Self, cast

from lastgood.validators.formats.base import Broken, shown_numbers

_NAMED = frozenset(
    {
        "_codecs.encode",
        "__builtin__.bytearray", "builtins.bytearray",
        "__builtin__.complex", "builtins.complex",
        "__builtin__.set", "builtins.set", "builtins.frozenset", "__builtin__.frozenset",
        "builtins.slice",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.defaultdict", "builtins.dict", "__builtin__.dict", "builtins.list",
        "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
        "numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer",
        "numpy.dtype", "numpy.ndarray",
        "pathlib.Path", "pathlib.PosixPath", "pathlib.PurePosixPath",
        "pathlib._local.PosixPath",
        "torch.device", "torch.Size", "torch.Tensor", "torch.layout", "torch.memory_format",
        "torch.nn.parameter.Parameter", "torch.nn.parameter.UninitializedParameter",
        "torch.serialization._get_layout",
        "torch.storage.UntypedStorage", "torch.storage.TypedStorage",
        "torch._tensor._rebuild_from_type_v2",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
    }
)  # fmt: skip
_TORCH_FUNCTIONS = "torch._utils._rebuild_"
_METADATA_MODULE = "torch.distributed.checkpoint.metadata."
_TORCH_KINDS = ("torch", "torch.storage", "torch.cuda", "torch.sparse", "torch.cuda.sparse")
_TORCH_DTYPES = frozenset(
    {
        "float64", "double", "float32", "float", "float16", "half", "bfloat16", "complex32",
        "complex64", "complex128", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
        "int64", "bool", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz",
        "float8_e8m0fnu", "float4_e2m1fn_x2", "quint8", "qint8", "qint32", "quint4x2", "strided",
        "quint2x4", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
        "per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric",
        "per_tensor_affine", "per_tensor_symmetric",
        "sparse_coo", "contiguous_format", "channels_last", "preserve_format",
    }
)  # fmt: skip


def is_harmless(name: str) -> bool:
    """Whether a global's full name is one that `weights_only` builds values from."""
    module, _, last = name.rpartition(".")
    return (
        name in _NAMED
        or name.startswith((_TORCH_FUNCTIONS, _METADATA_MODULE))
        or (module == "torch" and last in _TORCH_DTYPES)
        or (module in _TORCH_KINDS and last.endswith(("Storage", "Tensor")))
        or (module in ("numpy", "numpy.dtypes") and last.isidentifier() and last[0] != "_")
    )


class Inert:
    """Stands in for a global of a pickle, and for what the pickle would have made of it."""

    global_name = ""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = None
        return made

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments: tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        self.arguments += (item,)

    def extend(self, items: Any) -> None:
        self.arguments += tuple(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.arguments += ((key, value),)

    def __hash__(self) -> int:
        return id(self)

    def field(self, name: str) -> Any:
        """An attribute that the pickle gave to the object; None if it did not."""
        state = self.state
        if isinstance(state, tuple):
            state = next((part for part in state if isinstance(part, dict)), None)
        return state.get(name) if isinstance(state, dict) else None


class _FromType(Inert):
    """A tensor of a subclass, or with attributes of its own: the call that rebuilds it is given in
    parts, function and arguments apart. It is made here, so that it is a tensor like any other."""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        match arguments:
            case (type() as rebuild, kind, tuple() as parts, *rest) if issubclass(rebuild, Inert):
                arguments = (rebuild(*parts), kind, *rest)
        return super().__new__(cls, *arguments, **named)


_FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
Persistent = Callable[[Any], Any]


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, path: str, stream: BinaryIO, persistent: Persistent | None, more: Collection[str]
    ) -> None:
        super().__init__(stream)
        self._path = path
        self._persistent = persistent
        self._more = more
        self._known: dict[str, Any] = {"collections.OrderedDict": OrderedDict}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in self._known:
            if not is_harmless(full) and full not in self._more:
                raise Broken(self._path, None, f"its pickle would run {full[:200]}; it was not run")
            base = _FromType if full == _FROM_TYPE else Inert
            self._known[full] = type(name.rpartition(".")[2], (base,), {"global_name": full})
        return self._known[full]

    def persistent_load(self, identity: Any) -> Any:
        if self._persistent is None:
            raise Broken(self._path, None, "its pickle refers to something outside of it")
        return self._persistent(identity)


def load(
    path: str,
    stream: BinaryIO,
    *,
    persistent: Persistent | None = None,
    more: Collection[str] = (),
) -> Any:
    """Read one pickle from where the stream stands. Raises Broken for what is no pickle and for
    globals that are not harmless."""
    begin = stream.tell()
    try:
        return _Unpickler(path, stream, persistent, more).load()
    except (Broken, OSError):
        raise
    except MemoryError:
        stream.seek(begin)
        _require_honest(path, stream)
        raise
    except Exception as error:  # a hostile pickle has many ways to fail
        reason = f"{type(error).__name__}: {error}"[:200]
        raise Broken(path, None, f"its pickle does not load: {reason}") from None


def _require_honest(path: str, stream: BinaryIO) -> None:
    """Raises Broken for a pickle that claims what it cannot have: longer texts than bytes are left,
    or more things to remember than it can name."""
    begin = stream.tell()
    left = stream.seek(0, io.SEEK_END) - begin
    stream.seek(begin)
    try:
        clipped = cast("IO[bytes]", _Clipped(stream, begin + left))
        for opcode, value, place in pickletools.genops(clipped):
            claimed = opcode.name in _CLAIMS and isinstance(value, int) and value > left
            if claimed:
                problem = f"its pickle claims {shown_numbers(value)} by {opcode.name}"
                raise Broken(path, None, f"{problem} at {place}; it has {left} bytes")
    except ValueError as error:
        raise Broken(path, None, f"its pickle is not whole: {error!s:.200}") from None


_CLAIMS = ("FRAME", "PUT", "BINPUT", "LONG_BINPUT")


class _Clipped:
    """Reads no more than there is: a read of a claimed size would take that much memory first."""

    def __init__(self, stream: BinaryIO, end: int) -> None:
        self._stream, self._end = stream, end
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        return self._stream.read(max(0, min(size, self._end - self._stream.tell())))

    def readline(self) -> bytes:
        return self._stream.readline(1 << 16)


@dataclass(frozen=True, slots=True)
class Found:
    """An object somewhere below a root, and the names that lead to it, joined by dots."""

    name: str
    value: Any


def walk(root: Any) -> Iterator[Found]:
    """Every stand-in below a root, once for each name that leads to it; containers once, or a small
    pickle could be made to take forever."""
    waiting = [Found("", root)]
    opened: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one.value, Inert):
            yield one
        elif not isinstance(one.value, dict | list | tuple | set | frozenset):
            continue
        if id(one.value) not in opened:
            opened.add(id(one.value))
            waiting += reversed([Found(_join(one.name, k), v) for k, v in _inside(one.value)])
        elif isinstance(one.value, Inert):  # a wrapped tensor under a further name
            waiting += [Found(one.name, v) for v in one.value.arguments[:1] if isinstance(v, Inert)]


def _inside(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, Inert):
        for place, argument in enumerate(value.arguments):
            yield place or None, argument  # what a call wraps first goes by the call's own name
        state = value.state
        yield from _inside(state) if isinstance(state, dict | list | tuple) else ()
    else:
        yield from enumerate(value)


def _join(name: str, key: Any) -> str:
    if key is None:
        return name
    own = str(key) if isinstance(key, str | int) else "?"
    return f"{name}.{own}" if name else own
