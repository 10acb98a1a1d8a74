"""Small objects: written once, never replaced, read whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from lastgood.stores.base import Key, KeyExists, KeyMissing, Store, StoreError

KEY = Key("demo/resnet/pretrain/1/7/manifest.json")


def test_what_was_put_is_read_back(store: Store) -> None:
    written = store.put_new(KEY, b"{}")
    assert (written.key, written.size_bytes, written.hidden) == (KEY, 2, False)
    assert store.read(KEY) == b"{}"


def test_putting_the_same_bytes_again_answers_as_the_first_time(store: Store) -> None:
    first = store.put_new(KEY, b"{}")
    again = store.put_new(KEY, b"{}")
    assert (again.key, again.size_bytes, again.version_id) == (
        first.key,
        first.size_bytes,
        first.version_id,
    )


@pytest.mark.parametrize("other", [b"[]", b"", b"{}\n"])
def test_other_bytes_never_replace(store: Store, other: bytes) -> None:
    store.put_new(KEY, b"{}")
    with pytest.raises(KeyExists):
        store.put_new(KEY, other)
    assert store.read(KEY) == b"{}"


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.put_new(KEY, b"")
    assert store.read(KEY) == b""
    found = store.stat(KEY)
    assert found is not None
    assert found.size_bytes == 0


def test_a_missing_key(store: Store) -> None:
    assert store.stat(KEY) is None
    assert store.attested_parts(KEY) is None
    with pytest.raises(KeyMissing):
        store.read(KEY)
    with pytest.raises(KeyMissing), store.open(KEY):
        pass


def test_a_key_below_an_object_is_missing(store: Store) -> None:
    store.put_new(Key("demo/a"), b"x")
    assert store.stat(Key("demo/a/b")) is None
    with pytest.raises(KeyMissing):
        store.read(Key("demo/a/b"))


def test_a_folder_is_no_object(store: Store) -> None:
    store.put_new(Key("demo/a/b"), b"x")
    assert store.stat(Key("demo/a")) is None


def test_reading_beyond_the_limit_is_refused(store: Store) -> None:
    store.put_new(KEY, b"12345")
    assert store.read(KEY, limit_bytes=5) == b"12345"
    with pytest.raises(StoreError, match="larger than 4"):
        store.read(KEY, limit_bytes=4)


def test_ranges(store: Store) -> None:
    store.put_new(KEY, b"0123456789")
    for start, size, expected in [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (9, 1, b"9"),
        (8, 10, b"89"),
        (10, None, b""),
        (0, 0, b""),
    ]:
        with store.open(KEY, start=start, size_bytes=size) as stream:
            assert stream.read() == expected


def test_a_stream_fills_a_buffer(store: Store) -> None:
    store.put_new(KEY, b"0123456789")
    buffer = bytearray(64)
    with store.open(KEY, start=2) as stream:
        count = stream.readinto(buffer)  # type: ignore[attr-defined]
        assert buffer[:count] == b"23456789"
        assert stream.readinto(buffer) == 0  # type: ignore[attr-defined]


def test_one_of_many_writers_at_once_wins(store: Store) -> None:
    start = Barrier(8)

    def put(number: int) -> bytes | None:
        content = b"writer %d" % number
        start.wait()
        try:
            store.put_new(KEY, content)
        except KeyExists:
            return None
        return content

    with ThreadPoolExecutor(8) as pool:
        winners = [won for won in pool.map(put, range(8)) if won is not None]
    assert winners == [store.read(KEY)]


def test_writers_of_the_same_bytes_all_succeed(store: Store) -> None:
    start = Barrier(8)

    def put(_: int) -> int:
        start.wait()
        return store.put_new(KEY, b"same").size_bytes

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(put, range(8))) == [4] * 8
