"""A power cut right after a file store answered: what it said is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.stores import parts
from lastgood.stores.base import Key, Outcome, Prefix
from lastgood.stores.file import FileStore
from tests.factories import send_parts, upload_object
from tests.power.conftest import AfterCut
from tests.power.disk import Disk

KEY = Key("demo/run/1/7/layer 1/model.safetensors")
COPY = Prefix("demo/run/1/7/")
DATA = bytes(range(256)) * 1_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 100_000)
    monkeypatch.setattr(parts, "PART_STEP_BYTES", 1_000)


@pytest.fixture
def store(disk: Disk) -> FileStore:
    return opened(disk.folder)


def opened(folder: Path) -> FileStore:
    root = folder / "store"
    root.mkdir(exist_ok=True)
    return FileStore("local", root)


def test_what_nobody_synced_is_lost(disk: Disk, after_cut: AfterCut) -> None:
    """Or else these tests could not fail."""
    (disk.folder / "unsynced").write_bytes(DATA)

    with after_cut() as left:
        assert not (left / "unsynced").exists()


def test_a_small_object_is_there(store: FileStore, after_cut: AfterCut) -> None:
    store.put_new(KEY, DATA)

    with after_cut() as left:
        assert opened(left).read(KEY) == DATA


def test_a_part_that_was_taken_is_whole_or_unknown(
    store: FileStore, disk: Disk, after_cut: AfterCut
) -> None:
    """An upload need not outlive the cut: it is only begun again."""
    upload_id = store.create_upload(KEY, len(DATA))
    disk.sync()
    sent = send_parts(store, KEY, upload_id, DATA)

    with after_cut() as left:
        held = opened(left).parts(KEY, upload_id)
        assert set(held) <= set(sent)
        for part in sent:
            if part not in held:
                again = DATA[(part.number - 1) * 100_000 :][: part.size_bytes]
                opened(left).write_part(KEY, upload_id, part.number, part.size_bytes, [again])
        opened(left).complete_upload(KEY, upload_id, sent)
        assert opened(left).read(KEY) == DATA


def test_a_completed_upload_is_there_and_nothing_false_is_attested(
    store: FileStore, after_cut: AfterCut
) -> None:
    """What is attested may be lost: then the bytes are read."""
    upload_object(store, KEY, DATA)

    with after_cut() as left:
        assert opened(left).read(KEY) == DATA
        assert opened(left).attested_parts(KEY) in (None, store.attested_parts(KEY))


def test_an_aborted_upload_is_gone(store: FileStore, disk: Disk, after_cut: AfterCut) -> None:
    upload_id = store.create_upload(KEY, len(DATA))
    send_parts(store, KEY, upload_id, DATA)
    disk.sync()
    assert store.abort_upload(KEY, upload_id) is Outcome.GONE

    with after_cut() as left:
        assert list(opened(left).uploads(COPY)) == []
        assert not any((left / "store" / ".uploads").glob("*/*"))


def test_a_quarantined_copy_stays_hidden_and_comes_back(
    store: FileStore, after_cut: AfterCut
) -> None:
    there = upload_object(store, KEY, DATA)
    store.quarantine(COPY, [there])

    with after_cut() as left:
        assert opened(left).stat(KEY) is None
        assert [one.hidden for one in opened(left).list(COPY)] == [True]

    store.unquarantine(COPY, list(store.list(COPY)))

    with after_cut() as left:
        assert opened(left).read(KEY) == DATA


@pytest.mark.parametrize("is_hidden", [False, True])
def test_what_is_gone_does_not_come_back(
    store: FileStore, after_cut: AfterCut, *, is_hidden: bool
) -> None:
    there = upload_object(store, KEY, DATA)
    with after_cut() as left:
        assert opened(left).stat(KEY) == there
    if is_hidden:
        store.quarantine(COPY, [there])
    outcomes = [one.outcome for one in store.delete(list(store.list(COPY)))]
    assert outcomes == [Outcome.GONE]

    with after_cut() as left:
        assert list(opened(left).list(COPY)) == []
        assert opened(left).attested_parts(KEY) is None
