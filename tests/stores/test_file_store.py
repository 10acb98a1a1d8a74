"""What only a directory has: modes, inodes, holes, locks, and writers that come too late."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lastgood.stores import parts
from lastgood.stores.base import (
    AccessRefused,
    Key,
    Outcome,
    PartInvalid,
    Prefix,
    StoredObject,
    StoreError,
    UploadGone,
)
from lastgood.stores.file import FileStore
from tests.factories import send_parts, upload_object

KEY = Key("demo/run/1/7/model.safetensors")
COPY = Prefix("demo/run/1/7/")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def attested_sha256(store: FileStore) -> str | None:
    found = store.stat(KEY)
    assert found is not None
    return found.sha256


def test_a_changed_file_is_not_attested_any_more(store: FileStore) -> None:
    upload_object(store, KEY, b"hello")
    assert attested_sha256(store) == sha256(b"hello")
    (store.root / KEY).write_bytes(b"other")
    assert attested_sha256(store) is None
    assert store.attested_parts(KEY) is None


def test_a_file_put_in_place_of_another_is_not_attested(store: FileStore) -> None:
    upload_object(store, KEY, b"hello")
    before = os.stat(store.root / KEY)
    (store.root / "new").write_bytes(b"other")
    os.utime(store.root / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (store.root / "new").rename(store.root / KEY)
    assert attested_sha256(store) is None


def test_protection_keeps_the_attestation(store: FileStore) -> None:
    upload_object(store, KEY, b"hello")
    store.protect(COPY)
    assert attested_sha256(store) == sha256(b"hello")


def test_a_key_deleted_and_written_again_has_its_own_attestation(store: FileStore) -> None:
    upload_object(store, KEY, b"hello")
    list(store.delete(list(store.list(COPY))))
    assert not any(path.is_file() for path in (store.root / ".attested").rglob("*"))
    upload_object(store, KEY, b"other")
    assert attested_sha256(store) == sha256(b"other")


def test_a_hidden_object_keeps_its_attestation_while_its_key_is_used_again(
    store: FileStore,
) -> None:
    upload_object(store, KEY, b"hello")
    store.quarantine(COPY, [])
    upload_object(store, KEY, b"other")
    assert attested_sha256(store) == sha256(b"other")
    hidden = [one for one in store.list(COPY) if one.hidden]
    list(store.delete(hidden))
    assert attested_sha256(store) == sha256(b"other")


@pytest.mark.parametrize("torn", [b"", b"{", b"null", b"[]", b'{"key": 1}'])
def test_a_torn_attestation_attests_nothing(store: FileStore, torn: bytes) -> None:
    upload_object(store, KEY, b"hello")
    (record,) = [path for path in (store.root / ".attested").rglob("*") if path.is_file()]
    record.write_bytes(torn)
    assert attested_sha256(store) is None


def test_a_writer_cannot_reach_the_bytes_of_a_published_object(store: FileStore) -> None:
    upload_id = store.create_upload(KEY, 10)

    def slowly() -> Iterator[bytes]:
        yield b"late!"
        again = store.write_part(KEY, upload_id, 1, 10, [b"published!"])
        store.complete_upload(KEY, upload_id, [again])
        yield b"late!"

    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 10, slowly())
    assert store.read(KEY) == b"published!"
    assert attested_sha256(store) == sha256(b"published!")
    assert list(store.uploads(Prefix(""))) == []


def test_of_two_writers_of_a_part_the_later_one_stands_whole(store: FileStore) -> None:
    upload_id = store.create_upload(KEY, 10)

    def slowly() -> Iterator[bytes]:
        yield b"first"
        store.write_part(KEY, upload_id, 1, 10, [b"second one"])
        yield b"first"

    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 10, slowly())
    (part,) = store.parts(KEY, upload_id)
    assert part.sha256 == sha256(b"second one")
    store.complete_upload(KEY, upload_id, [part])
    assert store.read(KEY) == b"second one"


def test_many_writers_of_a_part_end_as_one_of_them(store: FileStore) -> None:
    upload_id = store.create_upload(KEY, 64 * 1000)
    start = threading.Barrier(8)

    def send(number: int) -> bool:
        start.wait()
        try:
            store.write_part(KEY, upload_id, 1, 64_000, [b"%d" % number * 1000] * 64)
        except UploadGone:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert any(pool.map(send, range(8)))
    (part,) = store.parts(KEY, upload_id)
    store.complete_upload(KEY, upload_id, [part])
    data = store.read(KEY)
    assert data in {b"%d" % number * 64_000 for number in range(8)}
    assert part.sha256 == sha256(data) == attested_sha256(store)


def test_a_part_that_is_being_sent_again_is_not_held(store: FileStore) -> None:
    upload_id = store.create_upload(KEY, 10)
    first = store.write_part(KEY, upload_id, 1, 10, [b"0123456789"])

    def slowly() -> Iterator[bytes]:
        yield b"again"
        with pytest.raises(PartInvalid):
            store.complete_upload(KEY, upload_id, [first])
        yield b"again"

    again = store.write_part(KEY, upload_id, 1, 10, slowly())
    store.complete_upload(KEY, upload_id, [again])
    assert store.read(KEY) == b"againagain"


def test_an_abort_stops_a_writer_and_leaves_nothing(store: FileStore) -> None:
    upload_id = store.create_upload(KEY, 10)

    def slowly() -> Iterator[bytes]:
        yield b"first"
        assert store.abort_upload(KEY, upload_id) is Outcome.GONE
        yield b"first"

    with pytest.raises(UploadGone):
        store.write_part(KEY, upload_id, 1, 10, slowly())
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
    assert store.usage().used_bytes == 0


def test_completion_and_abort_exclude_each_other(store: FileStore) -> None:
    for number in range(40):
        key = Key(f"demo/{number}")
        upload_id = store.create_upload(key, 1)
        sent = send_parts(store, key, upload_id, b"x")
        start = threading.Barrier(2)

        def complete(key=key, upload_id=upload_id, sent=sent, start=start) -> bool:  # type: ignore[no-untyped-def]
            start.wait()
            try:
                store.complete_upload(key, upload_id, sent)
            except UploadGone:
                return False
            return True

        def abort(key=key, upload_id=upload_id, start=start) -> Outcome:  # type: ignore[no-untyped-def]
            start.wait()
            return store.abort_upload(key, upload_id)

        with ThreadPoolExecutor(2) as pool:
            completing, aborting = pool.submit(complete), pool.submit(abort)
            published, thrown_away = completing.result(), aborting.result()
        assert published == (thrown_away is Outcome.ABSENT)
        assert (store.stat(key) is not None) == published


def test_objects_are_published_while_empty_folders_are_pruned(store: FileStore) -> None:
    def put_and_delete(number: int) -> None:
        for turn in range(30):
            key = Key(f"demo/a/b/{number}-{turn}")
            found = store.put_new(key, b"x")
            assert [one.outcome for one in store.delete([found])] == [Outcome.GONE]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_and_delete, range(4)))
    assert list(store.list(Prefix(""))) == []


def test_hard_links_are_counted_once_and_named(store: FileStore) -> None:
    upload_object(store, "demo/a", b"x" * 1000)
    (store.root / "demo/b").hardlink_to(store.root / "demo/a")
    usage = store.usage(Prefix("demo/"))
    assert usage.used_bytes == 1000
    assert usage.causes == {"hard-links": -1000}
    assert [one.size_bytes for one in store.list(Prefix("demo/"))] == [1000, 1000]


def test_allocation_is_told_apart_from_size(store: FileStore) -> None:
    (store.root / "demo").mkdir()
    with (store.root / "demo/sparse").open("wb") as file:
        file.truncate(1 << 20)
    (found,) = store.list(Prefix("demo/"))
    assert found.size_bytes == 1 << 20
    assert found.allocated_bytes == 0
    usage = store.usage()
    assert (usage.used_bytes, usage.allocated_bytes) == (1 << 20, 0)
    assert usage.total_bytes is not None
    assert usage.total_bytes > 1 << 20


def test_holes_and_torn_parts_of_uploads_are_named(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    monkeypatch.setattr(parts, "PART_STEP_BYTES", 1)
    upload_id = store.create_upload(KEY, 3000)
    store.write_part(KEY, upload_id, 3, 1000, [b"x" * 1000])
    with pytest.raises(PartInvalid):
        store.write_part(KEY, upload_id, 1, 1000, [b"y" * 500])
    usage = store.usage()
    assert usage.causes["unfinished-parts"] == 2000
    assert usage.used_bytes == 3000 + usage.causes["store-records"]
    (pending,) = store.uploads(Prefix(""))
    assert pending.part_bytes_held == 1000


def test_an_unreadable_folder_is_an_error_not_a_short_list(unprivileged: Path) -> None:
    store = FileStore("local", unprivileged)
    for name in ("a/1", "b/1", "c/1"):
        store.put_new(Key(f"demo/{name}"), b"x")
    (store.root / "demo/b").chmod(0)
    listing = store.list(Prefix("demo/"))
    seen = iter(listing)
    assert [next(seen).key, next(seen).key] == ["demo/a/1", "demo/c/1"]
    with pytest.raises(AccessRefused, match="1 folders cannot be read: 'demo/b/'"):
        next(seen)
    assert not listing.complete
    with pytest.raises(AccessRefused):
        store.usage()
    with pytest.raises(AccessRefused):
        store.stat(Key("demo/b/1"))


def test_a_refused_deletion_is_told_and_the_others_go_on(unprivileged: Path) -> None:
    store = FileStore("local", unprivileged)
    upload_object(store, "demo/a", b"x")
    (store.root / "demo/folder").mkdir()
    objects = [StoredObject(Key(f"demo/{name}"), 1) for name in ("folder", "a", "none")]
    outcomes = list(store.delete(objects))
    assert [outcome.outcome for outcome in outcomes] == [
        Outcome.REFUSED,
        Outcome.GONE,
        Outcome.ABSENT,
    ]
    assert outcomes[0].reason


def test_a_protected_copy_is_written_by_nobody_but_the_store(unprivileged: Path) -> None:
    store = FileStore("local", unprivileged, direct=True)
    folder = Path(store.direct_path(COPY))
    (folder / "shards").mkdir()
    (folder / "shards/0").write_bytes(b"bytes")
    store.protect(COPY)
    with pytest.raises(PermissionError):
        (folder / "shards/0").write_bytes(b"other")
    with pytest.raises(PermissionError):
        (folder / "shards/1").write_bytes(b"more")
    with pytest.raises(PermissionError):
        (folder / "shards/0").unlink()
    store.put_new(Key(COPY + "COMMITTED"), b"marker")
    assert not folder.stat().st_mode & 0o222
    store.quarantine(COPY, [])
    assert [one.hidden for one in store.list(COPY)] == [True, True]
    store.unquarantine(COPY, [])
    assert not folder.stat().st_mode & 0o222
    assert {one.outcome for one in store.delete(list(store.list(COPY)))} == {Outcome.GONE}
    assert not (store.root / "demo").exists()


def test_many_write_to_a_protected_folder_at_once(unprivileged: Path) -> None:
    store = FileStore("local", unprivileged)
    store.put_new(Key("demo/first"), b"x")
    store.protect(Prefix("demo/"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put_new(Key(f"demo/{n}"), b"x"), range(200)))
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(8) as pool:
        for told in pool.map(lambda one: list(store.delete([one])), store.list(Prefix("demo/"))):
            outcomes.extend(one.outcome for one in told)
    assert outcomes == [Outcome.GONE] * 201


def test_a_file_that_vanishes_is_skipped(store: FileStore) -> None:
    for name in ("a", "b", "c"):
        store.put_new(Key(f"demo/{name}"), b"x")
    listing = store.list(Prefix("demo/"))
    seen = iter(listing)
    assert next(seen).key == "demo/a"
    (store.root / "demo/b").unlink()
    assert [one.key for one in seen] == ["demo/c"]
    assert listing.complete


def test_a_listing_needs_memory_for_one_folder_at_a_time(store: FileStore) -> None:
    import tracemalloc

    for folder in range(20):
        (store.root / f"demo/{folder:02d}").mkdir(parents=True)
        for number in range(500):
            (store.root / f"demo/{folder:02d}/{number:04d}").touch()
    tracemalloc.start()
    assert sum(1 for _ in store.list(Prefix("demo/"))) == 10_000
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 500_000  # 10,000 entries kept would be some 4 MB


def test_a_full_disk_is_told(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    upload_id = store.create_upload(KEY, 5)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="No space left"):
        store.write_part(KEY, upload_id, 1, 5, [b"hello"])
    monkeypatch.undo()
    assert store.parts(KEY, upload_id) == ()


def test_quarantine_and_deletion_write_no_file(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_object(store, KEY, b"hello")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    store.quarantine(COPY, [])
    outcomes = list(store.delete(list(store.list(COPY))))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.GONE]


def test_a_job_writes_into_its_own_folder(tmp_path: Path) -> None:
    store = FileStore("local", tmp_path, direct=True)
    folder = Path(store.direct_path(COPY))
    assert folder == tmp_path / "demo/run/1/7"
    assert Path(store.direct_path(COPY)) == folder
    (folder / "shards").mkdir()
    (folder / "shards/0").write_bytes(b"bytes")
    assert store.read(Key(COPY + "shards/0")) == b"bytes"
    found = store.stat(Key(COPY + "shards/0"))
    assert found is not None
    assert found.sha256 is None


def test_a_store_that_is_not_shared_has_no_folders_for_jobs(store: FileStore) -> None:
    with pytest.raises(StoreError):
        store.direct_path(COPY)


def test_an_attempt_that_never_wrote_is_pruned(tmp_path: Path) -> None:
    store = FileStore("local", tmp_path, direct=True)
    store.put_new(Key("demo/kept"), b"x")
    (Path(store.direct_path(COPY)) / "shards").mkdir()
    store.prune(COPY)
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["kept"]
