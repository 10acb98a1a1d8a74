"""`lastgood hold` by selector: the time range and the metric, with an end."""

from __future__ import annotations

from datetime import timedelta

from tests.cli.conftest import CommandLine
from tests.retention.world import World


def test_a_selector_takes_a_range_of_time(world: World, lastgood: CommandLine) -> None:
    world.commit(1)
    world.advance(timedelta(minutes=5))
    since = world.now().isoformat()
    world.commit(2)
    world.advance(timedelta(minutes=5))
    until = world.now().isoformat()
    world.commit(3)
    given = ("hold", "--project", "vision", "--reason", "incident 9")

    both = lastgood(*given, "--committed-from", since, "--committed-to", until, "--json")
    later = lastgood(*given, "--committed-from", since, "--json")

    assert both.code == 0
    assert len(both.document["checkpoint_ids"]) == 1
    assert len(later.document["checkpoint_ids"]) == 2
    assert lastgood(*given, "--committed-from", "yesterday").code == 2


def test_a_selector_takes_a_workload_by_metric_until_its_end(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1, metrics={"loss": 0.9})
    world.commit(2, metrics={"loss": 0.2})
    until = (world.now() + timedelta(hours=1)).isoformat()
    given = ("hold", "--project", "vision", "--workload", "gpt", "--metric", "loss")

    placed = lastgood(*given, "--metric-to", 0.5, "--until", until, "--reason", "best", "--json")
    world.advance(timedelta(hours=2))

    assert len(placed.document["checkpoint_ids"]) == 1
    assert lastgood("holds").out.strip() == "No hold stands."


def test_a_selector_that_takes_nothing_says_so_and_what_may_be_mistyped(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1)
    given = ("hold", "--project", "vision", "--reason", "incident 9")
    mistyped = lastgood(*given, "--workload", "gtp")
    empty = lastgood(*given, "--workload", "gpt", "--step-from", 5000)
    one = lastgood(*given, "--workload", "gpt", "--step-from", 100, "--step-to", 100)
    assert "project vision has no workload 'gtp'; did you mean 'gpt'?" in mistyped.out
    assert "It takes no checkpoint yet, only what is committed later and matches." in empty.out
    assert "stands on 1 checkpoint." in one.out
    hold_id = one.out.split()[1]
    assert "on 1 checkpoint is released" in lastgood("release", hold_id, "--because", "x").out
    again = lastgood("release", hold_id, "--because", "x")
    assert again.code == 3
    assert "T" in again.err
    assert "." not in again.err.rpartition(" at ")[2].rstrip().rstrip(".")
    assert lastgood("holds", "--project", "nope").err == "lastgood: There is no project 'nope'.\n"
