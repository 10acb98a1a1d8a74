"""What a format plug-in is, and what it works with.

A plug-in is a class without arguments, named by an entry point of the group `lastgood.formats`:

    [project.entry-points."lastgood.formats"]
    mine = "my_package.my_module:MyFormat"

It runs in an isolated process over a folder that it cannot write to. What is wrong with a file it
yields as a `Problem`, or raises as `Broken` where it cannot go on; a `Broken` ends its group of
files, not the validation. Any other exception is a fault of the plug-in and proves nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, BinaryIO, Literal, Protocol, cast

GROUP = "lastgood.formats"
Severity = Literal["fail", "warn"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, in which file and, where it is about one, which tensor."""

    path: str
    tensor: str | None
    problem: str
    severity: Severity = "fail"

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "tensor": None if self.tensor is None else shown(self.tensor),
            "problem": shown(self.problem),
            "severity": self.severity,
        }

    def __str__(self) -> str:
        tensor = "" if self.tensor is None else f", tensor {self.tensor}"
        return f"{self.path}{tensor}: {self.problem}"


def shown(text: str, limit: int = 500) -> str:
    """Text that a file chose, as a receipt can keep it: no longer than this many characters, and
    none that a database refuses (NUL, halves of surrogate pairs) or that breaks a line."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


def shown_numbers(numbers: object) -> str:
    """Numbers that a file chose, in words: Python refuses to print very long ones."""
    if isinstance(numbers, list | tuple):
        few = ", ".join(shown_numbers(one) for one in numbers[:16])
        return f"[{few}, …]" if len(numbers) > 16 else f"[{few}]"
    if isinstance(numbers, int) and numbers.bit_length() > 64:
        return f"(a number of {numbers.bit_length()} bits)"
    return str(numbers)[:40]


class Broken(Exception):
    """A file is not what its format says, so that it cannot be read further."""

    def __init__(self, path: str, tensor: str | None, problem: str) -> None:
        super().__init__(path, tensor, problem)
        self.problem = Problem(path, tensor, problem)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that was found. The type is in the words of safetensors: F32, BF16, I64, …"""

    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Checkpoint:
    """The files under validation. What a format finds it tells by `found`."""

    root: str
    sizes: Mapping[str, int]  # bytes by path, as the manifest has them
    step: int | None = None
    world_size: int = 1
    non_finite: Literal["fail", "warn", "ignore"] = "fail"
    pickle_globals: Collection[str] = ()  # beside the harmless ones: see `formats.pickles`
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    bytes_read: int = 0
    claimed: set[str] = field(default_factory=set)  # files that a format reads
    loaded: set[str] = field(default_factory=set)  # files that a format read to their end

    def open(self, path: str) -> BinaryIO:
        """An unbuffered file of the checkpoint. Raises Broken if it is not there, is no regular
        file, or lies behind a link; OSError if it cannot be read, which proves nothing."""
        descriptor = _open_below(self.root, path)
        return cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))

    def found(self, path: str, name: str, tensor: Tensor) -> None:
        """Remember a tensor, for the formats that read last and for what the manifest declares.
        Raises Broken if the file has another one of this name."""
        known = self.tensors.setdefault(path, {})
        if name in known:
            raise Broken(path, name, "the name is given to two tensors")
        known[name] = tensor


class Format(Protocol):
    """One format. `version` changes when its verdicts may: receipts of another one are taken
    again. `reads_last`: it looks at what other formats found."""

    name: str
    version: str
    reads_last: bool

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        """The paths that it reads, in groups that are read together; none for a checkpoint that
        has nothing of the format."""

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        """Load every tensor of one group."""


def installed() -> list[Format]:
    """Every format of this environment, ours and others', by name; those that read last, last."""
    entries = metadata.entry_points(group=GROUP)
    formats: list[Format] = [entry.load()() for entry in sorted(entries, key=lambda e: e.name)]
    return sorted(formats, key=lambda one: one.reads_last)


def _open_below(root: str, path: str) -> int:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *folders, name = path.split("/")
    try:
        for part in folders:
            inner = _open_part(folder, part, os.O_DIRECTORY, path)
            os.close(folder)
            folder = inner
        descriptor = _open_part(folder, name, os.O_NONBLOCK, path)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Broken(path, None, "is not a regular file")
    return descriptor


def _open_part(folder: int, name: str, flags: int, path: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except FileNotFoundError:
        raise Broken(path, None, "is not there") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Broken(path, None, f"{name!r} is a link, not the file itself") from None
        if error.errno == errno.ENXIO:
            raise Broken(path, None, "is not a regular file") from None
        raise
