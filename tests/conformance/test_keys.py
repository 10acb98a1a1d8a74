"""Keys are exact: never normalised, never decoded twice."""

from __future__ import annotations

import unicodedata

import pytest

from lastgood.stores.base import Key, Prefix, Store, StoreError
from tests.factories import upload_object

NFC = unicodedata.normalize("NFC", "gewichte-é")
NFD = unicodedata.normalize("NFD", "gewichte-é")

EXACT = [
    "step 10",
    "a+b",
    "100%",
    "%2F",
    "%25",
    "a%20b",
    "a&b<c>'d\"",
    "a?b#c;d=e",
    "back\\slash",
    "tab\there",
    NFC,
    NFD,
    "日本語",
    "🧊",
    ".hidden",
    "..dots",
    "trailing.",
    "~",
    "x" * 250 + "/" + "y" * 249,
]


@pytest.mark.parametrize("name", EXACT, ids=ascii)
def test_a_key_comes_back_as_it_was_given(store: Store, name: str) -> None:
    key = Key(f"demo/{name}")
    upload_object(store, key, b"bytes of " + name.encode())
    assert store.read(key) == b"bytes of " + name.encode()
    assert [found.key for found in store.list(Prefix("demo/"))] == [key]
    (found,) = store.list(Prefix("demo/"))
    assert [outcome.outcome for outcome in store.delete([found])] == ["gone"]
    assert store.stat(key) is None


def test_keys_that_look_alike_are_different_keys(store: Store) -> None:
    names = ["a%20b", "a b", "a+b", "a%2Bb", "a%2520b", NFC, NFD, "A b"]
    for name in names:
        store.put_new(Key(f"demo/{name}"), name.encode())
    assert {found.key for found in store.list(Prefix("demo/"))} == {f"demo/{n}" for n in names}
    assert [store.read(Key(f"demo/{name}")) for name in names] == [n.encode() for n in names]


def test_a_pending_upload_names_its_exact_key(store: Store) -> None:
    keys = [Key(f"demo/{name}") for name in EXACT]
    for key in keys:
        store.create_upload(key, 1)
    assert [upload.key for upload in store.uploads(Prefix("demo/"))] == sorted(keys, key=str.encode)


@pytest.mark.parametrize(
    "key",
    ["", "/", "/etc/passwd", "a//b", "a/", "./a", "a/.", "../a", "a/../b", "a\0b", "a/\udce9"],
    ids=ascii,
)
def test_a_key_that_a_store_cannot_hold_exactly_is_refused(store: Store, key: str) -> None:
    with pytest.raises(StoreError):
        store.put_new(Key(key), b"x")
    with pytest.raises(StoreError):
        store.create_upload(Key(key), 1)
    assert list(store.list(Prefix(""))) == []


@pytest.mark.parametrize("prefix", ["demo", "/", "../", "demo/../"])
def test_a_prefix_is_a_folder_below_the_store(store: Store, prefix: str) -> None:
    with pytest.raises(StoreError):
        list(store.list(Prefix(prefix)))
