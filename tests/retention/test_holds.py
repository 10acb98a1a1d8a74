"""A hold stands from the moment it is answered, whatever the sweep was about to do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.flows import quarantine
from lastgood.flows.keeping import hold, release
from lastgood.flows.validation import validate
from lastgood.stores.base import Prefix
from tests.retention.world import PROJECT, World

GRACE = timedelta(hours=1)


def place(world: World, checkpoint: Copy | None = None, **changes: object) -> hold.Placed:
    values = {"kind": "incident", "owner": "oncall", "reason": "spike", "placed_by": "operator:a"}
    new = NewHold(**{**values, **changes})
    target = checkpoint.checkpoint if checkpoint else None
    return hold.place(world.catalog, world.stores, PROJECT, new, target)


@pytest.fixture
def hidden(world: World) -> Copy:
    """A copy in quarantine."""
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"
    return old


def test_a_hold_on_a_quarantined_copy_takes_it_back(world: World, hidden: Copy) -> None:
    placed = place(world, hidden)
    assert placed.undone == (hidden.copy_id,)
    assert world.state(hidden) == "present"
    assert set(world.keys(hidden).values()) == {False}
    world.advance(GRACE)
    world.mark()
    world.sweep()
    assert world.state(hidden) == "present"


def test_a_selector_takes_back_what_it_finds_in_quarantine(world: World, hidden: Copy) -> None:
    placed = place(world, selector=Selector(workload="gpt", step_to=100))
    assert placed.undone == (hidden.copy_id,)
    assert set(world.keys(hidden).values()) == {False}


def test_after_the_intent_to_delete_a_hold_comes_too_late(world: World, hidden: Copy) -> None:
    world.advance(GRACE)
    world.mark()
    world.sweep()
    assert world.state(hidden) == "deleted"
    with pytest.raises(errors.CopyGone) as refused:
        place(world, hidden)
    assert refused.value.status == 410
    with pytest.raises(errors.CopyGone):
        quarantine.undo(
            world.catalog,
            world.stores,
            hidden.checkpoint,
            because="late",
            actor="operator:a",
        )


def test_undo_within_the_grace_brings_the_bytes_back(world: World, hidden: Copy) -> None:
    back = quarantine.undo(
        world.catalog,
        world.stores,
        hidden.checkpoint,
        because="needed",
        actor="operator:a",
    )
    assert [copy.state.value for copy in back] == ["present"]
    assert set(world.keys(hidden).values()) == {False}
    assert [each.copy.copy_id for each in quarantine.listed(world.catalog, PROJECT)] == []


def test_a_mark_made_before_an_undo_does_not_count_for_it_any_more(
    world: World, hidden: Copy
) -> None:
    quarantine.undo(
        world.catalog, world.stores, hidden.checkpoint, because="needed", actor="operator:a"
    )
    told = world.sweep()
    assert world.state(hidden) == "present"
    assert "taken back after mark" in told["reasons"][str(hidden.checkpoint)]
    world.mark()
    world.sweep()
    assert world.state(hidden) == "quarantined"


def test_undo_shows_again_what_somebody_hid_in_a_store_without_versions(world: World) -> None:
    copy = world.commit(1)
    world.store.quarantine(Prefix(copy.prefix), list(world.store.list(Prefix(copy.prefix))))
    verdicts = [validate.run(world.catalog, world.stores, copy.copy_id, "checksum")["verdict"]]
    quarantine.undo(
        world.catalog, world.stores, copy.checkpoint, because="a mistake", actor="operator:a"
    )
    assert set(world.keys(copy).values()) == {False}
    verdicts.append(validate.run(world.catalog, world.stores, copy.copy_id, "checksum")["verdict"])
    assert verdicts == ["fail", "pass"]


def test_undo_of_what_is_not_in_quarantine_is_refused(world: World, hidden: Copy) -> None:
    newest = world.commit(4)
    with pytest.raises(errors.CopyState, match="present"):
        quarantine.undo(
            world.catalog,
            world.stores,
            newest.checkpoint,
            because="?",
            actor="operator:a",
        )


def test_quarantine_lists_when_each_copy_may_go(world: World, hidden: Copy) -> None:
    listed = quarantine.listed(world.catalog, PROJECT)
    assert [(each.copy.copy_id, each.deletable_at) for each in listed] == [
        (hidden.copy_id, world.copy(hidden).state_at + GRACE)
    ]


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (Selector(), [1, 2, 3, 9]),
        (Selector(workload="gpt", stage="pretrain"), [1, 2, 3]),
        (Selector(workload="other"), []),
        (Selector(step_from=200, step_to=300), [2, 3]),
        (Selector(metric="loss"), [1, 2]),
        (Selector(metric="loss", metric_to=0.5), [2]),
        (Selector(metric="loss", metric_from=0.6), [1]),
    ],
)
def test_a_selector_takes_what_it_says_now_and_at_later_commits(
    world: World, selector: Selector, taken: list[int]
) -> None:
    def commit_all(generation: int) -> list[Copy]:
        return [
            world.commit(1, generation=generation, metrics={"loss": 0.9}),
            world.commit(2, generation=generation, metrics={"loss": 0.4}),
            world.commit(3, generation=generation),
            world.commit(9, generation=generation, stage="sft"),
        ]

    before = commit_all(1)
    placed = place(world, selector=selector)
    after = commit_all(2)
    held = {
        row[0] for row in world.owner.execute("SELECT checkpoint_id FROM lastgood.hold_checkpoints")
    }
    expected = [copy for copy in before + after if copy.checkpoint.sequence in taken]
    assert held == {copy.checkpoint_id for copy in expected}
    assert len(placed.checkpoint_ids) == len(taken)


def test_a_selector_by_time_takes_commits_of_that_time(world: World) -> None:
    world.commit(1)
    world.advance(timedelta(hours=1))
    start = world.now()
    inside = world.commit(2)
    placed = place(
        world,
        selector=Selector(committed_from=start, committed_to=world.now() + timedelta(hours=1)),
    )
    world.advance(timedelta(hours=2))
    world.commit(3)
    assert placed.checkpoint_ids == (inside.checkpoint_id,)
    assert world.row("SELECT count(*) FROM lastgood.hold_checkpoints") == (1,)


def test_a_released_selector_takes_nothing_more(world: World) -> None:
    world.commit(1)
    placed = place(world, selector=Selector(workload="gpt"))
    release.release(
        world.catalog,
        world.stores,
        PROJECT,
        placed.hold_id,
        because="done",
        actor="operator:a",
    )
    world.commit(2)
    assert world.row("SELECT count(*) FROM lastgood.hold_checkpoints") == (1,)
    with pytest.raises(errors.Conflict, match="was released by operator:a"):
        release.release(
            world.catalog,
            world.stores,
            PROJECT,
            placed.hold_id,
            because="x",
            actor="operator:b",
        )
    with world.catalog.transaction() as tx:
        assert holds.standing(tx, PROJECT) == []


def test_a_legal_hold_never_expires(world: World) -> None:
    copy = world.commit(1)
    with pytest.raises(errors.InvalidInput, match="legal"):
        place(world, copy, kind="legal", expires_at=world.now() + timedelta(days=1))


def test_a_hold_that_would_be_over_at_once_is_refused(world: World) -> None:
    copy = world.commit(1)
    with pytest.raises(errors.InvalidInput, match="future"):
        place(world, copy, expires_at=world.now() - timedelta(seconds=1))


def test_a_hold_of_another_project_is_unknown(world: World) -> None:
    placed = place(world, world.commit(1))
    with world.catalog.transaction() as tx, pytest.raises(errors.NotFound):
        holds.get(tx, "speech", placed.hold_id)


def test_a_hold_is_shown_to_the_stores_before_it_is_answered(world: World) -> None:
    copy = world.commit(1)
    place(world, copy)
    newest = world.row("SELECT last_event FROM lastgood.stages")[0]
    keys = [one.key for one in world.store.list("control/stages/")]
    assert any(key.endswith(f"event/{newest:020d}") for key in keys)


@pytest.mark.parametrize(
    "ends",
    [
        {"step_from": 9, "step_to": 1},
        {"metric": "loss", "metric_from": 0.5, "metric_to": 0.4},
    ],
)
def test_a_selector_that_can_match_nothing_is_refused(ends: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput, match="none can match"):
        Selector(**ends)


@pytest.mark.parametrize(
    ("ends", "where"),
    [
        ({"metric": "loss", "metric_from": float("nan")}, "metric_from"),
        ({"metric": "loss", "metric_to": float("inf")}, "metric_to"),
        ({"metric_from": 0.5}, "metric"),
        ({"step_to": 2**63}, "step_to"),
        ({"committed_from": datetime(2026, 3, 1)}, "committed_from"),  # noqa: DTZ001
    ],
)
def test_a_selector_that_compares_with_nothing_is_refused(ends: dict[str, Any], where: str) -> None:
    with pytest.raises(errors.InvalidInput, match=rf"^{where}: "):
        Selector(**ends)
