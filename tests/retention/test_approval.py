"""Approval of a large purge: for the copies that were shown, under one policy, and no more."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold
from lastgood.flows import quarantine, scheduled
from lastgood.flows.keeping import hold, release
from lastgood.flows.sweeping import approval, sweep
from tests.retention.world import PROJECT, World

GUARDED = {"quarantine": {"grace": "1h", "share_guard": "50%", "share_guard_min": 2}}
TINY = {"quarantine": {"grace": "1h", "share_guard": "100%", "approve_above": "1B"}}


@pytest.fixture
def many(world: World) -> list[Copy]:
    """Seven copies of which the mark gives up five, more than the share guard allows."""
    world.promote(GUARDED)
    found = [world.commit(sequence) for sequence in range(1, 8)]
    world.mark()
    return found


def _approve(world: World, digest: str | None = None) -> None:
    approval.approve_now(
        world.catalog, PROJECT, actor="operator:ann", because="looked at it", digest=digest
    )


def _hold(world: World, copy: Copy) -> UUID:
    new = NewHold("incident", "oncall", "loss spike", "operator:ann")
    return hold.place(world.catalog, world.stores, PROJECT, new, copy.checkpoint).hold_id


def _quarantined(world: World, copies: list[Copy]) -> int:
    return [world.state(copy) for copy in copies].count("quarantined")


def test_what_was_approved_is_swept_by_whoever_sweeps_next(world: World, many: list[Copy]) -> None:
    assert "5 of 7" in world.sweep()["stop"]
    _approve(world)
    told = world.sweep()
    assert (told["stop"], told["quarantined"]) == (None, 5)
    assert _quarantined(world, many) == 5


def test_an_approval_stands_under_newer_marks_that_say_the_same(
    world: World, many: list[Copy]
) -> None:
    request = approval.ask(world.catalog, sweep.plan(world.catalog, PROJECT))
    world.mark()  # while the operator looks
    approval.approve(
        world.catalog, PROJECT, request.request_id, actor="operator:ann", because="looked at it"
    )
    world.mark()  # before the sweep starts
    told = world.sweep()
    assert (told["stop"], told["quarantined"]) == (None, 5)


def test_what_a_newer_mark_kept_needs_another_approval(world: World, many: list[Copy]) -> None:
    _approve(world)
    held = _hold(world, many[0])
    world.mark()
    release.release(
        world.catalog, world.stores, PROJECT, held, because="a mistake", actor="operator:ann"
    )
    world.mark()
    told = world.sweep()
    assert (told["quarantined"], told["left"]) == (4, 1)
    assert world.state(many[0]) == "present"


def test_what_was_taken_back_needs_another_approval(world: World) -> None:
    world.promote(TINY)
    first, second = world.commit(1), world.commit(2)
    world.commit(3), world.commit(4)
    world.mark()
    _approve(world)
    assert world.sweep()["quarantined"] == 2
    quarantine.undo(
        world.catalog, world.stores, first.checkpoint, actor="operator:bob", because="needed"
    )
    world.mark()
    told = world.sweep()
    assert (told["quarantined"], told["left"]) == (0, 1)
    assert (world.state(first), world.state(second)) == ("present", "quarantined")
    _approve(world)
    assert world.sweep()["quarantined"] == 1


def test_an_approval_ends_when_the_mark_that_was_shown_is_too_old(
    world: World, many: list[Copy]
) -> None:
    request = approval.ask(world.catalog, sweep.plan(world.catalog, PROJECT))
    _approve(world)
    world.advance(timedelta(hours=3))  # gate.mark_max_age is two
    world.mark()
    told = world.sweep()
    assert (told["stop"] is not None, told["quarantined"]) == (True, 0)
    with pytest.raises(errors.Conflict, match=r"older than gate\.mark_max_age"):
        approval.approve(
            world.catalog, PROJECT, request.request_id, actor="operator:ann", because="late"
        )


def test_an_approval_does_not_count_under_another_policy(world: World, many: list[Copy]) -> None:
    _approve(world)
    for policy in ({**GUARDED, "roles": {"hot": {"keep": "newest", "count": 1}}}, GUARDED):
        world.promote(policy)
        with pytest.raises(errors.MarkNotSweepable):
            world.sweep()
    world.mark()  # the first one since, under the policy that it was approved under
    assert world.sweep()["stop"] is not None
    assert _quarantined(world, many) == 0


def test_of_a_plan_that_grew_only_what_was_shown_is_taken(world: World) -> None:
    world.promote(TINY)
    first, second = world.commit(1), world.commit(2)
    kept = [world.commit(3), world.commit(4)]
    world.mark()
    _approve(world)
    world.sweep()
    assert _quarantined(world, [first, second]) == 2

    world.advance(timedelta(hours=1))
    third = world.commit(5)
    world.mark()
    shown = sweep.plan(world.catalog, PROJECT)
    assert [copy.copy_id for copy in shown.delete] == [first.copy_id, second.copy_id]
    request = approval.ask(world.catalog, shown)
    world.owner.execute(
        "INSERT INTO lastgood.sweep_requests (project, mark_id, policy_digest, plan_digest, stop,"
        " to_quarantine, to_delete, recorded_at) SELECT project, mark_id, policy_digest, 'less',"
        " stop, to_quarantine, to_delete[1:1], recorded_at FROM lastgood.sweep_requests"
        " WHERE request_id = %s",
        (request.request_id,),
    )
    approval.approve(
        world.catalog,
        PROJECT,
        world.row("SELECT max(request_id) FROM lastgood.sweep_requests")[0],
        actor="operator:ann",
        because="the first alone",
    )
    told = world.sweep()
    assert "approve_above" in told["stop"]
    assert (world.state(first), world.state(second)) == ("deleted", "quarantined")
    assert [world.state(copy) for copy in (*kept, third)].count("deleted") == 0


def test_what_is_past_its_grace_waits_for_no_approval_of_what_is_to_be_hidden(
    world: World,
) -> None:
    world.promote(GUARDED)
    old = world.commit(1)
    world.commit(2), world.commit(3)
    world.mark()
    assert world.sweep()["quarantined"] == 1
    world.advance(timedelta(hours=1))
    many = [world.commit(sequence) for sequence in range(4, 11)]
    world.mark()
    shown = sweep.plan(world.catalog, PROJECT)
    assert "delete without approval: 1 copy" in shown.summary()
    told = world.sweep()
    assert (told["deleted"], told["quarantined"], told["left"]) == (1, 0, 7)
    assert ("7 of 10 copies" in told["stop"], world.state(old)) == (True, "deleted")
    _approve(world, digest=shown.digest)  # of what waits, and that is the same
    assert world.row("SELECT to_delete FROM lastgood.sweep_requests") == ([],)
    assert world.sweep()["quarantined"] == 7
    assert _quarantined(world, many) == 5


def test_what_is_to_be_hidden_waits_for_no_approval_of_a_large_deletion(world: World) -> None:
    first, second = world.commit(1), world.commit(2)
    above = f"{first.stored_bytes * 3 // 2}B"
    world.promote({"quarantine": {**TINY["quarantine"], "approve_above": above}})
    for sequence in (3, 4):
        world.commit(sequence)
        world.mark()
        assert world.sweep()["quarantined"] == 1
    world.advance(timedelta(hours=1))
    world.commit(5)
    world.mark()
    told = world.sweep()
    assert (told["deleted"], told["quarantined"], told["left"]) == (0, 1, 2)
    assert "it would delete 2 copies" in told["stop"]
    _approve(world)
    assert world.row("SELECT to_quarantine FROM lastgood.sweep_requests") == ([],)
    assert (world.sweep()["deleted"], world.state(second)) == (2, "deleted")


def test_an_approval_passes_no_gate(world: World, many: list[Copy]) -> None:
    _approve(world)
    world.receipt(many[-1], "fail")
    world.receipt(many[-2], "fail")
    told = world.sweep()
    assert _quarantined(world, many[-4:]) == 0
    assert told["kept"] > 0


def test_only_the_plan_that_was_shown_is_approved(world: World, many: list[Copy]) -> None:
    with pytest.raises(errors.Conflict, match="the plan has changed"):
        _approve(world, digest="0" * 64)
    shown = sweep.plan(world.catalog, PROJECT)
    world.mark()
    _approve(world, digest=shown.digest)  # the plan is the same


@pytest.mark.parametrize("now", ["kept", "another policy"])
def test_a_plan_of_which_nothing_stands_is_not_approved(
    world: World, many: list[Copy], now: str
) -> None:
    request = approval.ask(world.catalog, sweep.plan(world.catalog, PROJECT))
    if now == "kept":
        for copy in many:
            _hold(world, copy)
        world.mark()
        why = "newer marks keep every copy of it"
    else:
        world.promote({**GUARDED, "roles": {"hot": {"keep": "newest", "count": 1}}})
        why = "policy .* is in force since"
    with pytest.raises(errors.Conflict, match=f"{why}.*look at the new plan"):
        approval.approve(
            world.catalog, PROJECT, request.request_id, actor="operator:ann", because="late"
        )


def test_a_plan_that_need_not_be_approved_cannot_be(world: World) -> None:
    world.commit(1)
    world.mark()
    with pytest.raises(errors.Conflict, match="needs no approval"):
        _approve(world)


def test_the_same_plan_is_asked_for_once_and_both_records_are_append_only(
    world: World, many: list[Copy]
) -> None:
    planned = sweep.plan(world.catalog, PROJECT)
    assert approval.ask(world.catalog, planned) == approval.ask(world.catalog, planned)
    _approve(world)
    _approve(world)
    assert world.row("SELECT count(*) FROM lastgood.sweep_approvals") == (1,)
    for table in ("sweep_requests", "sweep_approvals"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            world.owner.execute(f"DELETE FROM lastgood.{table}")


def test_the_scheduler_shows_what_waits_and_records_the_answer(
    world: World, many: list[Copy], catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    (asked,) = scheduled.plans_to_approve()
    assert "5 of 7 copies" in asked["subject"]
    assert str(many[0].checkpoint) in asked["body"]
    told = scheduled.approve_plan(PROJECT, asked["request"], by="bob", because="fine")
    assert told["approved_by"] == "operator:bob"
    assert scheduled.plans_to_approve() == []
    assert scheduled.sweep_project(PROJECT)["quarantined"] == 5
