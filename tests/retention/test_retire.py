"""The end of life: the only thing that lifts the floor, and everything that it does not lift."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from lastgood import errors
from lastgood.catalog.jobs import stages
from lastgood.catalog.keeping import holds, retirements
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.keeping.retirements import Retirement
from lastgood.catalog.sweeping import tombstones
from lastgood.flows import quarantine
from lastgood.flows.auditing import audit
from lastgood.flows.jobs import acquire
from lastgood.flows.keeping import hold, retire
from lastgood.flows.retention import mark
from lastgood.flows.retention.gate import Lookout, judge_copy
from lastgood.flows.sweeping import sweep
from lastgood.rules.gate import Verdict
from lastgood.rules.scope import Scope
from tests.retention import invariants
from tests.retention.world import PROJECT, World

ANN, BOB = "operator:ann", "operator:bob"
GRACE = timedelta(days=14)
QUARANTINE = timedelta(hours=1)
STAGE = Scope(PROJECT, "gpt", "pretrain")


def _asked(world: World, scope: Scope = STAGE, grace: timedelta | None = None) -> Retirement:
    return retire.ask(
        world.catalog, world.stores, scope, reason="superseded", actor=ANN, grace=grace
    )


def _retired(world: World, scope: Scope = STAGE) -> Retirement:
    """Asked for and approved; its grace runs."""
    asked = _asked(world, scope)
    return retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)


def _undo(world: World, found: Retirement) -> Retirement:
    return retire.undo(
        world.catalog,
        world.stores,
        PROJECT,
        found.retirement_id,
        because="we need it",
        actor=ANN,
    )


def _collect(world: World) -> None:
    world.mark()
    world.sweep()
    world.advance(QUARANTINE)
    world.mark()
    world.sweep()


def _ended(world: World) -> None:
    """The writer has gone, and the grace is over."""
    world.release_writer()
    world.advance(GRACE)


def _verdict(world: World, copy_id: int) -> Verdict:
    with world.catalog.transaction() as tx:
        found = tx.execute("SELECT max(mark_id) AS mark_id FROM marks").fetchone()
    assert found is not None
    evidence = Lookout(world.catalog, world.stores, PROJECT).evidence_for(world.copy(copy_id))
    with world.catalog.transaction() as tx:
        return judge_copy(tx, PROJECT, copy_id, found["mark_id"], evidence).verdict


def test_a_retired_stage_goes_down_to_its_last_copy_and_the_tombstones_name_the_retirement(
    world: World,
) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    retired = _retired(world)
    _ended(world)
    _collect(world)

    assert [world.state(copy) for copy in copies] == ["deleted"] * 3
    with world.catalog.transaction() as tx:
        chain = tombstones.of_stage(tx, PROJECT, copies[0].stage_id)
    for one in chain:
        facts = one.facts["facts"]
        assert {fact["truth"] for fact in facts.values()} == {"true"}
        for name in ("newer_passed", "newer_present", "floor_kept", "prerequisite_met"):
            assert str(retired.retirement_id) in facts[name]["evidence"]
            assert "approved by operator:bob" in facts[name]["evidence"]
    assert audit.run(world.catalog, PROJECT).breaks == []


def test_a_stage_without_any_receipt_goes_too_and_of_two_sweeps_the_later_passes_by(
    world: World,
) -> None:
    only = world.commit(1, receipt=None)
    _retired(world)
    _ended(world)
    planned = []
    for expected in ("quarantined", "deleted"):
        world.advance(QUARANTINE)
        world.mark()
        planned.append(sweep.plan(world.catalog, PROJECT))
        world.sweep()
        assert world.state(only) == expected
    assert planned[1].delete
    for plan in planned:
        told = sweep.execute(world.catalog, world.stores, plan, "dag:test")
        assert (told["failed"], told["kept"], told["deleted"]) == ({}, 0, 0)


def test_before_the_grace_is_over_the_floor_stands(world: World) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2)]
    _retired(world)
    world.release_writer()
    world.advance(GRACE - timedelta(minutes=1))
    _collect_now(world)
    assert [world.state(copy) for copy in copies] == ["present"] * 2


def _collect_now(world: World) -> None:
    world.mark()
    world.sweep()


def test_without_approval_nothing_happens_however_long_it_waits(world: World) -> None:
    only = world.commit(1)
    _asked(world)
    _ended(world)
    world.advance(GRACE)
    _collect_now(world)
    assert world.state(only) == "present"


def test_the_grace_begins_with_the_approval(world: World) -> None:
    only = world.commit(1)
    asked = _asked(world)
    _ended(world)
    approved = retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)
    assert approved.approved_at is not None
    assert approved.effective_at == approved.approved_at + GRACE
    _collect_now(world)
    assert world.state(only) == "present"


def test_who_asked_cannot_approve_and_nobody_approves_twice(world: World) -> None:
    world.commit(1)
    asked = _asked(world)
    with pytest.raises(errors.Forbidden, match="second operator"):
        retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=ANN)
    retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)
    with pytest.raises(errors.Conflict, match="already approved by operator:bob"):
        retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)


def test_a_policy_may_do_without_approval(world: World) -> None:
    world.promote({"retire": {"grace": "1d", "approve": False}})
    only = world.commit(1)
    asked = _asked(world)
    assert asked.effective_at == asked.recorded_at + timedelta(days=1)
    with pytest.raises(errors.Conflict, match="no word"):
        retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)
    world.release_writer()
    world.advance(timedelta(days=1))
    _collect(world)
    assert world.state(only) == "deleted"


def test_a_grace_can_be_lengthened_and_never_shortened(world: World) -> None:
    world.commit(1)
    with pytest.raises(errors.InvalidInput, match="only be lengthened"):
        _asked(world, grace=GRACE - timedelta(days=1))
    asked = _asked(world, grace=GRACE * 2)
    assert asked.grace_seconds == (GRACE * 2).total_seconds()


def test_an_undo_within_the_grace_keeps_everything(world: World) -> None:
    only = world.commit(1)
    retired = _retired(world)
    world.release_writer()
    world.advance(GRACE - timedelta(minutes=1))
    assert _undo(world, retired).undone_by == ANN
    world.advance(GRACE)
    _collect_now(world)
    assert world.state(only) == "present"
    with pytest.raises(errors.Conflict, match="was undone"):
        _undo(world, retired)


def test_after_the_grace_it_cannot_be_undone_but_a_hold_still_keeps(world: World) -> None:
    only = world.commit(1)
    retired = _retired(world)
    _ended(world)
    _collect_now(world)
    assert world.state(only) == "quarantined"
    with pytest.raises(errors.Conflict, match="lastgood hold"):
        _undo(world, retired)
    hold.place(
        world.catalog,
        world.stores,
        PROJECT,
        holds.NewHold("legal", "law", "case 7", ANN),
        only.checkpoint,
    )
    world.advance(QUARANTINE)
    _collect_now(world)
    assert world.state(only) == "present"


def test_an_active_generation_keeps_everything_of_a_retired_stage(world: World) -> None:
    world.generation(1, lease=GRACE * 3)
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    _retired(world)
    world.advance(GRACE)
    world.receipt(copies[-1])
    _collect_now(world)
    assert [world.state(copy) for copy in copies] == ["quarantined", "present", "present"]

    world.release_writer()
    _collect(world)
    assert [world.state(copy) for copy in copies] == ["deleted"] * 3


def test_a_writer_that_comes_back_after_the_mark_still_keeps_it(world: World) -> None:
    only = world.commit(1)
    _retired(world)
    _ended(world)
    world.mark()
    assert _verdict(world, only.copy_id).allowed
    world.owner.execute(
        "INSERT INTO lastgood.generations (stage_id, generation, project, idempotency_key, holder,"
        " fresh, recorded_at) SELECT stage_id, 2, project, 'k', 'h', true, last_recorded_at"
        " FROM lastgood.stages"
    )
    verdict = _verdict(world, only.copy_id)
    assert not verdict.allowed
    assert "no_active_generation" in verdict.refusals
    assert "floor_kept" in verdict.refusals


def test_what_another_stage_depends_on_stays(world: World) -> None:
    base = world.commit(1)
    alone = world.commit(2)
    world.commit(1, stage="sft", depends_on=[base])
    _retired(world)
    _ended(world)
    _collect(world)
    assert (world.state(base), world.state(alone)) == ("present", "deleted")


def test_a_chain_goes_as_a_whole_the_dependents_first(world: World) -> None:
    copies = [world.commit(1)]
    for sequence in range(2, 6):
        copies.append(world.commit(sequence, depends_on=[copies[-1]]))
    _retired(world)
    _ended(world)
    _collect(world)
    assert {world.state(copy) for copy in copies} == {"deleted"}
    with world.catalog.transaction() as tx:
        chain = tombstones.of_stage(tx, PROJECT, copies[0].stage_id)
    assert [one.copy_id for one in chain] == [copy.copy_id for copy in reversed(copies)]


def test_what_is_taken_back_brings_what_it_depends_on(world: World) -> None:
    base = world.commit(1)
    middle = world.commit(2, depends_on=[base])
    last = world.commit(3, depends_on=[middle])
    _retired(world)
    _ended(world)
    world.mark()
    world.sweep()
    assert {world.state(copy) for copy in (base, middle, last)} == {"quarantined"}

    taken = quarantine.undo(world.catalog, world.stores, middle.checkpoint, because="x", actor=ANN)
    assert {copy.copy_id for copy in taken} == {base.copy_id, middle.copy_id}
    assert (world.state(base), world.state(last)) == ("present", "quarantined")
    assert set(world.keys(base).values()) == {False}
    new = NewHold("legal", "counsel", "case 7", ANN)
    placed = hold.place(world.catalog, world.stores, PROJECT, new, last.checkpoint)
    assert placed.undone == (last.copy_id,)
    invariants.require(world)


@pytest.mark.parametrize("scope", [Scope(PROJECT, "gpt"), Scope(PROJECT)])
def test_a_workload_or_a_project_takes_all_its_stages_and_no_other(
    world: World, scope: Scope
) -> None:
    ours = [world.commit(1), world.commit(1, stage="sft")]
    _retired(world, scope)
    world.release_writer(stage="sft")
    _ended(world)
    with world.catalog.transaction() as tx:
        found = retirements.in_effect(tx, PROJECT, world.now())
    assert set(found) == {copy.stage_id for copy in ours}
    _collect(world)
    assert [world.state(copy) for copy in ours] == ["deleted"] * 2


def test_another_stage_of_the_workload_keeps_its_floor(world: World) -> None:
    world.commit(1)
    other = world.commit(1, stage="sft")
    _retired(world)
    world.release_writer(stage="sft")
    _ended(world)
    _collect(world)
    assert world.state(other) == "present"


def test_a_mark_of_an_earlier_instant_knows_nothing_of_a_later_retirement(world: World) -> None:
    world.commit(1)
    world.release_writer()
    world.advance(timedelta(minutes=1))
    before = world.now()
    first = mark.run(world.catalog, PROJECT, at=before, kind="replay")
    retired = _retired(world)
    world.advance(timedelta(minutes=1))
    within = world.now()
    in_grace = mark.run(world.catalog, PROJECT, at=within, kind="replay")
    _undo(world, retired)
    world.advance(GRACE)
    after_undo = mark.run(world.catalog, PROJECT, at=world.now(), kind="replay")

    assert first["counts"]["candidates"] == 0
    assert in_grace["digest"] == first["digest"] == after_undo["digest"]
    assert mark.run(world.catalog, PROJECT, at=before, kind="replay")["digest"] == first["digest"]


def test_an_undo_after_the_instant_does_not_change_what_was_decided_then(world: World) -> None:
    world.promote({"retire": {"grace": "1d", "approve": False}})
    world.commit(1)
    world.release_writer()
    short = _asked(world)
    world.advance(timedelta(days=1, minutes=1))
    at = world.now()
    before = mark.run(world.catalog, PROJECT, at=at, kind="replay")
    world.owner.execute(
        "INSERT INTO lastgood.retirement_undos VALUES (%s, 'vision', 'x', 'x',"
        " lastgood.catalog_clock())",
        (short.retirement_id,),
    )
    assert before["counts"]["candidates"] == 1
    assert mark.run(world.catalog, PROJECT, at=at, kind="replay")["digest"] == before["digest"]
    assert mark.run(world.catalog, PROJECT)["counts"]["candidates"] == 0


def test_nobody_acquires_what_is_retired_until_that_is_undone(world: World) -> None:
    world.commit(1)
    world.release_writer()
    asked = _asked(world)
    assert _acquire(world, 1) == 2
    retire.approve(world.catalog, world.stores, PROJECT, asked.retirement_id, actor=BOB)
    with pytest.raises(errors.StageRetired, match=f"lastgood retire undo {asked.retirement_id}"):
        _acquire(world, 2)
    with world.catalog.transaction() as tx:
        stage = stages.find(tx, world.stage_name())
    assert stage is not None
    assert stage.generation == 2
    _undo(world, asked)
    assert _acquire(world, 2) == 3


def test_nobody_opens_a_stage_of_a_retired_workload(world: World) -> None:
    world.commit(1)
    _retired(world, Scope(PROJECT, "gpt"))
    world.advance(GRACE)
    with pytest.raises(errors.StageRetired, match="take another stage"):
        _acquire(world, 0, stage="rlhf")
    with world.catalog.transaction() as tx:
        assert stages.find(tx, world.stage_name("rlhf")) is None


def _acquire(world: World, after: int, stage: str = "pretrain") -> int:
    request = acquire.AcquireRequest(
        world.stage_name(stage), after, str(uuid4()), "trainer", fresh=True
    )
    return acquire.acquire(world.catalog, world.stores, request).generation


def test_a_scope_is_retired_once_and_must_be_there(world: World) -> None:
    world.commit(1)
    first = _asked(world)
    with pytest.raises(errors.Conflict, match="has one already"):
        _asked(world)
    with pytest.raises(errors.NotFound):
        _asked(world, Scope(PROJECT, "gpt", "ghost"))
    _undo(world, first)
    _asked(world)


def test_retirements_are_history(world: World) -> None:
    world.commit(1)
    _undo(world, _retired(world))
    kinds = world.row(
        "SELECT array_agg(kind ORDER BY number) FROM lastgood.events WHERE kind ~ 'retire'"
    )[0]
    assert kinds == ["retirement-asked", "retirement-approved", "retirement-undone"]


def test_a_lapsed_writer_that_renews_after_the_mark_still_keeps_it(world: World) -> None:
    only = world.commit(1)
    _retired(world)
    world.advance(GRACE)
    world.mark()
    assert _verdict(world, only.copy_id).allowed
    world.owner.execute(
        "UPDATE lastgood.generation_leases"
        " SET expires_at = lastgood.catalog_clock() + interval '15 min'"
    )
    verdict = _verdict(world, only.copy_id)
    assert verdict.refusals == ("no_active_generation",)
