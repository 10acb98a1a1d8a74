"""`lastgood retire`: asked for by one operator, approved by another, undone by either."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from tests.cli.conftest import CommandLine
from tests.retention.world import World

BOB = {"LASTGOOD_OPERATOR": "bob"}


def test_two_operators_retire_a_stage(world: World, lastgood: CommandLine) -> None:
    world.commit(1)
    world.release_writer()

    asked = lastgood("retire", "vision/gpt/pretrain", "--reason", "superseded", "--json")
    retirement = asked.document["retirement"]["retirement_id"]
    alone = lastgood("retire", "approve", retirement)
    approved = lastgood("retire", "approve", retirement, **BOB)
    listed = lastgood("retire", "list", "--json").document["retirements"]

    assert (asked.code, asked.document["effective_at"], asked.document["stages"]) == (0, None, 1)
    assert alone.code == 3
    assert "second operator" in alone.err
    assert approved.code == 0
    assert f"lastgood retire undo {retirement}" in approved.out
    assert [(one["state"], one["retirement"]["approved_by"]) for one in listed] == [
        ("in grace", "operator:bob")
    ]
    world.advance(timedelta(days=14))
    assert "in effect" in lastgood("retire", "list").out
    assert lastgood("retire", "undo", retirement, "--because", "late").code == 3


def test_a_retirement_is_undone_within_its_grace(world: World, lastgood: CommandLine) -> None:
    world.commit(1)
    asked = lastgood("retire", "ask", "vision/gpt", "--reason", "superseded", "--json").document
    retirement = asked["retirement"]["retirement_id"]

    undone = lastgood("retire", "undo", retirement, "--because", "needed")

    assert undone.code == 0
    assert lastgood("retire", "list").out.strip() == "Nothing is retired."
    assert "undone" in lastgood("retire", "list", "--undone").out


def test_wrong_scopes_graces_and_names_have_their_exit_codes(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1)
    given = ("--reason", "x")

    assert lastgood("retire", "vision/gpt/pretrain/1.1", *given).code == 2
    assert lastgood("retire", "vision/gpt", "--grace", "1d", *given).code == 2
    assert lastgood("retire", "vision/gpt", "--grace", "soon", *given).code == 2
    assert lastgood("retire", "vision/ghost", *given).code == 4
    assert lastgood("retire", "ghost", *given).code == 4
    assert lastgood("retire", "approve", uuid4()).code == 4
    assert lastgood("retire", "vision/gpt", "--grace", "30d", *given).code == 0
