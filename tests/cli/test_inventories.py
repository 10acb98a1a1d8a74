"""Inventories and accountings from the command line."""

from __future__ import annotations

from lastgood.stores.base import Key
from tests.cli.conftest import CommandLine
from tests.retention.world import World


def test_inventories_are_taken_listed_and_compared(world: World, lastgood: CommandLine) -> None:
    world.commit(1)

    first = lastgood("inventory", "take", "local", "--json")
    world.store.put_new(Key("checkpoints/vision/left/a"), b"u" * 41)
    second = lastgood("inventory", "take", "local", "--json")
    listed = lastgood("inventory", "--store", "local", "--json")
    names = [one.document["inventory"] for one in (first, second)]
    shown = lastgood("inventory", "diff", *names)
    unknown = lastgood("inventory", "diff", names[0], "20200101T000000Z-00000000")

    assert (first.code, first.document["source"]) == (0, "listing")
    assert [one["inventory"] for one in listed.document["inventories"]] == names[::-1]
    assert {one["state"] for one in listed.document["inventories"]} == {"completed"}
    assert shown.code == 0
    assert "checkpoints/vision/left/a" in shown.out
    assert unknown.code == 4


def test_an_operators_number_is_recorded_with_its_reason(
    world: World, lastgood: CommandLine
) -> None:
    how = ("--as-of", "2026-01-01T00:00:00Z", "--because", "the console")

    told = lastgood("accounting", "set", "local", 12345, "--replicas", 3, *how, "--json")
    later = lastgood("accounting", "set", "local", 1, "--as-of", "2999-01-01T00:00:00Z", *how[2:])
    nowhere = lastgood("accounting", "set", "ghost", 1, *how)
    shown = lastgood("accounting", "show", "local")

    assert told.code == 0
    assert told.document["number"]["size_bytes"] == 12345
    assert later.code == 2
    assert "yet to come" in later.err
    assert nowhere.code == 4
    assert "the console" in shown.out
