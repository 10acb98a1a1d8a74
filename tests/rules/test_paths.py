from __future__ import annotations

import contextlib
import posixpath
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import (
    InvalidPath,
    PathAbsolute,
    PathControlCharacter,
    PathDuplicate,
    PathTooLong,
    PathTraversal,
    SizeInvalid,
)
from lastgood.rules.paths import check_object_path, check_object_paths, check_size

COMPONENTS = st.text(
    st.characters(exclude_characters="/\x7f", exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=20,
).filter(lambda component: component not in (".", ".."))
PATHS = st.lists(COMPONENTS, min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize(
    "path",
    [
        "model.safetensors",
        "rank0/model-00001-of-00002.safetensors",
        "a%2Fb",
        "a+b c",
        "back\\slash",
        "...",
        "..a/b..",
        ".hidden",
        "C:/x",
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
        "e\N{COMBINING ACUTE ACCENT}",
        "~",
        "*?",
        "x" * 255,
        "/".join(["x" * 255, "y" * 255, "z"])[:512].rstrip("/"),
    ],
)
def test_good_path_is_returned_as_it_is(path: str) -> None:
    assert check_object_path(path, "here") == path


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/etc/passwd", PathAbsolute),
        ("/", PathAbsolute),
        ("//x", PathAbsolute),
        ("..", PathTraversal),
        ("../x", PathTraversal),
        ("a/../b", PathTraversal),
        ("a/..", PathTraversal),
        (".", PathTraversal),
        ("a/./b", PathTraversal),
        ("a//b", PathTraversal),
        ("a/", PathTraversal),
        ("", PathTraversal),
        ("a\0b", PathControlCharacter),
        ("a\nb", PathControlCharacter),
        ("a\x1b[31m", PathControlCharacter),
        ("a\x7f", PathControlCharacter),
        ("x" * 256, PathTooLong),
        ("é" * 128, PathTooLong),
        ("/".join(["x" * 200] * 3), PathTooLong),
        ("x" * 2000, PathTooLong),
        ("a/" * 256 + "a", PathTooLong),
        ("a\ud800b", InvalidPath),
        (b"bytes", InvalidPath),
        (None, InvalidPath),
        (7, InvalidPath),
    ],
)
def test_hostile_path_is_refused_by_its_own_type(path: object, error: type[InvalidPath]) -> None:
    with pytest.raises(InvalidPath) as caught:
        check_object_path(path, "$.objects[3].path")
    assert type(caught.value) is error
    assert caught.value.facts["where"] == "$.objects[3].path"
    assert len(str(caught.value).encode()) < 1000


@given(st.text(alphabet="./\\a", max_size=12))
def test_an_accepted_path_stays_inside_its_folder(text: str) -> None:
    try:
        path = check_object_path(text, "here")
    except InvalidPath:
        assert text.startswith("/") or not {"", ".", ".."}.isdisjoint(text.split("/"))
    else:
        assert path == text
        assert posixpath.normpath(f"/store/objects/{path}") == f"/store/objects/{path}"


@given(st.text())
def test_any_text_is_either_returned_unchanged_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidPath):
        assert check_object_path(text, "here") == text


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "a"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["a/b/c", "a-", "a0", "a", "b"],
        ["x", "a/b", "y", "a/b/c/d"],
        ["é", unicodedata.normalize("NFD", "é")],
        ["é/x", unicodedata.normalize("NFD", "é")],
    ],
)
def test_paths_that_cannot_lie_beside_each_other_are_refused(paths: list[str]) -> None:
    with pytest.raises(PathDuplicate):
        check_object_paths(paths)


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["a", "b"],
        ["a", "ab", "a.b", "a-b/c"],
        ["a/b", "a/c", "ab/c"],
        ["a", "A"],
        ["a!", "a/b", "a0"],
    ],
)
def test_paths_that_only_look_alike_are_kept_in_order(paths: list[str]) -> None:
    assert check_object_paths(paths) == tuple(paths)


@given(st.lists(PATHS, max_size=12))
def test_duplicates_are_found_exactly_as_by_comparing_all_pairs(paths: list[str]) -> None:
    folded = [unicodedata.normalize("NFC", path) + "/" for path in paths]
    clash = any(
        one.startswith(other)
        for i, one in enumerate(folded)
        for j, other in enumerate(folded)
        if i != j
    )
    try:
        check_object_paths(paths)
    except PathDuplicate:
        assert clash
    else:
        assert not clash


def test_hundred_thousand_deep_paths_cost_little() -> None:
    paths = [f"{number}/" + "/".join("abcdefghij" * 10) for number in range(100_000)]
    assert len(check_object_paths(paths)) == 100_000


@pytest.mark.parametrize("size", [0, 1, 2**53 - 1])
def test_good_size_is_returned(size: int) -> None:
    assert check_size(size, "here") == size


@pytest.mark.parametrize("size", [-1, 2**53, True, False, 1.0, "1", None, [1], 10**4000])
def test_bad_size_is_refused(size: object) -> None:
    with pytest.raises(SizeInvalid) as caught:
        check_size(size, "$.objects[0].bytes")
    assert len(str(caught.value)) < 300
