"""One now for a project: after the clock jumped ahead and back, in whatever order things happen,
decisions follow what was recorded, and nothing that protects for a time ends before its time."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise, permutations

import pytest

from lastgood import errors
from lastgood.catalog import clock, history
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping import retirements
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.catalog.retention import marks
from lastgood.catalog.settings import policy_versions
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, retire
from lastgood.flows.retention import gate, mark, why
from lastgood.flows.sweeping import sweep
from lastgood.rules.scope import Scope
from tests.retention.world import PROJECT, World, candidates_of_mark

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def accept(world: World) -> int:
    """An operator's word for every jump that was noticed; answers how many there were."""
    with world.catalog.transaction() as tx:
        clock.read(tx)
    with world.catalog.transaction() as tx:
        waiting = clock.unaccepted(tx)
        for jump in waiting:
            clock.accept(tx, jump.jump_id, accepted_by="ann", because="looked at it")
    return len(waiting)


def sighted(world: World) -> None:
    """Let the clock be read as it stands, so that its next jump is noticed."""
    with world.catalog.transaction() as tx:
        clock.read(tx)


def jump(world: World, to: timedelta) -> None:
    """Move the clock without an explanation; everything destructive stops until it has one."""
    world.set_clock(to)
    with pytest.raises(errors.ClockJump):
        sweep.run(world.catalog, world.stores, PROJECT, "dag:test")
    with pytest.raises(errors.ClockJump):
        mark.run(world.catalog, PROJECT)
    assert accept(world) >= 1


def act(world: World, what: str) -> datetime:
    """Let it happen; answers when it was recorded."""
    last = {
        "commit": "SELECT max(recorded_at) FROM lastgood.checkpoints",
        "hold": "SELECT max(recorded_at) FROM lastgood.holds",
        "policy": "SELECT max(effective_from) FROM lastgood.policy_versions",
        "mark": "SELECT max(at) FROM lastgood.marks",
    }
    match what:
        case "commit":
            world.commit(world.row("SELECT count(*) + 1 FROM lastgood.checkpoints")[0])
        case "hold":
            new = NewHold(
                "legal", "counsel", "case", "operator:ann", selector=Selector(step_to=100)
            )
            hold.place(world.catalog, world.stores, PROJECT, new)
        case "policy":
            world.promote({"roles": {"hot": {"keep": "newest", "count": 1}}}, name="narrow")
        case "mark":
            world.mark()
            assert world.sweep()["failed"] == {}
    recorded: datetime = world.row(last[what])[0]
    return recorded


ORDERS = list(permutations(("commit", "hold", "policy", "mark")))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=() if number % 7 == 0 else pytest.mark.slow)
        for number, order in enumerate(ORDERS)
    ],
)
def test_after_a_jump_ahead_and_back_the_newest_mark_is_swept_in_whatever_order_things_happened(
    world: World, order: tuple[str, ...]
) -> None:
    for _ in range(3):
        act(world, "commit")
    sighted(world)
    jump(world, HOUR)
    moments = []
    for number, what in enumerate(order):
        if number == 2:
            jump(world, timedelta(0))
        moments.append(act(world, what))
    assert all(earlier < later for earlier, later in pairwise(moments))

    mark_id = world.mark()
    told = world.sweep()
    assert told["alerts"] == {}
    with world.catalog.transaction() as tx:
        made = marks.get(tx, PROJECT, mark_id)
        assert made.policy == policy_versions.current(tx, PROJECT).policy == "narrow"
        assert made.at <= history.project_now(tx, PROJECT)
    held, *others, newest = (world.copy(number).state.value for number in (1, 2, 3, 4))
    assert (held, newest) == ("present", "present")
    assert others == ["quarantined", "quarantined"]
    replayed = mark.run(world.catalog, PROJECT, at=made.at, kind="replay")
    assert replayed["digest"] == made.digest


@pytest.fixture
def three(world: World) -> list[Copy]:
    copies = [world.commit(number) for number in (1, 2, 3)]
    sighted(world)
    return copies


def ahead_and_back(world: World, base: timedelta = timedelta(0)) -> None:
    """A commit was recorded in the hour ahead, so the history lies there when the clock is back."""
    jump(world, base + HOUR)
    world.commit(4)
    jump(world, base)


def test_a_grace_is_not_shortened_by_a_jump_ahead_and_back(world: World, three: list[Copy]) -> None:
    world.mark()
    world.sweep()
    assert world.state(three[0]) == "quarantined"
    ahead_and_back(world)
    for minutes, state in ((59, "quarantined"), (62, "deleted")):
        world.set_clock(minutes * MINUTE)
        accept(world)
        world.mark()
        world.sweep()
        assert world.state(three[0]) == state


def test_an_age_in_the_policy_is_not_shortened_by_a_jump_ahead_and_back(
    world: World, three: list[Copy]
) -> None:
    """The hour ahead makes the mark name them; the gate asks the clock, too."""
    world.promote(
        {
            "roles": {
                "hot": {"keep": "newest", "count": 1},
                "anchor": {
                    "keep": "every",
                    "interval": "1s",
                    "within": "30m",
                    "leaves_when": "age_met",
                },
            }
        }
    )
    ahead_and_back(world)
    for minutes, state in ((20, "present"), (32, "quarantined")):
        world.set_clock(minutes * MINUTE)
        accept(world)
        mark_id = world.mark()
        with world.catalog.transaction() as tx:
            assert three[2].copy_id in {
                each.copy_id for each in candidates_of_mark(tx, PROJECT, mark_id)
            }
        world.sweep()
        assert world.state(three[2]) == state


def test_the_grace_of_a_retirement_is_not_shortened_by_a_jump_ahead_and_back(
    world: World, three: list[Copy]
) -> None:
    world.promote({"retire": {"grace": "30m", "approve": False}})
    world.release_writer()
    asked = retire.ask(
        world.catalog, world.stores, Scope(PROJECT, "gpt"), reason="over", actor="operator:ann"
    )
    jump(world, HOUR)
    with world.catalog.transaction() as tx:
        assert three[2].stage_id in retirements.in_effect(tx, PROJECT, history.now(tx))
    world.promote({"retire": {"grace": "30m", "approve": False}}, name="later")
    jump(world, timedelta(0))
    world.mark()
    world.sweep()
    assert world.state(three[2]) == "present"
    undone = retire.undo(
        world.catalog,
        world.stores,
        PROJECT,
        asked.retirement_id,
        because="a mistake",
        actor="operator:ben",
    )
    assert undone.undone_by == "operator:ben"


def test_a_lease_outlives_a_jump_ahead_that_goes_back(world: World, three: list[Copy]) -> None:
    lease = read.acquire_reader(
        world.catalog,
        world.stage_name(),
        three[0].checkpoint,
        reader="eval",
        ttl=timedelta(minutes=30),
    ).lease
    ahead_and_back(world)
    world.mark()
    world.sweep()
    assert world.state(three[0]) == "present"
    assert read.renew_reader(world.catalog, lease).live
    told = why.why(world.catalog, world.stores, three[0].checkpoint)
    assert told.copies[0].verdict is not None
    assert "no_reader" in told.copies[0].verdict.refusals


def test_what_was_looked_up_ages_by_the_clock_and_not_by_the_history(
    world: World, three: list[Copy]
) -> None:
    ahead_and_back(world)
    mark_id = world.mark()
    evidence = gate.Lookout(world.catalog, world.stores, PROJECT).evidence_for(three[0])
    with world.catalog.transaction() as tx:
        judged = gate.judge_copy(tx, PROJECT, three[0].copy_id, mark_id, evidence)
    assert judged.verdict.allowed
    world.set_clock(6 * MINUTE)
    with world.catalog.transaction() as tx:
        judged = gate.judge_copy(tx, PROJECT, three[0].copy_id, mark_id, evidence)
    assert "newer_present" in judged.verdict.unknowns
