"""Every byte of a store is in exactly one line, and every disagreement has a name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.flows.inventories import tally
from lastgood.flows.inventories.accounts import Account
from lastgood.flows.inventories.explanation import Inventory, ListingUnusable
from lastgood.flows.inventories.merge import Cause
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.inventories.tally import Difference
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import EVERYTHING, Key, Prefix, StoredObject, StoreError, Usage
from lastgood.stores.file import FileStore
from lastgood.stores.listing import StreamedListing
from tests.reconcile.prepared import Prepared
from tests.reconcile.taking import take

PROJECTS = ("vision", "speech")
OBJECTS = {"model/0.bin": b"m" * 1000, "model/1.bin": b"n" * 500, "rng.bin": b"r" * 7}


def _take(catalog: Catalog, prepared: Prepared) -> Inventory:
    return take(catalog, prepared.store, accounts_for=PROJECTS, projects=PROJECTS)


def _found(taken: Inventory, cause: Cause, project: str = "vision") -> dict[str, Difference]:
    return {
        place.key_range: one
        for place, one in taken.differences.items()
        if (place.cause, place.project) == (cause, project)
    }


def _closes(taken: Inventory) -> bool:
    accounts = [taken.whole, *taken.by_project.values()]
    return all(
        one.equation.closes()
        and one.equation.sum_bytes == one.backend_bytes + sum(one.adjustments.values())
        for one in accounts
    )


def _lines(account: Account) -> dict[Line, int]:
    return {line: total.size_bytes for line, total in account.equation.totals.items()}


def test_a_store_that_agrees_has_its_bytes_in_the_lines_of_their_states(
    catalog: Catalog, prepared: Prepared
) -> None:
    present = prepared.commit(OBJECTS)
    quarantined = prepared.commit({"a": b"q" * 300}, state="quarantined")
    prepared.commit({"a": b"gone"}, state="deleted")
    prepared.attempt({"a": b"o" * 11})
    prepared.attempt({"a": b"s" * 13}, state="sealed")
    prepared.attempt({"a": b"f" * 17}, state="failed")
    prepared.attempt({"a": b"i" * 19}, lease="-1 hour")
    prepared.attempt({"a": b"b" * 23}, state="aborting")
    other = prepared.commit(OBJECTS, project="speech")

    taken = _take(catalog, prepared)

    lines = _lines(taken.by_project["vision"])
    assert lines[Line.COMMITTED] == present.stored_bytes
    assert lines[Line.QUARANTINED] == quarantined.stored_bytes
    assert lines[Line.OPEN] == 11
    assert lines[Line.SEALED] == 13
    assert lines[Line.FAILED_EVIDENCE] == 17
    assert lines[Line.INCOMPLETE] == 19 + 23
    assert lines[Line.UNEXPLAINED] == 0
    assert lines[Line.CONTROL] > 0
    assert _lines(taken.by_project["speech"])[Line.COMMITTED] == other.stored_bytes
    assert _lines(taken.whole)[Line.COMMITTED] == present.stored_bytes + other.stored_bytes
    assert not taken.differences
    assert _closes(taken)


def test_each_disagreement_is_named_with_its_bytes(catalog: Catalog, prepared: Prepared) -> None:
    healthy = prepared.commit(OBJECTS)
    missing = prepared.commit(OBJECTS)
    (prepared.root / missing.key_of("model/1.bin")).unlink()
    truncated = prepared.commit(OBJECTS)
    os.truncate(prepared.root / truncated.key_of("model/0.bin"), 400)
    closed = prepared.attempt({"late": b"l" * 31}, state="closed")
    prepared.put("checkpoints/vision/notes/readme.txt", b"u" * 41)
    prepared.put("datasets/raw/shard-0", b"d" * 43)
    prepared.put(healthy.prefix + "objects/extra", b"x" * 47)
    prepared.put("control/stages/vision/ghost/train/event/" + "0" * 20, b"g" * 53)
    (prepared.root / "link").symlink_to("/etc/hostname")
    link_bytes = (prepared.root / "link").lstat().st_size

    taken = _take(catalog, prepared)

    gone = _found(taken, Cause.MISSING)[missing.prefix]
    assert (gone.amount.size_bytes, gone.amount.objects) == (500, 1)
    assert gone.samples[0][0] == missing.key_of("model/1.bin")
    short = _found(taken, Cause.SIZE_DIFFERS)[truncated.prefix]
    assert (short.amount.size_bytes, short.in_store.size_bytes) == (1000, 400)
    assert "400 bytes, not 1000" in short.samples[0][2]
    assert _found(taken, Cause.LEFT_BEHIND)[closed.prefix].amount.size_bytes == 31
    untracked = _found(taken, Cause.UNTRACKED)
    assert untracked["checkpoints/vision/notes/"].amount.size_bytes == 41
    assert untracked[healthy.prefix].amount.size_bytes == 47
    assert _found(taken, Cause.UNTRACKED, SHARED)["datasets/raw/"].amount.size_bytes == 43
    assert _found(taken, Cause.UNKNOWN_CONTROL)["control/stages/"].amount.size_bytes == 53
    assert _found(taken, Cause.FOREIGN, SHARED)["link"].samples[0][2] == "symlink"
    assert _lines(taken.by_project["vision"])[Line.UNEXPLAINED] == 400 + 31 + 41 + 47 + 53
    assert _lines(taken.whole)[Line.UNEXPLAINED] == 400 + 31 + 41 + 47 + 53 + 43 + link_bytes
    assert _closes(taken)


def test_pending_uploads_count_by_the_state_of_their_attempt(
    catalog: Catalog, prepared: Prepared
) -> None:
    abandoned = prepared.attempt({"a": b"p" * 100}, lease="-1 hour", write=False)
    upload = prepared.store.create_upload(abandoned.key_of("a"), 100)
    prepared.store.write_part(abandoned.key_of("a"), upload, 1, 100, [b"p" * 100])
    stray = Key("checkpoints/vision/resnet/nothing")
    upload = prepared.store.create_upload(stray, 60)
    prepared.store.write_part(stray, upload, 1, 60, [b"s" * 60])

    taken = _take(catalog, prepared)

    assert _lines(taken.by_project["vision"])[Line.INCOMPLETE] == 100
    unknown = _found(taken, Cause.UNKNOWN_UPLOAD)["checkpoints/vision/resnet/"]
    assert (unknown.amount.size_bytes, unknown.in_store.size_bytes) == (60, 60)
    assert taken.uploads.objects == 2
    assert _closes(taken)


STRANGE = ["a%20b", "a+b", "a b", "\u00e9", "e\u0301", "鍵", "a#?&=b", "~x", "a\nb", 'q"q', "NULL"]


def test_strange_keys_match_exactly(catalog: Catalog, prepared: Prepared) -> None:
    for path in STRANGE:
        prepared.commit({path: b"k" * 9, "z/" + path: b"l" * 8, "z.": b"", "z!": b"!"})

    taken = _take(catalog, prepared)

    assert not taken.differences
    assert _closes(taken)


def test_a_readable_quarantined_copy_and_a_hidden_present_one_are_misplaced(
    catalog: Catalog, prepared: Prepared
) -> None:
    readable = prepared.commit(OBJECTS)
    prepared.owner.execute(
        "UPDATE copies SET state = 'quarantined' WHERE copy_id = %s", (readable.copy_id,)
    )
    hidden = prepared.commit(OBJECTS, state="quarantined")
    prepared.owner.execute(
        "UPDATE copies SET state = 'present' WHERE copy_id = %s", (hidden.copy_id,)
    )

    taken = _take(catalog, prepared)

    misplaced = _found(taken, Cause.MISPLACED)
    assert misplaced[readable.prefix].amount.size_bytes == readable.stored_bytes
    assert misplaced[hidden.prefix].samples[0][2] == "present, but hidden"
    assert taken.tally.damaged == {"vision": [hidden.prefix]}  # nobody could restore it
    assert _lines(taken.by_project["vision"])[Line.UNEXPLAINED] == 0
    assert _closes(taken)


def test_bytes_listed_twice_by_hard_links_are_an_adjustment_not_a_gap(
    catalog: Catalog, prepared: Prepared
) -> None:
    kept = prepared.commit(OBJECTS)
    os.link(prepared.root / kept.key_of("model/0.bin"), prepared.root / "linked")

    taken = _take(catalog, prepared)

    assert taken.whole.adjustments == {"hard-links": 1000}
    assert _found(taken, Cause.UNTRACKED, SHARED)["linked"].amount.size_bytes == 1000
    assert _closes(taken)


class _Interrupted(FileStore):
    """Its listing ends early without saying that nothing follows."""

    def list(self, prefix: Prefix, *, versions: bool = False) -> StreamedListing[StoredObject]:
        whole = super().list(prefix, versions=versions)
        partial = StreamedListing[StoredObject](lambda: islice(iter(whole), 2))
        return _NeverComplete.of(partial)


class _NeverComplete(StreamedListing[StoredObject]):
    @classmethod
    def of(cls, listing: StreamedListing[StoredObject]) -> _NeverComplete:
        return cls(lambda: iter(listing))

    def __iter__(self) -> Iterator[StoredObject]:
        yield from self._entries()


class _Unordered(FileStore):
    def list(self, prefix: Prefix, *, versions: bool = False) -> StreamedListing[StoredObject]:
        listed = list(super().list(prefix, versions=versions))
        return StreamedListing(lambda: iter(listed[::-1]))


class _Busy(FileStore):
    """Something happens while it is listed, after its last key was given out."""

    during: Callable[[], None] | None = None

    def list(self, prefix: Prefix, *, versions: bool = False) -> StreamedListing[StoredObject]:
        whole = super().list(prefix, versions=versions)

        def entries() -> Iterator[StoredObject]:
            yield from whole
            happening, self.during = self.during, None
            if happening is not None:
                happening()

        return StreamedListing(entries)


def _store_as(kind: type[FileStore], prepared: Prepared) -> FileStore:
    return kind("local", prepared.root)


def test_a_listing_that_ended_early_proves_nothing(catalog: Catalog, prepared: Prepared) -> None:
    prepared.commit(OBJECTS)

    with pytest.raises(ListingUnusable, match="did not finish"):
        take(catalog, _store_as(_Interrupted, prepared), projects=PROJECTS)


def test_a_listing_out_of_order_is_refused(catalog: Catalog, prepared: Prepared) -> None:
    prepared.commit(OBJECTS)

    with pytest.raises(ListingUnusable, match="out of order"):
        take(catalog, _store_as(_Unordered, prepared), projects=PROJECTS)


def test_a_folder_that_cannot_be_read_stops_the_inventory(
    catalog: Catalog, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.commit(OBJECTS)
    really = os.scandir

    def failing(path: int) -> object:
        if os.readlink(f"/proc/self/fd/{path}").endswith("objects"):
            raise PermissionError(errno.EACCES, "denied")
        return really(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(StoreError):
        take(catalog, prepared.store, projects=PROJECTS)


def test_a_store_that_shares_no_key_with_the_catalog_is_the_wrong_place(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.commit(OBJECTS)
    elsewhere = FileStore("local", tmp_path)

    with pytest.raises(ListingUnusable, match="none of its"):
        take(catalog, elsewhere, projects=PROJECTS)


def test_a_copy_committed_while_the_listing_ran_is_in_flight_not_untracked(
    catalog: Catalog, prepared: Prepared
) -> None:
    prepared.commit(OBJECTS)
    store = _store_as(_Busy, prepared)
    assert isinstance(store, _Busy)
    store.during = lambda: prepared.commit({"z": b"z" * 99}, sequence=500, age="0 seconds")

    taken = take(catalog, store, accounts_for=PROJECTS, projects=PROJECTS)

    assert not taken.differences
    assert taken.in_flight.objects > 0
    assert _lines(taken.by_project["vision"])[Line.UNEXPLAINED] == 0
    assert _closes(taken)


def test_a_copy_deleted_while_the_listing_ran_is_not_missing(
    catalog: Catalog, prepared: Prepared
) -> None:
    prepared.commit(OBJECTS, sequence=1)
    going = prepared.commit(OBJECTS, sequence=700)
    store = _store_as(_Busy, prepared)
    assert isinstance(store, _Busy)

    def delete() -> None:
        prepared.owner.execute(
            "UPDATE copies SET state = 'deleted', state_at = catalog_clock() WHERE copy_id = %s",
            (going.copy_id,),
        )
        list(store.delete(list(FileStore.list(store, Prefix(going.prefix)))))

    store.during = delete
    taken = take(catalog, store, accounts_for=PROJECTS, projects=PROJECTS)

    assert not taken.differences
    assert taken.in_flight.objects > 0
    assert _closes(taken)


def test_bytes_that_only_the_accounting_shows_are_unexplained(
    catalog: Catalog, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.commit(OBJECTS)
    really = prepared.store.usage

    def with_orphan_parts(prefix: Prefix = EVERYTHING) -> Usage:
        usage = really(prefix)
        extra = 0 if prefix.startswith("control") else 77
        return replace(usage, used_bytes=usage.used_bytes + extra)

    monkeypatch.setattr(prepared.store, "usage", with_orphan_parts)
    taken = take(catalog, prepared.store, accounts_for=["vision"], projects=PROJECTS)

    assert _found(taken, Cause.ACCOUNTING_GAP)[""].amount.size_bytes == 77
    assert _lines(taken.whole)[Line.UNEXPLAINED] == 77
    assert _closes(taken)


def test_differences_beyond_the_limit_are_gathered_more_coarsely(
    catalog: Catalog, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "PLACES_LIMIT", 3)
    for number in range(9):
        prepared.put(f"stray/{number}/file", b"12345")

    taken = _take(catalog, prepared)

    untracked = _found(taken, Cause.UNTRACKED, SHARED)
    assert list(untracked) == ["stray/0/", "stray/1/", "stray/2/", "stray/…"]
    assert sum(one.amount.size_bytes for one in untracked.values()) == 45
