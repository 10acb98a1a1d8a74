"""Verifying objects: are the bytes in a store the ones that a manifest names?

SHA-256 of one object is serial, so threads share out objects, the largest first. `hashlib` and the
reading both release the interpreter lock.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from queue import Queue
from typing import BinaryIO

from lastgood.rules.digests import composite_of
from lastgood.stores.base import ForeignEntry, Key, KeyMissing, Part, Store, StoredObject

BUFFER_BYTES = 1 << 20

Progress = Callable[[int], None]  # bytes read since the last call; called from many threads


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """What a manifest says about an object; part digests only where it was uploaded in parts. With
    a `version_id` those very bytes are read, whatever lies over them; without, the current ones."""

    key: Key
    size_bytes: int
    sha256: str
    part_bytes: int | None = None
    part_sha256s: tuple[str, ...] = ()
    version_id: str | None = None


class Verdict(StrEnum):
    OK = "ok"
    DIGEST_MISMATCH = "digest-mismatch"
    SIZE_MISMATCH = "size-mismatch"
    MISSING_OBJECT = "missing-object"


class Proof(StrEnum):
    """What a verdict rests on."""

    ATTESTED = "attested"  # the store hashed the whole object as it received it
    ATTESTED_PARTS = "attested-parts"  # the store hashed each part; compared part by part
    READ = "read"  # the bytes were read and hashed here


@dataclass(frozen=True, slots=True)
class VerifiedObject:
    """The verdict on one object. `expected` and `found` are digests, or sizes in bytes for a size
    mismatch; `bytes_read` is what it cost."""

    key: Key
    verdict: Verdict
    proof: Proof | None  # None: settled without looking at bytes (missing, or another size)
    expected: str | int
    found: str | int | None
    bytes_read: int = 0
    version_id: str | None = None  # of the very bytes that were judged

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.OK


def verify_objects(
    store: Store,
    expected: Sequence[ExpectedObject],
    *,
    threads: int | None = None,
    reread: bool = False,
    progress: Progress | None = None,
) -> list[VerifiedObject]:
    """The verdict on each object, in the order asked. See `verify_as_completed`."""
    found = {
        verified.key: verified
        for verified in verify_as_completed(
            store, expected, threads=threads, reread=reread, progress=progress
        )
    }
    return [found[one.key] for one in expected]


def verify_as_completed(
    store: Store,
    expected: Sequence[ExpectedObject],
    *,
    threads: int | None = None,
    reread: bool = False,
    progress: Progress | None = None,
) -> Iterator[VerifiedObject]:
    """Verdicts as they come, so that a caller can keep them and go on from there after a crash.

    A digest that the store attests stands for the bytes, unless `reread`: then, and where there is
    none, the bytes are read. `threads` defaults to one per core; memory is one buffer for each.
    Raises the first StoreError met: a store that cannot be read says nothing about an object.
    """
    todo = iter(sorted(expected, key=lambda one: one.size_bytes, reverse=True))
    count = max(1, min(len(expected), threads or cores()))
    # Bounded: verdicts that nobody takes hold the threads up, and do not pile up.
    results: Queue[VerifiedObject | BaseException | None] = Queue(2 * count)
    take = threading.Lock()
    stop = threading.Event()

    def work() -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        try:
            while not stop.is_set():
                with take:
                    one = next(todo, None)
                if one is None:
                    break
                results.put(_verify(store, one, reread, buffer, progress))
        except BaseException as error:
            stop.set()
            results.put(error)
        finally:
            results.put(None)

    workers = [threading.Thread(target=work, name=f"verify-{n}", daemon=True) for n in range(count)]
    for worker in workers:
        worker.start()
    running = count
    try:
        while running:
            result = results.get()
            if result is None:
                running -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result
    finally:
        stop.set()
        while running:
            running -= results.get() is None
        for worker in workers:
            worker.join()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _verify(
    store: Store,
    one: ExpectedObject,
    reread: bool,
    buffer: memoryview,
    progress: Progress | None,
) -> VerifiedObject:
    try:
        if one.version_id is not None:
            verdict = _by_reading(store, one, one.version_id, buffer, progress)
            return replace(verdict, version_id=one.version_id)
        there = store.stat(one.key)
        if there is None or there.foreign is not None:
            return _missing(one, there.foreign if there else None)
        verdict = _compare(store, one, there, reread, buffer, progress)
        return replace(verdict, version_id=there.version_id)
    except KeyMissing:
        return _missing(one)
    except ForeignEntry as error:
        return _missing(one, error.facts["what"])


def _compare(
    store: Store,
    one: ExpectedObject,
    there: StoredObject,
    reread: bool,
    buffer: memoryview,
    progress: Progress | None,
) -> VerifiedObject:
    if there.size_bytes != one.size_bytes:
        return VerifiedObject(
            one.key, Verdict.SIZE_MISMATCH, None, one.size_bytes, there.size_bytes
        )
    attested = None if reread else _by_attestation(store, one, there)
    return attested or _by_reading(store, one, there.version_id, buffer, progress)


def _by_attestation(
    store: Store, one: ExpectedObject, there: StoredObject
) -> VerifiedObject | None:
    """Compare like with like: a whole-object digest with a whole-object digest, a part's with the
    same part's. None if the store proved nothing that can be compared."""
    if there.sha256 is not None:
        _read_a_byte(store, one, there)
        return _compared(one, Proof.ATTESTED, one.sha256, there.sha256)
    if there.composite is not None:
        return _by_composite(store, one, there, there.composite)
    if one.part_bytes is None or not one.part_sha256s:
        return None
    parts = store.attested_parts(one.key)
    if parts is None or not _cut_alike(one, parts):
        return None
    _read_a_byte(store, one, there)
    for ours, part in zip(one.part_sha256s, parts, strict=True):
        if part.sha256 != ours:
            return _compared(one, Proof.ATTESTED_PARTS, ours, part.sha256)
    return _compared(one, Proof.ATTESTED_PARTS, one.sha256, one.sha256)


def _by_composite(
    store: Store, one: ExpectedObject, there: StoredObject, composite: str
) -> VerifiedObject | None:
    """A digest over as many parts as the manifest names: equal ones prove each part, and with it
    where it was cut. An object of one part has the part's digest."""
    ours = composite_of(one.part_sha256s or (one.sha256,))
    if ours.partition("-")[2] != composite.partition("-")[2]:
        return None
    _read_a_byte(store, one, there)
    if ours != composite:
        return _compared(one, Proof.ATTESTED_PARTS, ours, composite)
    return _compared(one, Proof.ATTESTED_PARTS, one.sha256, one.sha256)


def _cut_alike(one: ExpectedObject, parts: Sequence[Part]) -> bool:
    return (
        len(parts) == len(one.part_sha256s)
        and all(part.sha256 is not None for part in parts)
        and all(part.size_bytes == one.part_bytes for part in parts[:-1])
        and sum(part.size_bytes for part in parts) == one.size_bytes
    )


def _read_a_byte(store: Store, one: ExpectedObject, there: StoredObject) -> None:
    # An object may be listed, its digest attested, and its bytes not be readable all the same.
    last, version = max(0, one.size_bytes - 1), there.version_id
    with store.open(one.key, start=last, size_bytes=1, version_id=version) as stream:
        if one.size_bytes and len(stream.read(1)) != 1:
            raise KeyMissing(store=store.name, key=one.key)


def _by_reading(
    store: Store,
    one: ExpectedObject,
    version_id: str | None,
    buffer: memoryview,
    progress: Progress | None,
) -> VerifiedObject:
    """Compare the whole, and the parts where the manifest names them: a reader may go by either."""
    parts = _PartDigests(one.part_bytes) if one.part_bytes and len(one.part_sha256s) > 1 else None
    with store.open(one.key, version_id=version_id) as stream:
        found, size_bytes = _hash(stream, buffer, progress, parts)
    if size_bytes != one.size_bytes:
        return VerifiedObject(
            one.key, Verdict.SIZE_MISMATCH, Proof.READ, one.size_bytes, size_bytes, size_bytes
        )
    if parts is not None and found == one.sha256:
        for ours, part in zip(one.part_sha256s, parts.hexdigests(), strict=True):
            if part != ours:
                return _compared(one, Proof.READ, ours, part, size_bytes)
    return _compared(one, Proof.READ, one.sha256, found, size_bytes)


class _PartDigests:
    """The digests of an object's parts, computed while it is read."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._rest_bytes = part_bytes  # of the part that is being read
        self._digests = [hashlib.sha256()]

    def update(self, chunk: memoryview) -> None:
        while chunk:
            if not self._rest_bytes:
                self._digests.append(hashlib.sha256())
                self._rest_bytes = self._part_bytes
            piece = chunk[: self._rest_bytes]
            self._digests[-1].update(piece)
            self._rest_bytes -= len(piece)
            chunk = chunk[len(piece) :]

    def hexdigests(self) -> list[str]:
        return [digest.hexdigest() for digest in self._digests]


def _hash(
    stream: BinaryIO, buffer: memoryview, progress: Progress | None, parts: _PartDigests | None
) -> tuple[str, int]:
    digest = hashlib.sha256()
    size_bytes = 0
    while count := stream.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(buffer[:count])
        if parts is not None:
            parts.update(buffer[:count])
        size_bytes += count
        if progress is not None:
            progress(count)
    return digest.hexdigest(), size_bytes


def _compared(
    one: ExpectedObject, proof: Proof, expected: str, found: str | None, bytes_read: int = 0
) -> VerifiedObject:
    verdict = Verdict.OK if found == expected else Verdict.DIGEST_MISMATCH
    return VerifiedObject(one.key, verdict, proof, expected, found, bytes_read)


def _missing(one: ExpectedObject, found: str | None = None) -> VerifiedObject:
    return VerifiedObject(one.key, Verdict.MISSING_OBJECT, None, one.sha256, found)
