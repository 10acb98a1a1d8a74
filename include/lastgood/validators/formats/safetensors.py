"""safetensors: eight bytes of header length, a JSON header, and the values one after another.

The header is parsed here and not by the library, whose errors name no tensor. The rules are those
of the format's specification: the values fill the rest of the file, without overlaps or gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from lastgood.validators.formats.base import Broken, Checkpoint, Problem, Tensor, shown_numbers
from lastgood.validators.formats.numbers import (
    DTYPES,
    Dtype,
    Values,
    fill,
    tensor_bytes,
)

HEADER_LIMIT_BYTES = 100_000_000  # the library's own limit
_STEP = "step"


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Safetensors:
    """Each `.safetensors` file by itself."""

    name = "safetensors"
    version = "3"
    reads_last = False

    def claims(self, checkpoint: Checkpoint) -> Sequence[Sequence[str]]:
        return [[path] for path in checkpoint.sizes if path.endswith(".safetensors")]

    def check(self, checkpoint: Checkpoint, paths: Sequence[str]) -> Iterator[Problem]:
        (path,) = paths
        with checkpoint.open(path) as file:
            header, data_bytes = _header(path, file)
            told = header.pop("__metadata__", {})
            entries = [_entry(path, name, value) for name, value in header.items()]
            for entry in entries:
                checkpoint.found(path, entry.name, Tensor(entry.dtype.name, entry.shape))
            yield from _step_problems(checkpoint, path, told)
            entries.sort(key=lambda entry: (entry.begin, entry.end))
            _require_cover(path, entries, data_bytes)
            values = Values(checkpoint)
            for entry in entries:  # in the order of the file, so that reading is sequential
                size = entry.end - entry.begin
                yield from values.check(path, entry.name, entry.dtype, file, size)


def _header(path: str, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The parsed header, and how many bytes of values follow it."""
    size_bytes = file.seek(0, 2)
    file.seek(0)
    if size_bytes < 8:
        raise Broken(path, None, f"it has {size_bytes} bytes; the header's length alone has 8")
    length = bytearray(8)
    fill(file, memoryview(length), path, None)
    header_bytes = int.from_bytes(length, "little")
    if header_bytes > min(size_bytes - 8, HEADER_LIMIT_BYTES):
        raise Broken(
            path,
            None,
            f"the header says that it has {header_bytes} bytes; the file has {size_bytes - 8} after"
            f" its length, and {HEADER_LIMIT_BYTES} is the limit",
        )
    text = bytearray(header_bytes)
    fill(file, memoryview(text), path, None)
    try:
        header = json.loads(  # as text: of bytes, other encodings would be guessed
            text.decode(), object_pairs_hook=lambda pairs: _distinct(path, pairs)
        )
    except (ValueError, RecursionError) as error:
        raise Broken(path, None, f"the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise Broken(path, None, "the header is not an object")
    return header, size_bytes - 8 - header_bytes


def _distinct(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Broken(path, name, "the header has this name twice")
            seen.add(name)
    return content


def _entry(path: str, name: str, value: Any) -> _Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise Broken(path, name, "the header's entry is not dtype, shape and data_offsets")
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise Broken(path, name, f"{str(value['dtype'])[:40]!r} is no dtype")
    shape, offsets = value["shape"], value["data_offsets"]
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or any(type(n) is not int or n < 0 for n in numbers):
            raise Broken(path, name, "shape and data_offsets are lists of whole numbers")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Broken(
            path, name, f"data_offsets {shown_numbers(offsets)} are not a begin and an end"
        )
    expected = tensor_bytes(path, name, dtype, shape)
    if expected != offsets[1] - offsets[0]:
        raise Broken(
            path,
            name,
            f"shape {shown_numbers(shape)} of {dtype.name} is {expected} bytes, its offsets span"
            f" {shown_numbers(offsets[1] - offsets[0])}",
        )
    return _Entry(name, dtype, tuple(shape), *offsets)


def _require_cover(path: str, entries: Sequence[_Entry], data_bytes: int) -> None:
    """The entries, by offset, must fill the data exactly."""
    reached, before = 0, "the header"
    for entry in entries:
        if entry.end > data_bytes:
            raise Broken(
                path,
                entry.name,
                f"its values end at byte {shown_numbers(entry.end)}, the file's data at"
                f" {data_bytes}",
            )
        if entry.begin < reached:
            raise Broken(path, entry.name, f"its values overlap those of {before}")
        if entry.begin > reached:
            raise Broken(
                path,
                entry.name,
                f"{shown_numbers(entry.begin - reached)} bytes before it belong to no tensor",
            )
        reached, before = entry.end, entry.name
    if reached != data_bytes:
        raise Broken(path, None, f"the last {data_bytes - reached} bytes belong to no tensor")


def _step_problems(checkpoint: Checkpoint, path: str, told: Any) -> Iterator[Problem]:
    """A file may say of which step it is, in its metadata."""
    if not isinstance(told, dict):
        yield Problem(path, None, "__metadata__ is not an object")
    elif _STEP in told and checkpoint.step is not None and told[_STEP] != str(checkpoint.step):
        yield Problem(
            path, None, f"it is of step {told[_STEP]!s:.40}, the checkpoint of {checkpoint.step}"
        )
