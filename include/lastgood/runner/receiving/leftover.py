"""What an earlier try left of an object: checked, not trusted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.disk.files import new_buffer
from lastgood.runner.wire.spans import LARGEST_BYTES, Span, cut


@dataclass
class Leftover:
    """The spans of an object, in order, and the hash of its first `hashed_bytes`."""

    spans: list[Span]
    hashed_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    is_proven: bool = True  # what is there is right, whatever comes


def parts_left(fd: int, item: ManifestObject) -> list[Span]:
    """The parts of the object, each with its digest in the manifest; one that is in the file as it
    should be is whole."""
    there_bytes = _bytes_there(fd, item)
    spans = []
    for start, end, sha256 in _parts_of(item):
        is_there = end <= there_bytes and _sha256(fd, start, end) == sha256
        spans.append(Span(start, end, end if is_there else start))
    return spans


def leftover(fd: int, item: ManifestObject, most: int) -> Leftover:
    """What is there of the object in its file; what is missing is cut into spans of at most `most`
    bytes.

    A part counts if it has the digest that the manifest names. Of a large object without such
    digests, which is fetched in one stream, the file counts as far as it goes: its end will tell.
    """
    there_bytes = _bytes_there(fd, item)
    if item.part_sha256 is None and item.size_bytes > LARGEST_BYTES:
        return _beginning(fd, item, there_bytes)
    if not there_bytes:
        return Leftover(list(cut(0, item.size_bytes, most)))
    return _parts(fd, item, there_bytes, most)


def _bytes_there(fd: int, item: ManifestObject) -> int:
    there_bytes = os.fstat(fd).st_size
    if there_bytes <= item.size_bytes:
        return there_bytes
    os.ftruncate(fd, 0)
    return 0


def _parts_of(item: ManifestObject) -> Iterator[tuple[int, int, str]]:
    """Start, end and SHA-256 of each part; of an object without parts, its own."""
    each_bytes = item.part_bytes or item.size_bytes
    for number, sha256 in enumerate(item.part_sha256 or (item.sha256,)):
        start = number * each_bytes
        yield start, min(start + each_bytes, item.size_bytes), sha256


def _sha256(fd: int, start: int, end: int) -> str:
    part = hashlib.sha256()
    for chunk in read_chunks(fd, start, end, new_buffer()):
        part.update(chunk)
    return part.hexdigest()


def _beginning(fd: int, item: ManifestObject, there_bytes: int) -> Leftover:
    digest = hashlib.sha256()
    for chunk in read_chunks(fd, 0, there_bytes, new_buffer()):
        digest.update(chunk)
    spans = [Span(0, item.size_bytes, there_bytes)]
    return Leftover(spans, there_bytes, digest, is_proven=not there_bytes)


def _parts(fd: int, item: ManifestObject, there_bytes: int, most: int) -> Leftover:
    found = Leftover([])
    missing_from = 0
    for start, end, sha256 in _parts_of(item):
        if end <= there_bytes and _take_part(fd, start, end, sha256, found):
            found.spans += [*cut(missing_from, start, most), Span(start, end, end)]
            missing_from = end
    found.spans += cut(missing_from, item.size_bytes, most)
    return found


def _take_part(fd: int, start: int, end: int, sha256: str, found: Leftover) -> bool:
    """Whether the part is right; the hash of the object goes on over it if it comes next."""
    is_next = start == found.hashed_bytes
    part, whole = hashlib.sha256(), found.digest.copy()
    for chunk in read_chunks(fd, start, end, new_buffer()):
        part.update(chunk)
        if is_next:
            whole.update(chunk)
    if part.hexdigest() != sha256:
        return False
    if is_next:
        found.digest, found.hashed_bytes = whole, end
    return True


def read_chunks(fd: int, start: int, end: int, buffer: memoryview) -> Iterator[memoryview]:
    """The bytes of a file from `start` up to `end`, or to its own end."""
    while start < end and (read := os.preadv(fd, [buffer[: end - start]], start)):
        yield buffer[:read]
        start += read
