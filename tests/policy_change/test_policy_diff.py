"""The difference of two policies over what really happened to a project."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity_states
from lastgood.catalog.jobs import copies, copy_transitions, stage_events
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.retention import stage_history
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.cli.typed import typed_instant
from lastgood.flows.keeping import hold, retire
from lastgood.flows.policy_change import policy_diff
from lastgood.flows.retention import mark
from lastgood.rules.capacity import Standing, Use
from lastgood.rules.policy import Policy
from lastgood.rules.scope import Scope
from lastgood.rules.timeline_events import StageState
from tests.policy_change.test_as_of import HOUR, ROLES, _happens, first_hour, put_clock, replay
from tests.retention.world import POLICY, PROJECT, World, candidates_of_mark


def record(world: World, name: str, roles: dict[str, Any], **changes: Any) -> str:
    """A version that is not in force; answers its name."""
    policy = Policy.parse({**POLICY, "name": name, "roles": roles, **changes}, where="test")
    with world.catalog.transaction() as tx:
        locks.project_exclusive(tx, PROJECT)
        version, _ = policy_versions.record(
            tx, PROJECT, name, policy.digest, policy.to_json(), recorded_by="test"
        )
    return version.name


def compared(world: World, current: str, candidate: str, **options: Any) -> dict[str, Any]:
    return policy_diff.run(
        world.catalog, PROJECT, current, candidate, actor="test", **options
    ).document


@pytest.fixture
def eventful(world: World) -> tuple[World, datetime, datetime]:
    """Eight days with commits, failures, holds, readers, chains, sweeps and a stage's end, which
    waits from hour 144 to 150 for its writer."""
    world.promote(
        {
            "roles": ROLES,
            "quarantine": {"grace": "1h", "share_guard": "100%"},
            "retire": {"grace": "1d", "approve": False},
        }
    )
    began, made = first_hour(world), list[Copy]()
    began += (12 - began.hour) % 24 * HOUR  # days begin and end alike whenever this runs
    for hour in range(8 * 24):
        end = began + (hour + 1) * HOUR
        if hour % 8 == 0 or hour % 12 in (1, 7, 11) or hour == 150:
            put_clock(world, end - timedelta(minutes=10))
            if hour == 150:
                world.mark()
            _happens(world, hour, made)
        if hour in (60, 62):
            put_clock(world, end - timedelta(minutes=5))
            world.mark()
            world.sweep()
        if hour == 100:
            put_clock(world, end - timedelta(minutes=5))
            world.generation(2, resumed_from=made[-1].checkpoint.position)
            world.release_writer()
        if hour == 128:
            world.generation(2, stage="sft")
        if hour == 120:
            scope = Scope(PROJECT, "gpt", "sft")
            retire.ask(world.catalog, world.stores, scope, reason="over", actor="operator:ann")
            scope = Scope(PROJECT, "gpt", "pretrain")
            slip = retire.ask(
                world.catalog, world.stores, scope, reason="over", actor="operator:ann"
            )
            retire.undo(
                world.catalog,
                world.stores,
                PROJECT,
                slip.retirement_id,
                because="another one",
                actor="operator:ann",
            )
    last = began + 8 * 24 * HOUR
    put_clock(world, last + timedelta(minutes=1))
    return world, began, last


def test_the_pass_reads_what_marks_read_and_decides_as_they_do(
    eventful: tuple[World, datetime, datetime],
) -> None:
    world, began, last = eventful
    other = record(world, "candidate", {"hot": {"keep": "newest", "count": 1}, "w": ROLES["warm"]})
    rows: list[dict[str, Any]] = []
    told = compared(world, "short@v2", other, since=began, until=last, row=rows.append)
    sampled = random.Random(3).sample(range(told["instants"]), 24)
    list(_states(world, [began + number * HOUR for number in (*sampled, 146, 8 * 24)]))
    for number in [*sampled, told["instants"] - 1]:
        at = datetime.fromisoformat(told["curves"]["at"][number])
        for side, name in (("current", "short@v2"), ("candidate", other)):
            marked = replay(world, at, name)
            with world.catalog.transaction() as tx:
                leaving = sum(
                    one.bytes for one in candidates_of_mark(tx, PROJECT, marked["mark_id"])
                )
                existing = sum(
                    size
                    for stage in stage_history.of_project(tx, PROJECT, at)
                    for copies in stage.copies.values()
                    for _, size in copies
                )
            assert told["curves"][side][number] == existing - leaving, (at, side)
    assert told["totals"]["differing"] == len(rows) > 5
    assert told["checkpoints"] == rows


def _states(world: World, instants: Sequence[datetime]) -> Iterator[tuple[int, StageState]]:
    """Each stage as the pass sees it at each of these instants, and marks see the same."""
    with world.catalog.transaction() as tx:
        found = list(stage_events.of_project(tx, PROJECT, instants[-1]))
    for at in instants:
        for stage in found:
            state = StageState()
            for event in stage.events:
                if event.at <= at:
                    state.apply(event)
            with world.catalog.transaction() as tx:
                read = stage_history.of_stage(tx, PROJECT, stage.stage_id, at)
            assert tuple(state.history) == (read.history if read else ())
            assert read is None or state.facts() == read.facts
            yield stage.stage_id, state


def test_the_pass_sees_damage_below_a_checkpoint_as_marks_do(world: World) -> None:
    base = world.commit(1)
    middle = world.commit(2, depends_on=[base])
    last = world.commit(2, stage="sft", depends_on=[middle])
    instants = [world.now()]
    for copy, verdict in ((base, "fail"), (middle, "fail"), (base, "pass"), (middle, "pass")):
        world.advance(HOUR)
        world.receipt(copy, verdict)  # type: ignore[arg-type]
        instants.append(world.now())
    states = _states(world, instants)
    whole = [state.history[0].whole for stage_id, state in states if stage_id == last.stage_id]
    assert whole == [True, False, False, False, True]


def _another_copy(world: World, of: Copy) -> Copy:
    """A second copy, as a rebuild may find one in another store."""
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("other", "file", {}, "rack-2", "cold"))
        locks.project_shared(tx, PROJECT)
        locks.stages(tx, [of.stage_id])
        event = history.record(tx, of.stage_id, "found", actor="test", facts={})
        copy_id = copy_transitions.create(
            tx,
            checkpoint_id=of.checkpoint_id,
            store="other",
            prefix=of.prefix,
            control_bytes=7,
            objects=(),
            actor="test",
            recorded_at=event.recorded_at,
        )
        return copies.get(tx, PROJECT, copy_id)


def test_the_pass_chooses_among_the_copies_of_a_checkpoint_as_marks_do(world: World) -> None:
    first = world.commit(1)
    for sequence in (3, 2):  # the writer's newest is not the one that it committed last
        world.commit(sequence)
    instants = [world.now()]
    second = _another_copy(world, first)

    def move(copy: Copy, state: State) -> None:
        with world.catalog.transaction() as tx:
            locks.project_shared(tx, PROJECT)
            locks.stages(tx, [copy.stage_id])
            locks.copies(tx, [copy.copy_id])
            now = copies.get(tx, PROJECT, copy.copy_id)
            copy_transitions.transition(
                tx, now, state, actor="test", reason="", mark_id=None, facts={}
            )

    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: world.receipt(second, "pass", "restore"),
        lambda: world.receipt(first, "inconclusive"),
        lambda: world.receipt(first, "fail"),
        lambda: world.receipt(first, "inconclusive"),
        lambda: move(second, State.QUARANTINED),
        lambda: move(first, State.QUARANTINED),
        lambda: move(first, State.DELETING),
        lambda: move(second, State.PRESENT),
    ]
    for step in steps:
        step()
        instants.append(world.now())
    found = [
        (one.sound, one.present, state.bytes_of[one.position])
        for _, state in _states(world, instants)
        for one in state.history[:1]
    ]
    one, two = first.stored_bytes, second.stored_bytes
    assert found == [
        (True, True, one),
        (True, True, one + two),
        (True, True, one + two),
        (True, True, one + two),
        (True, True, one + two),  # the failed copy takes no part while the other is sound
        (True, True, one + two),
        (False, True, one + two),  # present before quarantined, though it failed
        (True, False, one + two),
        (True, False, two),
        (True, True, two),
    ]


def test_the_pass_sees_since_when_a_project_is_pressed_as_marks_do(world: World) -> None:
    world.commit(1)
    policy, instants = world.promote({"roles": ROLES}), [world.now()]
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("other", "file", {}, "rack-2", "cold"))
    for store, used in (
        ("local", 80),
        ("local", 90),
        ("other", 80),
        ("local", 10),
        ("local", 80),
        ("other", 10),
        ("local", 10),
    ):
        use = Use(committed_bytes=used, in_flight_bytes=0)
        standing = Standing.of(policy.capacity, own=use, whole=use, total_bytes=100, peak_bytes=0)
        with world.catalog.transaction() as tx:
            locks.project_shared(tx, PROJECT)
            capacity_states.record(
                tx, PROJECT, store, standing, cause="a test", proof_id=None, actor="test"
            )
        instants.append(world.now())
    since = [state.pressed_since for _, state in _states(world, instants)]
    first_seen = [None if at is None else since.index(at) for at in since]
    assert first_seen == [None, 1, 1, 1, 4, 4, 6, None]


def test_it_says_what_could_not_be_gone_back_to(world: World) -> None:
    began = first_hour(world)
    made = []
    for day in range(6):
        put_clock(world, began + timedelta(days=day))
        made.append(world.commit(day + 1))
    world.promote({"roles": {"all": {"keep": "newest", "count": 6}}})
    few = record(world, "few", {"ends": {"keep": "newest", "count": 2}})
    new = NewHold("research", "lab", "look", "operator:ann")
    placed = hold.place(world.catalog, world.stores, PROJECT, new, made[0].checkpoint)
    put_clock(world, began + timedelta(days=5, hours=1))
    told = compared(world, "short@v2", few, detection=timedelta(days=10))
    stage = told["stages"][0]
    assert stage["current"]["largest_gap_seconds"] == pytest.approx(86_400, abs=60)
    assert stage["candidate"]["largest_gap_seconds"] == pytest.approx(4 * 86_400, abs=60)
    assert (stage["lost"], stage["candidate"]["kept"], stage["current"]["kept"]) == (3, 3, 6)
    assert stage["candidate"]["oldest"] == made[0].committed_at.isoformat()
    assert told["overriding"] == {"hold": 1, "holds": [str(placed.hold_id)]}
    assert told["totals"]["candidate"]["stages_with_nothing_older_than_detection"] == 1
    sweep = told["first_sweep"]
    assert [one["checkpoint"] for one in sweep["listed"]] == [str(c.checkpoint) for c in made[1:4]]
    assert sweep["bytes"] == sum(copy.stored_bytes for copy in made[1:4])
    assert sweep["copies"] == sweep["kept_by_current"] == 3

    world.promote({"roles": {"ends": {"keep": "newest", "count": 2}}})
    world.mark()
    world.sweep()
    told = compared(world, "short@v3", "short@v2")  # what it would be to go back
    stage = told["stages"][0]
    assert stage["candidate"]["largest_gap_seconds"] == pytest.approx(86_400, abs=60)
    assert (stage["lost"], told["first_sweep"]["taken_back"]) == (0, 3)
    assert compared(world, "short@v3", few)["first_sweep"]["listed"] == []  # it is taken already


def test_a_checkpoint_is_told_with_when_each_policy_gave_it_up(world: World) -> None:
    began = first_hour(world)
    for hour in range(4):
        put_clock(world, began + hour * HOUR - timedelta(minutes=1))
        world.commit(hour + 1)
    put_clock(world, began + 5 * HOUR)
    world.promote({"roles": {"a": {"keep": "newest", "count": 3}}})
    two = record(world, "two", {"a": {"keep": "newest", "count": 2}})
    told = compared(world, "short@v2", two, since=began, until=began + 4 * HOUR)
    at = [(began + hour * HOUR).isoformat() for hour in range(5)]
    assert [
        (one["checkpoint"][-3:], one["current"], one["candidate"]) for one in told["checkpoints"]
    ] == [
        ("1.1", [[at[0], at[3]]], [[at[0], at[2]]]),
        ("1.2", [[at[1]]], [[at[1], at[3]]]),
    ]


def test_files_and_versions_are_compared_and_what_is_wrong_is_named(
    world: World, tmp_path: Path
) -> None:
    world.commit(1)
    file = tmp_path / "wide.yaml"
    file.write_text("name: wide\nroles: {hot: {keep: newest, count: 9}}\n")
    told = compared(world, "short@v1", str(file))
    assert told["candidate"]["name"] == "wide.yaml"
    world.promote({"roles": {"hot": {"keep": "newest", "count": 3}}})
    told = compared(world, "short@v1", "short")
    assert (told["current"]["name"], told["candidate"]["name"]) == ("short@v1", "short@v2")
    with pytest.raises(errors.InvalidInput, match=r"both are short@v2; a name without a number"):
        compared(world, "short", "short@v2")
    with pytest.raises(errors.NotFound, match="candidate@v7"):
        compared(world, "short@v1", "candidate@v7")
    with pytest.raises(errors.InvalidInput, match="not a file"):
        compared(world, "short@v1", str(tmp_path / "none.yaml"))
    with pytest.raises(errors.InvalidInput, match="later than --to"):
        compared(world, "short@v1", str(file), since=world.now() + HOUR)
    with pytest.raises(errors.InvalidInput, match="window of at most 400d"):
        compared(world, "short@v1", str(file), since=world.now() - timedelta(days=401))
    with pytest.raises(errors.InvalidInput, match=r"--to: .* has not passed yet"):
        compared(world, "short@v1", str(file), until=world.now() + HOUR)
    with pytest.raises(errors.InvalidInput, match="--to: give an instant from 1970 on"):
        compared(world, "short@v1", str(file), until=datetime(1, 1, 2, tzinfo=UTC))
    with pytest.raises(errors.InvalidInput, match="is not an instant with its zone"):
        typed_instant("0001-01-01T00:00:00+14:00", "--from")  # before all that UTC has


def test_a_difference_changes_nothing_that_a_mark_decides(world: World) -> None:
    for sequence in (1, 2, 3):
        world.commit(sequence)
    before = mark.run(world.catalog, PROJECT)
    one = record(world, "one", {"a": {"keep": "newest", "count": 1}})
    compared(world, "short@v1", one)
    after = mark.run(world.catalog, PROJECT)
    assert (after["digest"], after["policy"]) == (before["digest"], before["policy"])
