"""Uploads: resumable by part, published once and whole, thrown away without a rest."""

from __future__ import annotations

import hashlib
import os

import pytest

from lastgood.rules.digests import composite_of
from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    PartInvalid,
    Prefix,
    Store,
    UploadGone,
    UploadId,
)
from tests.factories import send_parts, upload_object

KEY = Key("demo/resnet/pretrain/1/7/model.safetensors")
MiB = 1 << 20
NOBODYS = UploadId("0123456789abcdef0123456789abcdef")


@pytest.fixture(scope="module")
def three_parts() -> bytes:
    return os.urandom(12 * MiB + 345)


def pending(store: Store) -> list[tuple[Key, UploadId, int, int]]:
    return [
        (upload.key, upload.upload_id, upload.parts, upload.part_bytes_held)
        for upload in store.uploads(Prefix(""))
    ]


@pytest.mark.parametrize("size", [0, 1, 5 * MiB, 5 * MiB + 1])
def test_an_object_of_any_size_arrives(store: Store, size: int) -> None:
    data = os.urandom(size)
    published = upload_object(store, KEY, data)
    assert (published.key, published.size_bytes) == (KEY, size)
    assert store.read(KEY) == data
    assert pending(store) == []


def test_parts_are_few_enough_and_equal(store: Store) -> None:
    assert store.part_bytes(0) == store.part_bytes(1) == store.part_bytes(5 * MiB) == 5 * MiB
    for size in (50_000 * MiB, 50_000 * MiB + 1, 600 << 30, 40 << 40):
        part = store.part_bytes(size)
        assert -(-size // part) <= 10_000
        assert part % MiB == 0


def test_nothing_is_visible_before_completion(store: Store, three_parts: bytes) -> None:
    upload_id = store.create_upload(KEY, len(three_parts))
    parts = send_parts(store, KEY, upload_id, three_parts)
    assert store.stat(KEY) is None
    assert list(store.list(Prefix(""))) == []
    assert pending(store) == [(KEY, upload_id, 3, len(three_parts))]
    store.complete_upload(KEY, upload_id, parts)
    assert store.read(KEY) == three_parts


def test_a_part_carries_its_digest(store: Store) -> None:
    upload_id = store.create_upload(KEY, 5)
    part = store.write_part(KEY, upload_id, 1, 5, [b"he", memoryview(b"ll"), b"", b"o"])
    assert (part.number, part.size_bytes) == (1, 5)
    assert part.sha256 == hashlib.sha256(b"hello").hexdigest()


def test_a_client_resumes_by_part(store: Store, three_parts: bytes) -> None:
    upload_id = store.create_upload(KEY, len(three_parts))
    size = store.part_bytes(len(three_parts))
    store.write_part(KEY, upload_id, 3, 2 * MiB + 345, [three_parts[2 * size :]])
    store.write_part(KEY, upload_id, 1, size, [three_parts[:size]])
    assert [(part.number, part.size_bytes) for part in store.parts(KEY, upload_id)] == [
        (1, size),
        (3, 2 * MiB + 345),
    ]
    assert pending(store) == [(KEY, upload_id, 2, 7 * MiB + 345)]
    store.write_part(KEY, upload_id, 2, size, [three_parts[size : 2 * size]])
    store.complete_upload(KEY, upload_id, store.parts(KEY, upload_id))
    assert store.read(KEY) == three_parts


def test_a_part_that_comes_again_replaces_itself(store: Store) -> None:
    upload_id = store.create_upload(KEY, 5)
    store.write_part(KEY, upload_id, 1, 5, [b"first"])
    again = store.write_part(KEY, upload_id, 1, 5, [b"again"])
    store.complete_upload(KEY, upload_id, [again])
    assert store.read(KEY) == b"again"


@pytest.mark.parametrize("chunks", [[], [b"four"], [b"sixsix"], [b"four", b"sixsix"]])
def test_a_part_of_another_size_than_said_is_refused(store: Store, chunks: list[bytes]) -> None:
    upload_id = store.create_upload(KEY, 5)
    with pytest.raises(PartInvalid):
        store.write_part(KEY, upload_id, 1, 5, chunks)
    assert list(store.parts(KEY, upload_id)) == []


def test_a_missing_part_prevents_completion(store: Store, three_parts: bytes) -> None:
    upload_id = store.create_upload(KEY, len(three_parts))
    size = store.part_bytes(len(three_parts))
    sent = [
        store.write_part(KEY, upload_id, 1, size, [three_parts[:size]]),
        store.write_part(KEY, upload_id, 3, 2 * MiB + 345, [three_parts[2 * size :]]),
    ]
    with pytest.raises(PartInvalid):
        store.complete_upload(KEY, upload_id, sent)
    with pytest.raises(PartInvalid):
        store.complete_upload(KEY, upload_id, [sent[0], Part(2, size), sent[1]])
    assert store.stat(KEY) is None
    assert pending(store) == [(KEY, upload_id, 2, 7 * MiB + 345)]


@pytest.mark.parametrize("named", [[], [Part(1, 4)], [Part(2, 5)], [Part(1, 5), Part(2, 5)]])
def test_completion_names_the_parts_that_are_held(store: Store, named: list[Part]) -> None:
    upload_id = store.create_upload(KEY, 5)
    store.write_part(KEY, upload_id, 1, 5, [b"hello"])
    with pytest.raises(PartInvalid):
        store.complete_upload(KEY, upload_id, named)
    assert store.stat(KEY) is None
    store.complete_upload(KEY, upload_id, [Part(1, 5)])
    assert store.read(KEY) == b"hello"


def test_a_retried_completion_says_that_the_upload_is_gone(store: Store) -> None:
    upload_id = store.create_upload(KEY, 5)
    parts = send_parts(store, KEY, upload_id, b"hello")
    store.complete_upload(KEY, upload_id, parts)
    with pytest.raises(UploadGone):
        store.complete_upload(KEY, upload_id, parts)
    assert store.read(KEY) == b"hello"


def test_a_part_after_completion_is_refused_and_changes_nothing(store: Store) -> None:
    upload_id = store.create_upload(KEY, 5)
    store.complete_upload(KEY, upload_id, send_parts(store, KEY, upload_id, b"hello"))
    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 5, [b"other"])
    assert store.read(KEY) == b"hello"


def test_completion_never_replaces(store: Store) -> None:
    upload_object(store, KEY, b"hello")
    upload_id = store.create_upload(KEY, 5)
    parts = send_parts(store, KEY, upload_id, b"other")
    with pytest.raises(KeyExists):
        store.complete_upload(KEY, upload_id, parts)
    assert store.read(KEY) == b"hello"
    assert store.abort_upload(KEY, upload_id) is Outcome.GONE
    assert store.read(KEY) == b"hello"


def test_an_aborted_upload_leaves_nothing(store: Store, three_parts: bytes) -> None:
    upload_id = store.create_upload(KEY, len(three_parts))
    parts = send_parts(store, KEY, upload_id, three_parts)
    assert store.abort_upload(KEY, upload_id) is Outcome.GONE
    assert store.abort_upload(KEY, upload_id) is Outcome.ABSENT
    assert pending(store) == []
    with pytest.raises(UploadGone):
        store.complete_upload(KEY, upload_id, parts)
    with pytest.raises(UploadGone):
        store.parts(KEY, upload_id)
    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 5 * MiB, [three_parts[: 5 * MiB]])
    assert store.usage().used_bytes == 0


def test_an_unknown_upload(store: Store) -> None:
    assert store.abort_upload(KEY, NOBODYS) is Outcome.ABSENT
    with pytest.raises(UploadGone):
        store.parts(KEY, NOBODYS)
    with pytest.raises(UploadGone):
        store.write_part(KEY, NOBODYS, 1, 1, [b"x"])
    with pytest.raises(UploadGone):
        store.complete_upload(KEY, NOBODYS, [Part(1, 1)])


def test_an_upload_belongs_to_its_key(store: Store, kind: str) -> None:
    if kind.startswith("s3"):
        pytest.skip("moto finds an upload by its id alone, whatever the key")
    upload_id = store.create_upload(KEY, 5)
    send_parts(store, KEY, upload_id, b"hello")
    other = Key("demo/other")
    with pytest.raises(UploadGone):
        store.complete_upload(other, upload_id, [Part(1, 5)])
    with pytest.raises(UploadGone):
        store.write_part(other, upload_id, 1, 5, [b"other"])
    assert store.abort_upload(other, upload_id) is Outcome.ABSENT
    assert pending(store) == [(KEY, upload_id, 1, 5)]


def test_pending_uploads_are_listed_by_prefix_in_order(store: Store) -> None:
    begun = {Key(k): store.create_upload(Key(k), 1) for k in ("demo/b", "demo/a/2", "demo/a.2")}
    twice = store.create_upload(Key("demo/b"), 1)
    store.create_upload(Key("demo2/a"), 1)
    listing = store.uploads(Prefix("demo/"))
    assert not listing.complete
    found = [(upload.key, upload.upload_id) for upload in listing]
    assert listing.complete
    assert [key for key, _ in found] == ["demo/a.2", "demo/a/2", "demo/b", "demo/b"]
    assert set(found) == {*begun.items(), (Key("demo/b"), twice)}
    assert [u.key for u in store.uploads(Prefix("demo/a/"))] == ["demo/a/2"]


def test_a_whole_object_digest_is_attested_only_if_profiled(store: Store) -> None:
    upload_object(store, KEY, b"hello")
    found = store.stat(KEY)
    assert found is not None
    digest = hashlib.sha256(b"hello").hexdigest()
    if not store.profile.attests_sha256:
        assert (found.sha256, found.composite) == (None, None)
    elif store.profile.kind == "s3":  # of an upload, the digest over those of its parts
        assert (found.sha256, found.composite) == (None, composite_of([digest]))
    else:
        assert (found.sha256, found.composite) == (digest, None)


def test_parts_are_attested_as_parts_never_as_a_whole(store: Store, three_parts: bytes) -> None:
    upload_object(store, KEY, three_parts)
    found = store.stat(KEY)
    assert found is not None
    assert found.sha256 is None
    attested = store.attested_parts(KEY)
    pieces = [three_parts[at : at + 5 * MiB] for at in range(0, len(three_parts), 5 * MiB)]
    digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    if not store.profile.attests_sha256:
        assert (attested, found.composite) == (None, None)
        return
    if store.profile.kind == "s3":
        assert (attested, found.composite) == (None, composite_of(digests))
        return
    assert attested is not None
    assert [part.sha256 for part in attested] == digests
    assert [part.size_bytes for part in attested] == [len(piece) for piece in pieces]
