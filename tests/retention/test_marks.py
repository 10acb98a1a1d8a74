"""A mark is a function of its instant and its policy."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.retention import marks, stage_history
from lastgood.flows import quarantine
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, release, retire
from lastgood.flows.policy_change import policy_diff
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import sweep
from lastgood.rules.scope import Scope
from tests.retention.world import PROJECT, World, candidates_of_mark


def candidates(world: World, mark_id: int) -> dict[int, str]:
    """The role that each candidate of a mark leaves, by copy id."""
    with world.catalog.transaction() as tx:
        return {each.copy_id: each.leaves for each in candidates_of_mark(tx, PROJECT, mark_id)}


def ids(*copies: Copy) -> set[int]:
    return {copy.copy_id for copy in copies}


def replay(world: World, at: object, policy: str | None = None) -> dict[str, object]:
    return mark.run(world.catalog, PROJECT, at=at, kind="replay", policy=policy)


def test_a_mark_names_candidates_with_the_role_that_they_leave(world: World) -> None:
    old = [world.commit(1), world.commit(2)]
    world.commit(3)
    world.commit(4)
    mark_id = world.mark()
    assert candidates(world, mark_id) == {copy.copy_id: "hot" for copy in old}


def test_replaying_an_instant_gives_the_same_digest_whatever_came_after(world: World) -> None:
    first = [world.commit(sequence) for sequence in (1, 2, 3)]
    live = mark.run(world.catalog, PROJECT)
    with world.catalog.transaction() as tx:
        at = marks.get(tx, PROJECT, live["mark_id"]).at
    world.sweep()
    world.receipt(first[2], "fail")
    world.commit(4)
    new = NewHold("incident", "oncall", "spike", "operator:ann")
    hold.place(world.catalog, world.stores, PROJECT, new, first[0].checkpoint)
    world.advance(timedelta(days=3))
    again = replay(world, at)
    assert again["digest"] == live["digest"]
    assert again["mark_id"] != live["mark_id"]
    assert replay(world, at) == again
    assert candidates(world, int(str(again["mark_id"]))) == candidates(world, live["mark_id"])


def test_a_replay_sees_nothing_that_was_recorded_after_its_instant(world: World) -> None:
    """Of every kind of fact one stands at the instant, and each is turned round after it."""
    held, seen, hidden, *_, newest = [world.commit(sequence) for sequence in range(1, 6)]
    world.commit(1, stage="sft", depends_on=[newest])
    new = NewHold("research", "lab", "ablation", "operator:ann")
    placed = hold.place(world.catalog, world.stores, PROJECT, new, held.checkpoint)
    reading = read.acquire_reader(world.catalog, world.stage_name(), seen.checkpoint, reader="eval")
    world.mark()
    world.sweep()
    assert world.state(hidden) == "quarantined"
    live = mark.run(world.catalog, PROJECT)
    with world.catalog.transaction() as tx:
        at = marks.get(tx, PROJECT, live["mark_id"]).at

    release.release(
        world.catalog, world.stores, PROJECT, placed.hold_id, because="done", actor="operator:ann"
    )
    read.end_reader(world.catalog, reading.lease)
    quarantine.undo(
        world.catalog, world.stores, hidden.checkpoint, because="needed", actor="operator:ann"
    )
    world.receipt(newest, "fail")
    world.commit(1, generation=2, resumed_from=seen)
    sft = Scope(PROJECT, "gpt", "sft")
    retire.ask(world.catalog, world.stores, sft, reason="superseded", actor="operator:ann")
    world.promote(
        {
            "roles": {"hot": {"keep": "newest", "count": 4}},
            "overrides": [
                {
                    "workloads": "gpt",
                    "stages": "sft",
                    "roles": {"steps": {"keep": "steps", "every": 7}},
                }
            ],
        }
    )
    now = mark.run(world.catalog, PROJECT)
    again = replay(world, at)

    assert now["digest"] != live["digest"]
    assert (again["digest"], again["counts"]) == (live["digest"], live["counts"])
    found = candidates(world, live["mark_id"])
    assert set(found) == ids(hidden)
    assert candidates(world, int(str(again["mark_id"]))) == found


def test_each_fact_counts_from_the_instant_of_its_recording(world: World) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]
    old = copies[0]
    states: list[tuple[object, bool]] = []

    def look(is_candidate: bool) -> None:
        states.append((world.now(), is_candidate))

    look(True)
    new = NewHold("research", "lab", "ablation", "operator:ann")
    placed = hold.place(world.catalog, world.stores, PROJECT, new, old.checkpoint)
    look(False)
    release.release(
        world.catalog,
        world.stores,
        PROJECT,
        placed.hold_id,
        because="done",
        actor="operator:ann",
    )
    look(True)
    reading = read.acquire_reader(world.catalog, world.stage_name(), old.checkpoint, reader="eval")
    look(False)
    read.end_reader(world.catalog, reading.lease)
    look(True)
    world.generation(2, resumed_from=old.checkpoint.position)
    look(False)
    world.release_writer()
    look(True)
    dependent = world.commit(1, stage="sft", depends_on=[old])
    look(False)
    world.receipt(copies[3], "fail")
    world.receipt(copies[2], "fail")
    look(False)
    assert dependent.copy_id
    for at, is_candidate in states:
        found = candidates(world, int(str(replay(world, at)["mark_id"])))
        assert (old.copy_id in found) is is_candidate, at


def test_a_hold_that_expires_counts_until_then(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    new = NewHold(
        "research", "lab", "ablation", "operator:ann", expires_at=world.now() + timedelta(hours=1)
    )
    hold.place(world.catalog, world.stores, PROJECT, new, old.checkpoint)
    assert candidates(world, world.mark()) == {}
    world.advance(timedelta(hours=1))
    assert set(candidates(world, world.mark())) == ids(old)


def test_a_replay_under_another_policy_decides_by_that_one(world: World) -> None:
    copies = [world.commit(sequence) for sequence in range(1, 6)]
    world.promote({"roles": {"hot": {"keep": "newest", "count": 4}}}, name="generous")
    at = world.now()
    in_force = replay(world, at)
    short = replay(world, at, policy="short")
    assert set(candidates(world, int(str(in_force["mark_id"])))) == ids(copies[0])
    assert set(candidates(world, int(str(short["mark_id"])))) == ids(*copies[:3])


def test_a_mark_tells_what_changed_since_the_last(world: World) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    world.mark()
    newer = world.commit(4)
    new = NewHold("incident", "oncall", "spike", "operator:ann")
    hold.place(world.catalog, world.stores, PROJECT, new, copies[0].checkpoint)
    mark_id = world.mark()
    changes = dict(
        world.owner.execute(
            "SELECT checkpoint_id, change FROM lastgood.mark_changes WHERE mark_id = %s", (mark_id,)
        ).fetchall()
    )
    assert changes == {
        copies[0].checkpoint_id: "left",
        copies[1].checkpoint_id: "entered",
        newer.checkpoint_id: "new",
    }


def test_a_replay_of_the_future_is_refused(world: World) -> None:
    world.commit(1)
    with pytest.raises(errors.InvalidInput, match="has not passed yet"):
        replay(world, world.now() + timedelta(minutes=1))


def test_nothing_is_recorded_at_or_before_an_instant_that_was_marked(world: World) -> None:
    world.commit(1)
    world.mark()
    world.set_clock(-timedelta(minutes=2))
    late = world.commit(2)
    marked = world.row("SELECT max(at) FROM lastgood.marks")[0]
    assert late.committed_at > marked


def test_an_undone_quarantine_is_as_of_its_own_instant(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    hidden_at = world.now()
    quarantine.undo(
        world.catalog,
        world.stores,
        old.checkpoint,
        because="needed",
        actor="operator:ann",
    )
    with world.catalog.transaction() as tx:
        then = stage_history.of_stage(tx, PROJECT, old.stage_id, hidden_at)
        now = stage_history.of_stage(tx, PROJECT, old.stage_id, world.now())
    assert then is not None
    assert now is not None
    assert then.history[0].quarantined
    assert now.history[0].present


def test_a_deleted_checkpoint_is_no_matter_of_retention_any_more(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=1))
    world.mark()
    world.sweep()
    planned = sweep.plan(world.catalog, PROJECT)
    assert world.state(old) == "deleted"
    assert candidates(world, world.mark()) == {}
    assert planned.to_json() | {"mark": 0, "digest": ""} == {
        "project": PROJECT,
        "mark": 0,
        "stop": None,
        "waits": None,
        "digest": "",
        "finish": [],
        "delete": [],
        "quarantine": [],
        "take_back": [],
    }


def test_another_project_is_neither_marked_nor_named(world: World) -> None:
    world.commit(1)
    world.owner.execute(
        "INSERT INTO lastgood.projects (project, owner, store, policy, config)"
        " VALUES ('speech', 't', 'local', 'short', '{}')"
    )
    mark_id = world.mark()
    with world.catalog.transaction() as tx, pytest.raises(errors.NotFound):
        marks.get(tx, "speech", mark_id)


def test_nothing_is_decided_at_a_time_that_nobody_explained(world: World) -> None:
    world.commit(1)
    before = world.mark()
    closed = world.row("SELECT last_mark_at FROM lastgood.projects")
    world.set_clock(timedelta(days=3))
    with pytest.raises(errors.ClockJump):
        world.mark()
    with pytest.raises(errors.ClockJump):
        replay(world, world.now())
    with pytest.raises(errors.ClockJump):
        policy_diff.run(world.catalog, PROJECT, "short@v1", "short@v1", actor="operator:ann")
    assert world.row("SELECT last_mark_at FROM lastgood.projects") == closed
    assert world.row("SELECT max(mark_id) FROM lastgood.marks") == (before,)
