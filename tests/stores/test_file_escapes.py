"""Nothing leads out of a file store: no link, no trick of timing, no odd entry."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from lastgood.stores.base import (
    ForeignEntry,
    Key,
    KeyMissing,
    Outcome,
    Prefix,
    StoredObject,
    StoreError,
)
from lastgood.stores.file import FileStore
from tests.factories import send_parts, upload_object

SECRET = b"outside the store"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def link_to_file(store: FileStore, outside: Path) -> Key:
    (store.root / "demo").mkdir(exist_ok=True)
    (store.root / "demo/link").symlink_to(outside / "secret")
    return Key("demo/link")


@pytest.fixture
def link_to_folder(store: FileStore, outside: Path) -> Prefix:
    (store.root / "demo").mkdir(exist_ok=True)
    (store.root / "demo/folder").symlink_to(outside)
    return Prefix("demo/folder/")


def exchange(one: Path, other: Path) -> None:
    """Swap two names at once: renameat2 with RENAME_EXCHANGE."""
    here, both = -100, 2
    failed = ctypes.CDLL(None).renameat2(here, bytes(one), here, bytes(other), both)
    assert failed == 0


def only_secret(outside: Path) -> bool:
    return [p.name for p in outside.iterdir()] == ["secret"] and (
        (outside / "secret").read_bytes() == SECRET
    )


def test_a_link_at_the_end_is_never_read(store: FileStore, link_to_file: Key) -> None:
    found = store.stat(link_to_file)
    assert found is not None
    assert found.foreign == "symlink"
    with pytest.raises(ForeignEntry, match="symbolic link"):
        store.read(link_to_file)
    with pytest.raises(ForeignEntry), store.open(link_to_file):
        pass


def test_a_link_at_the_end_is_never_written_through(
    store: FileStore, link_to_file: Key, outside: Path
) -> None:
    with pytest.raises(StoreError):
        store.put_new(link_to_file, b"new")
    upload_id = store.create_upload(link_to_file, 3)
    parts = send_parts(store, link_to_file, upload_id, b"new")
    with pytest.raises(StoreError):
        store.complete_upload(link_to_file, upload_id, parts)
    assert only_secret(outside)


def test_a_link_in_the_middle_is_never_followed(
    store: FileStore, link_to_folder: Prefix, outside: Path
) -> None:
    inside = Key(link_to_folder + "secret")
    upload_id = store.create_upload(inside, 1)
    parts = send_parts(store, inside, upload_id, b"x")
    for attempt in (
        lambda: store.stat(inside),
        lambda: store.read(inside),
        lambda: store.attested_parts(inside),
        lambda: store.put_new(Key(link_to_folder + "new"), b"x"),
        lambda: store.put_new(Key(link_to_folder + "deep/new"), b"x"),
        lambda: store.complete_upload(inside, upload_id, parts),
        lambda: list(store.delete([StoredObject(inside, 1)])),
        lambda: list(store.list(link_to_folder)),
        lambda: store.quarantine(link_to_folder, []),
        lambda: store.quarantine(Prefix(link_to_folder + "secret/"), []),
        lambda: store.protect(link_to_folder),
        lambda: store.usage(link_to_folder),
    ):
        with pytest.raises(ForeignEntry):
            attempt()
    assert only_secret(outside)
    assert os.stat(outside).st_mode & 0o200


def test_a_link_is_listed_and_not_entered(
    store: FileStore, link_to_folder: Prefix, outside: Path
) -> None:
    store.put_new(Key("demo/a"), b"12345")
    listing = store.list(Prefix("demo/"))
    assert [(found.key, found.foreign) for found in listing] == [
        ("demo/a", None),
        ("demo/folder", "symlink"),
    ]
    assert listing.complete
    listed = sum(found.size_bytes for found in store.list(Prefix("")))
    assert store.usage().used_bytes == listed == 5 + len(os.fsencode(outside))


def test_deleting_a_link_removes_the_link(
    store: FileStore, link_to_folder: Prefix, link_to_file: Key, outside: Path
) -> None:
    outcomes = list(store.delete(list(store.list(Prefix("")))))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.GONE] * 2
    assert only_secret(outside)
    assert list(store.list(Prefix(""))) == []


def test_links_travel_with_a_quarantined_folder_unfollowed(
    store: FileStore, link_to_folder: Prefix, outside: Path
) -> None:
    store.put_new(Key("demo/a"), b"x")
    store.protect(Prefix("demo/"))
    store.quarantine(Prefix("demo/"), [])
    found = list(store.list(Prefix("demo/")))
    assert [(one.key, one.hidden, one.foreign) for one in found] == [
        ("demo/a", True, None),
        ("demo/folder", True, "symlink"),
    ]
    list(store.delete(found))
    assert only_secret(outside)


@pytest.mark.parametrize("own", [".uploads", ".quarantine", ".attested"])
def test_the_stores_own_folders_are_not_followed_either(
    store: FileStore, outside: Path, own: str
) -> None:
    (store.root / own).symlink_to(outside)

    def live() -> None:
        upload_object(store, "demo/a", b"x")
        store.quarantine(Prefix("demo/"), [])

    with pytest.raises(ForeignEntry):
        live()
    assert only_secret(outside)


@pytest.mark.parametrize("own", [".uploads", ".quarantine", ".attested"])
def test_the_stores_own_folders_are_no_keys(store: FileStore, own: str) -> None:
    with pytest.raises(StoreError, match="belongs to the store"):
        store.put_new(Key(f"{own}/a"), b"x")
    with pytest.raises(StoreError, match="belongs to the store"):
        list(store.list(Prefix(f"{own}/")))


def test_a_folder_swapped_for_a_link_at_any_moment_leads_nowhere(
    store: FileStore, outside: Path
) -> None:
    real, link = store.root / "demo", store.root / "link"
    real.mkdir()
    (real / "secret").write_bytes(b"inside")
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(real, link)

    swapper = threading.Thread(target=swap)
    swapper.start()
    refused = published = 0
    until = time.monotonic() + 60
    try:
        for number in itertools.count():
            try:
                store.put_new(Key(f"demo/{number}"), b"x")
                published += 1
            except StoreError:
                refused += 1
            try:
                assert store.read(Key("demo/secret")) == b"inside"
            except (ForeignEntry, KeyMissing):
                refused += 1
            if (published > 50 and refused > 50) or time.monotonic() > until:
                break
    finally:
        stop.set()
        swapper.join()
    assert published > 50
    assert refused > 50
    assert only_secret(outside)


def test_odd_entries_are_listed_and_deleted_but_not_opened(store: FileStore) -> None:
    (store.root / "demo").mkdir(exist_ok=True)
    os.mkfifo(store.root / "demo/fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        folder = os.open(store.root / "demo", os.O_RDONLY)
        unix.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    found = list(store.list(Prefix("demo/")))
    assert [(one.key, one.foreign) for one in found] == [
        ("demo/fifo", "fifo"),
        ("demo/socket", "socket"),
    ]
    with pytest.raises(ForeignEntry):
        store.read(Key("demo/fifo"))
    store.protect(Prefix("demo/"))
    assert {outcome.outcome for outcome in store.delete(found)} == {Outcome.GONE}
    assert not (store.root / "demo").exists()


def test_names_that_are_no_utf8_are_listed_and_deleted(store: FileStore) -> None:
    folder = os.fsencode(store.root) + b"/demo/\xe9t\xe9"
    os.makedirs(folder)
    for name in (b"\xff", b"plain"):
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY))
    store.put_new(Key("demo/z"), b"x")
    found = list(store.list(Prefix("demo/")))
    assert [(one.key, one.foreign) for one in found] == [
        ("demo/\\xe9t\\xe9/\\xff", "name-not-utf8"),
        ("demo/\\xe9t\\xe9/plain", "name-not-utf8"),
        ("demo/z", None),
    ]
    outcomes = list(store.delete(found[:2]))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.GONE] * 2
    assert [one.key for one in store.list(Prefix(""))] == ["demo/z"]


def test_of_two_names_that_look_alike_none_is_deleted(store: FileStore) -> None:
    store.put_new(Key("demo/\\xff"), b"an object")
    os.close(os.open(os.fsencode(store.root) + b"/demo/\xff", os.O_CREAT | os.O_WRONLY))
    foreign = [one for one in store.list(Prefix("demo/")) if one.foreign]
    assert [outcome.outcome for outcome in store.delete(foreign)] == [Outcome.REFUSED]
    assert store.read(Key("demo/\\xff")) == b"an object"


def test_folders_without_end_do_not_stop_a_listing(store: FileStore) -> None:
    store.put_new(Key("demo/z"), b"x")
    folder = os.open(store.root / "demo", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    listing = store.list(Prefix("demo/"))
    found = list(listing)
    assert [one.foreign for one in found] == ["folder-too-deep", None]
    assert listing.complete
    assert store.usage().used_bytes == 1


def test_a_store_may_itself_be_reached_through_a_link(tmp_path: Path, store: FileStore) -> None:
    (tmp_path / "alias").symlink_to(store.root)
    alias = FileStore("alias", tmp_path / "alias")
    alias.put_new(Key("demo/a"), b"x")
    assert store.read(Key("demo/a")) == b"x"


def test_a_store_whose_folder_is_gone_proves_no_absence(tmp_path: Path, store: FileStore) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        FileStore("other", tmp_path / "not mounted")
    store.put_new(Key("demo/a"), b"x")
    store.root.rename(tmp_path / "elsewhere")
    listing = store.list(Prefix(""))
    for attempt in (
        lambda: store.stat(Key("demo/a")),
        lambda: list(listing),
        lambda: list(store.uploads(Prefix(""))),
        lambda: store.usage(),
        lambda: list(store.delete([StoredObject(Key("demo/a"), 1)])),
        lambda: store.put_new(Key("demo/b"), b"x"),
    ):
        with pytest.raises(StoreError, match="cannot be opened"):
            attempt()
    assert not listing.complete
    assert not store.root.exists()
