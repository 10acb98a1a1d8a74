"""Shards cover every key once, whatever keys and bounds there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.shards import WHOLE, Shard, fault, partition

TEXT = st.text(
    st.sampled_from(["a", "b", "/", ".", "0", "%", "\n", "\u00e9", "\U0001f600"]), max_size=6
)


@given(bounds=st.lists(TEXT, max_size=8), keys=st.lists(TEXT.filter(bool), max_size=20))
def test_every_key_is_in_exactly_one_shard(bounds: list[str], keys: list[str]) -> None:
    shards = partition(bounds)

    assert fault(shards) is None
    for key in [*keys, *filter(None, bounds)]:
        assert [one.holds(key) for one in shards].count(True) == 1


@given(bounds=st.lists(TEXT, max_size=8), prefix=TEXT, rest=TEXT)
def test_a_folder_is_never_passed_over_that_holds_a_key_of_the_shard(
    bounds: list[str], prefix: str, rest: str
) -> None:
    for shard in partition(bounds):
        if prefix + rest and shard.holds(prefix + rest):
            assert shard.may_hold_below(prefix)


@given(bounds=st.lists(TEXT.filter(bool), min_size=2, max_size=8, unique=True), data=st.data())
def test_a_shard_that_is_lost_repeated_or_moved_is_noticed(
    bounds: list[str], data: st.DataObject
) -> None:
    shards = list(partition(bounds))
    at = data.draw(st.integers(0, len(shards) - 1))

    assert fault(shards[:at] + shards[at + 1 :]) is not None
    assert fault(shards[: at + 1] + shards[at:]) is not None
    moved = replace(shards[at], after=shards[at].after + "x")
    assert fault([*shards[:at], moved, *shards[at + 1 :]]) is not None


@pytest.mark.parametrize(
    ("shards", "reason"),
    [
        ([], "no shard"),
        ([Shard(0, "a", None)], "up to 'a'"),
        ([Shard(0, "", "a")], "after 'a'"),
        ([Shard(0, "", "b"), Shard(1, "a", None)], "not after 'b'"),
        ([Shard(0, "", "b"), Shard(1, "b", "a"), Shard(2, "a", None)], "empty"),
    ],
)
def test_what_is_wrong_is_said(shards: list[Shard], reason: str) -> None:
    assert reason in str(fault(shards))


def test_bounds_that_repeat_or_are_empty_make_no_shard() -> None:
    assert partition(["", "a/", "a/"]) == (Shard(0, "", "a/"), Shard(1, "a/", None))
    assert partition([]) == (WHOLE,)
