"""A process killed at any step of any change leaves what the next call finishes or undoes."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lastgood.stores import parts
from lastgood.stores.base import Key, KeyExists, Outcome, Part, Prefix, UploadGone
from lastgood.stores.file import FileStore
from tests.factories import send_parts, upload_object
from tests.stores.crashing import killed_at

KEY = Key("demo/run/1/7/model.safetensors")
COPY = Prefix("demo/run/1/7/")
DATA = bytes(range(256)) * 10


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    monkeypatch.setattr(parts, "PART_STEP_BYTES", 100)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote: syncing would only slow hundreds of stores."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


def crashes(
    folder: Path, prepare: Callable[[FileStore], None], action: Callable[[FileStore], object]
) -> Iterator[FileStore]:
    """A fresh store for each step of the action, left as a process killed there leaves it."""
    for step in itertools.count():
        root = folder / str(step)
        root.mkdir()
        store = FileStore("local", root)
        prepare(store)
        if not killed_at(step, lambda store=store: action(store)):  # type: ignore[misc]
            assert step > 3
            return
        yield FileStore("local", root)


def files(store: FileStore) -> set[str]:
    """Every file below the root but the attestations."""
    found = {
        str(path.relative_to(store.root)) for path in store.root.rglob("*") if not path.is_dir()
    }
    return {name for name in found if not name.startswith(".attested/")}


def assert_closed(store: FileStore) -> None:
    usage = store.usage()
    listed = sum(one.size_bytes for one in store.list(Prefix("")))
    held = sum(upload.part_bytes_held for upload in store.uploads(Prefix("")))
    assert usage.used_bytes == listed + held + sum(usage.causes.values())


def only_upload(store: FileStore) -> tuple[Key, str]:
    ((key, upload_id),) = [(u.key, u.upload_id) for u in store.uploads(Prefix(""))]
    return key, upload_id


@dataclass
class Sent:
    """An upload whose parts are all there."""

    upload_id: str = ""
    parts: tuple[Part, ...] = ()

    def send(self, store: FileStore) -> None:
        upload_id = store.create_upload(KEY, len(DATA))
        self.parts = tuple(send_parts(store, KEY, upload_id, DATA))
        self.upload_id = upload_id

    def complete(self, store: FileStore) -> None:
        store.complete_upload(KEY, self.upload_id, self.parts)  # type: ignore[arg-type]


def test_completion(tmp_path: Path) -> None:
    sent = Sent()
    published_before_retry = 0
    for store in crashes(tmp_path, sent.send, sent.complete):
        assert_closed(store)
        there = store.stat(KEY)
        if there is not None:
            published_before_retry += 1
            assert store.read(KEY) == DATA
        try:
            sent.complete(store)
        except UploadGone:
            assert there is not None
        assert store.read(KEY) == DATA
        attested = store.attested_parts(KEY)
        assert attested is not None
        assert [part.sha256 for part in attested] == [part.sha256 for part in sent.parts]
        assert list(store.uploads(Prefix(""))) == []
        assert files(store) == {KEY}
        assert_closed(store)
    assert published_before_retry


def test_completion_then_abort_keeps_the_object(tmp_path: Path) -> None:
    sent = Sent()
    for store in crashes(tmp_path, sent.send, sent.complete):
        there = store.stat(KEY)
        store.abort_upload(KEY, sent.upload_id)  # type: ignore[arg-type]
        # What is left of the upload may be a further name of the published file.
        assert store.stat(KEY) == (replace(there, inode=None) if there else None)
        assert files(store) == ({KEY} if there else set())


def test_completion_then_a_late_part_changes_nothing(tmp_path: Path) -> None:
    sent = Sent()
    for store in crashes(tmp_path, sent.send, sent.complete):
        there = store.stat(KEY)
        try:
            store.write_part(KEY, sent.upload_id, 1, 1000, [b"x" * 1000])  # type: ignore[arg-type]
        except UploadGone:
            assert there is not None
        if there is not None:
            assert store.read(KEY) == DATA


def test_completion_then_quarantine_keeps_one_object(tmp_path: Path) -> None:
    sent = Sent()
    for store in crashes(tmp_path, sent.send, sent.complete):
        if store.stat(KEY) is None:
            continue
        store.quarantine(COPY, [])
        with pytest.raises(UploadGone):
            sent.complete(store)
        assert [(one.key, one.hidden) for one in store.list(Prefix(""))] == [(KEY, True)]
        assert files(store) == {f".quarantine/{KEY}"}


def test_abort(tmp_path: Path) -> None:
    sent = Sent()

    def abort(store: FileStore) -> None:
        store.abort_upload(KEY, sent.upload_id)  # type: ignore[arg-type]

    for store in crashes(tmp_path, sent.send, abort):
        assert_closed(store)
        for upload in store.uploads(Prefix("")):
            assert (upload.key, upload.upload_id) == (KEY, sent.upload_id)
            assert store.abort_upload(KEY, upload.upload_id) is Outcome.GONE
        assert store.stat(KEY) is None
        assert files(store) == set()
        assert [path.name for path in (store.root / ".uploads").iterdir()] == []


def test_an_abort_that_began_is_never_completed(tmp_path: Path) -> None:
    sent = Sent()

    def abort(store: FileStore) -> None:
        store.abort_upload(KEY, sent.upload_id)  # type: ignore[arg-type]

    for store in crashes(tmp_path, sent.send, abort):
        begun = (store.root / ".uploads" / sent.upload_id / "aborted").exists()
        if begun:
            with pytest.raises(UploadGone):
                sent.complete(store)
            assert store.stat(KEY) is None


def test_creation(tmp_path: Path) -> None:
    def create(store: FileStore) -> None:
        store.create_upload(KEY, len(DATA))

    for store in crashes(tmp_path, lambda _: None, create):
        assert_closed(store)
        for upload in store.uploads(Prefix("")):
            assert upload.key == KEY
            store.abort_upload(KEY, upload.upload_id)
        assert list(store.uploads(Prefix(""))) == []
        assert files(store) == set()
        upload_object(store, KEY, DATA)
        assert store.read(KEY) == DATA


def test_a_part(tmp_path: Path) -> None:
    def begin(store: FileStore) -> None:
        store.create_upload(KEY, len(DATA))

    def send_second(store: FileStore) -> None:
        _, upload_id = only_upload(store)
        store.write_part(KEY, upload_id, 2, 1000, [DATA[1000:1500], DATA[1500:2000]])  # type: ignore[arg-type]

    for store in crashes(tmp_path, begin, send_second):
        assert_closed(store)
        _, upload_id = only_upload(store)
        for part in store.parts(KEY, upload_id):  # type: ignore[arg-type]
            assert part == Part(2, 1000, sha256=hashlib.sha256(DATA[1000:2000]).hexdigest())
        sent = send_parts(store, KEY, upload_id, DATA)  # type: ignore[arg-type]
        store.complete_upload(KEY, upload_id, sent)  # type: ignore[arg-type]
        assert store.read(KEY) == DATA
        assert files(store) == {KEY}


def test_a_small_object(tmp_path: Path) -> None:
    for store in crashes(tmp_path, lambda _: None, lambda store: store.put_new(KEY, DATA)):
        assert_closed(store)
        there = store.stat(KEY)
        if there is not None:
            assert store.read(KEY) == DATA
            with pytest.raises(KeyExists):
                store.put_new(KEY, b"other")
        store.put_new(KEY, DATA)
        assert store.read(KEY) == DATA
        list(store.uploads(Prefix("")))
        assert files(store) == {KEY}


def copy(store: FileStore) -> None:
    for name in ("a", "b/c", "b/d"):
        upload_object(store, COPY + name, DATA)


@pytest.mark.parametrize("protected", [False, True])
def test_quarantine_and_its_undoing(tmp_path: Path, protected: bool) -> None:
    def prepare(store: FileStore) -> None:
        copy(store)
        if protected:
            store.protect(COPY)

    names = [COPY + name for name in ("a", "b/c", "b/d")]
    for store in crashes(tmp_path, prepare, lambda store: store.quarantine(COPY, [])):
        assert [one.key for one in store.list(Prefix(""))] == names
        store.quarantine(COPY, [])
        assert [(one.key, one.hidden) for one in store.list(Prefix(""))] == [
            (name, True) for name in names
        ]
        assert [p.name for p in store.root.iterdir() if p.name[0] != "."] == []
    (tmp_path / "undo").mkdir()

    def hide(store: FileStore) -> None:
        prepare(store)
        store.quarantine(COPY, [])

    for store in crashes(tmp_path / "undo", hide, lambda store: store.unquarantine(COPY, [])):
        store.unquarantine(COPY, [])
        assert [(one.key, one.hidden) for one in store.list(Prefix(""))] == [
            (name, False) for name in names
        ]
        assert [store.read(Key(name)) for name in names] == [DATA] * 3


def test_a_late_object_joining_the_quarantine(tmp_path: Path) -> None:
    def prepare(store: FileStore) -> None:
        copy(store)
        store.quarantine(COPY, [])
        upload_object(store, COPY + "b/late", DATA)
        upload_object(store, COPY + "late/e", DATA)

    names = [COPY + name for name in ("a", "b/c", "b/d", "b/late", "late/e")]
    for store in crashes(tmp_path, prepare, lambda store: store.quarantine(COPY, [])):
        assert {one.key for one in store.list(Prefix(""))} == set(names)
        store.quarantine(COPY, [])
        assert [(one.key, one.hidden) for one in store.list(Prefix(""))] == [
            (name, True) for name in names
        ]


@pytest.mark.parametrize("hide", [False, True])
def test_deletion(tmp_path: Path, hide: bool) -> None:
    def prepare(store: FileStore) -> None:
        copy(store)
        store.protect(COPY)
        if hide:
            store.quarantine(COPY, [])

    def delete(store: FileStore) -> None:
        for outcome in store.delete(list(store.list(COPY))):
            assert outcome.outcome is Outcome.GONE

    for store in crashes(tmp_path, prepare, delete):
        assert_closed(store)
        for one in store.list(COPY):
            assert one.size_bytes == len(DATA)
        delete(store)
        store.prune(COPY)
        assert files(store) == set()
        assert [p for p in (store.root / ".attested").rglob("*") if p.is_file()] == []
        assert not (store.root / "demo").exists()


def test_protection(tmp_path: Path) -> None:
    for store in crashes(tmp_path, copy, lambda store: store.protect(COPY)):
        store.protect(COPY)
        for path in (store.root / COPY).rglob("*"):
            assert not os.stat(path).st_mode & 0o222
