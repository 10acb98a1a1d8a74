"""Verification: like compared with like, bytes read where nothing is attested, nothing assumed."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.stores import hashing, parts
from lastgood.stores.base import Key, StoreError
from lastgood.stores.file import FileStore
from lastgood.stores.hashing import (
    ExpectedObject,
    Proof,
    Verdict,
    VerifiedObject,
    verify_as_completed,
    verify_objects,
)
from tests.factories import upload_object

KEY = Key("demo/model.safetensors")
DATA = os.urandom(2500)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def expected(
    key: str = KEY, data: bytes = DATA, *, part_bytes: int | None = None, sha: str | None = None
) -> ExpectedObject:
    pieces = (
        [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)] if part_bytes else []
    )
    return ExpectedObject(
        Key(key), len(data), sha or sha256(data), part_bytes, tuple(sha256(p) for p in pieces)
    )


def verified(store: FileStore, *objects: ExpectedObject, reread: bool = False) -> VerifiedObject:
    (result,) = verify_objects(store, objects, reread=reread)
    return result


@pytest.fixture
def parts_of_1000(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    monkeypatch.setattr(parts, "PART_STEP_BYTES", 1)


def rot(store: FileStore, key: str = KEY) -> None:
    """Flip a byte as a failing disk does: without a trace in the file's times."""
    path = store.root / key
    before = os.stat(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_attested_digest_stands_for_the_bytes(store: FileStore) -> None:
    upload_object(store, KEY, DATA)
    assert verified(store, expected()) == VerifiedObject(
        KEY, Verdict.OK, Proof.ATTESTED, sha256(DATA), sha256(DATA), bytes_read=0
    )


def test_what_is_not_attested_is_read(store: FileStore) -> None:
    store.put_new(KEY, DATA)
    assert verified(store, expected()) == VerifiedObject(
        KEY, Verdict.OK, Proof.READ, sha256(DATA), sha256(DATA), bytes_read=len(DATA)
    )


def test_parts_are_compared_with_parts(store: FileStore, parts_of_1000: None) -> None:
    upload_object(store, KEY, DATA)
    result = verified(store, expected(part_bytes=1000))
    assert (result.verdict, result.proof, result.bytes_read) == (
        Verdict.OK,
        Proof.ATTESTED_PARTS,
        0,
    )


@pytest.mark.parametrize("part_bytes", [None, 500, 1250, 2500])
def test_parts_cut_differently_are_not_compared(
    store: FileStore, parts_of_1000: None, part_bytes: int | None
) -> None:
    upload_object(store, KEY, DATA)
    result = verified(store, expected(part_bytes=part_bytes))
    assert (result.verdict, result.proof) == (Verdict.OK, Proof.READ)


def test_another_part_is_found(store: FileStore, parts_of_1000: None) -> None:
    upload_object(store, KEY, DATA)
    other = DATA[:1500] + b"!" + DATA[1501:]
    result = verified(store, expected(data=other, part_bytes=1000))
    assert (result.verdict, result.proof) == (Verdict.DIGEST_MISMATCH, Proof.ATTESTED_PARTS)
    assert (result.expected, result.found) == (sha256(other[1000:2000]), sha256(DATA[1000:2000]))


@pytest.mark.parametrize("part_bytes", [500, 1250, 2400, 3000])
def test_parts_that_are_not_attested_are_read_and_compared_too(
    store: FileStore, part_bytes: int
) -> None:
    """A reader may go by the digests of parts alone: each has to be right, as the whole has."""
    store.put_new(KEY, DATA)
    right = expected(part_bytes=part_bytes)
    assert verified(store, right) == VerifiedObject(
        KEY, Verdict.OK, Proof.READ, sha256(DATA), sha256(DATA), bytes_read=len(DATA)
    )
    for number in range(len(right.part_sha256s) if len(right.part_sha256s) > 1 else 0):
        digests = list(right.part_sha256s)
        digests[number] = sha256(b"other")
        result = verified(store, replace(right, part_sha256s=tuple(digests)))
        assert (result.verdict, result.proof, result.expected, result.found) == (
            Verdict.DIGEST_MISMATCH,
            Proof.READ,
            sha256(b"other"),
            right.part_sha256s[number],
        )


@pytest.mark.parametrize("attested", [True, False])
def test_other_bytes_are_found(store: FileStore, attested: bool) -> None:
    if attested:
        upload_object(store, KEY, DATA)
    else:
        store.put_new(KEY, DATA)
    result = verified(store, expected(sha=sha256(b"other")))
    assert (result.verdict, result.expected, result.found) == (
        Verdict.DIGEST_MISMATCH,
        sha256(b"other"),
        sha256(DATA),
    )


def test_rot_is_found_by_reading_again(store: FileStore, parts_of_1000: None) -> None:
    upload_object(store, KEY, DATA)
    rot(store)
    assert verified(store, expected(part_bytes=1000)).ok
    result = verified(store, expected(part_bytes=1000), reread=True)
    assert (result.verdict, result.bytes_read) == (Verdict.DIGEST_MISMATCH, len(DATA))


@pytest.mark.parametrize("size", [0, len(DATA) - 1, len(DATA) + 1])
@pytest.mark.parametrize("reread", [False, True])
def test_another_size_is_found_without_reading(store: FileStore, size: int, reread: bool) -> None:
    upload_object(store, KEY, (DATA + b"!")[:size])
    assert verified(store, expected(), reread=reread) == VerifiedObject(
        KEY, Verdict.SIZE_MISMATCH, None, len(DATA), size, bytes_read=0
    )


def test_a_missing_object_is_found(store: FileStore) -> None:
    assert verified(store, expected()) == VerifiedObject(
        KEY, Verdict.MISSING_OBJECT, None, sha256(DATA), None
    )


def test_an_empty_object_is_verified(store: FileStore) -> None:
    upload_object(store, KEY, b"")
    assert verified(store, expected(data=b"")).ok
    assert verified(store, expected(data=b""), reread=True).ok


def test_a_link_is_a_missing_object_that_says_what_it_is(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(DATA)
    (store.root / "demo").mkdir()
    (store.root / KEY).symlink_to(tmp_path / "outside")
    (store.root / "demo/folder").symlink_to(tmp_path)
    at_the_end = verified(store, expected())
    on_the_way = verified(store, expected("demo/folder/outside"))
    assert (at_the_end.verdict, at_the_end.found) == (Verdict.MISSING_OBJECT, "symlink")
    assert (on_the_way.verdict, on_the_way.found) == (Verdict.MISSING_OBJECT, "a symbolic link")


def test_verdicts_come_in_the_order_asked(store: FileStore) -> None:
    names = [f"demo/{number:03d}" for number in range(100)]
    contents = {name: os.urandom(number) for number, name in enumerate(names)}
    for name in names[:-1]:
        store.put_new(Key(name), contents[name])
    rot(store, names[50])
    results = verify_objects(store, [expected(n, contents[n]) for n in names], threads=4)
    assert [result.key for result in results] == names
    assert [result.key for result in results if not result.ok] == [names[50], names[99]]


def test_nothing_to_verify(store: FileStore) -> None:
    assert verify_objects(store, []) == []


def test_the_largest_objects_go_first(store: FileStore) -> None:
    sizes = [3, 500, 70, 1]
    for size in sizes:
        store.put_new(Key(f"demo/{size}"), b"x" * size)
    asked = [expected(f"demo/{size}", b"x" * size) for size in sizes]
    order = [int(one.key[5:]) for one in verify_as_completed(store, asked, threads=1)]
    assert order == sorted(sizes, reverse=True)


def test_progress_adds_up_to_the_bytes_read(store: FileStore) -> None:
    store.put_new(Key("demo/a"), DATA)
    store.put_new(Key("demo/b"), DATA * 2)
    seen: list[int] = []
    results = verify_objects(
        store, [expected("demo/a"), expected("demo/b", DATA * 2)], progress=seen.append
    )
    assert sum(seen) == sum(result.bytes_read for result in results) == 3 * len(DATA)


def failing_after(store: FileStore, reads: int) -> Callable[[], int]:
    """Make the store unreadable after so many objects; the function tells how many were asked."""
    asked = 0
    lock = threading.Lock()
    stat = store.stat

    def stat_or_fail(key: Key):  # type: ignore[no-untyped-def]
        nonlocal asked
        with lock:
            asked += 1
            if asked > reads:
                raise StoreError(store="local", key=key, reason="input/output error")
        return stat(key)

    store.stat = stat_or_fail  # type: ignore[method-assign]
    return lambda: asked


def test_a_store_that_cannot_be_read_gives_no_verdict(store: FileStore) -> None:
    names = [f"demo/{number}" for number in range(50)]
    for name in names:
        store.put_new(Key(name), DATA)
    failing_after(store, 10)
    seen: list[VerifiedObject] = []
    verdicts = verify_as_completed(store, [expected(n) for n in names], threads=2)
    with pytest.raises(StoreError, match="input/output"):
        seen.extend(verdict for verdict in verdicts)
    with pytest.raises(StoreError, match="input/output"):
        verify_objects(store, [expected(n) for n in names], threads=2)
    assert all(one.ok for one in seen)


def test_a_caller_that_stops_stops_the_threads(store: FileStore) -> None:
    names = [f"demo/{number}" for number in range(500)]
    for name in names:
        (store.root / name).parent.mkdir(exist_ok=True)
        (store.root / name).write_bytes(DATA)
    asked = failing_after(store, 500)
    results = verify_as_completed(store, [expected(n) for n in names], threads=2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert asked() < 500
    assert not [t for t in threading.enumerate() if t.name.startswith("verify-")]


def test_memory_does_not_grow_with_the_objects(store: FileStore) -> None:
    (store.root / "demo").mkdir()
    size = 64 << 20
    for name in ("demo/a", "demo/b"):
        with (store.root / name).open("wb") as file:
            file.truncate(size)
    sha = hashlib.sha256()
    for _ in range(64):
        sha.update(bytes(1 << 20))
    asked = [ExpectedObject(Key(n), size, sha.hexdigest()) for n in ("demo/a", "demo/b")]
    tracemalloc.start()
    assert all(one.ok for one in verify_objects(store, asked, threads=2))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 * hashing.BUFFER_BYTES
