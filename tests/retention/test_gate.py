"""Every single fact of the gate keeps a copy, at both steps, where it is false or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.catalog.retention import gate_facts
from lastgood.flows import quarantine
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, release
from lastgood.flows.retention import mark, why
from lastgood.flows.sweeping import sweep
from lastgood.rules import layout
from lastgood.rules.gate import Fact, GateFacts
from lastgood.stores.base import Key, Prefix, Store, StoreError
from tests.retention.world import PROJECT, World

FACTS = [field.name for field in fields(GateFacts)]
GRACE = timedelta(hours=1)


@pytest.fixture
def three(world: World) -> list[Copy]:
    """Three validated checkpoints, the oldest of which no role selects."""
    return [world.commit(sequence) for sequence in (1, 2, 3)]


@pytest.mark.parametrize("step", ["quarantine", "deletion"])
@pytest.mark.parametrize("value", [False, None])
@pytest.mark.parametrize("name", FACTS)
def test_no_copy_passes_with_one_fact_that_is_not_true(
    world: World,
    three: list[Copy],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: bool | None,
    step: str,
) -> None:
    world.mark()
    if step == "deletion":
        world.sweep()
        world.advance(GRACE)
        world.mark()
    gather = gate_facts.gather

    def spoiled(*args: Any) -> GateFacts:
        return replace(gather(*args), **{name: Fact.of(value, "spoiled")})

    monkeypatch.setattr(gate_facts, "gather", spoiled)
    told = world.sweep()
    expected = (
        "present"
        if step == "quarantine" or (name, value) == ("roles_released", False)
        else "quarantined"
    )
    assert world.state(three[0]) == expected
    assert name in told["reasons"][str(three[0].checkpoint)]
    assert bool(told["alerts"]) is (value is None)


def _hold(world: World, copy: Copy) -> UUID:
    new = NewHold("incident", "oncall", "loss spike", "operator:ann")
    return hold.place(world.catalog, world.stores, PROJECT, new, copy.checkpoint).hold_id


def _hold_by_selector(world: World, copy: Copy) -> None:
    selector = Selector(workload="gpt", step_to=copy.step)
    new = NewHold("legal", "counsel", "case 7", "operator:ann", selector=selector)
    hold.place(world.catalog, world.stores, PROJECT, new)


def _read(world: World, copy: Copy) -> None:
    read.acquire_reader(world.catalog, world.stage_name(), copy.checkpoint, reader="eval")


def _resume(world: World, copy: Copy) -> None:
    world.generation(2, resumed_from=copy.checkpoint.position)


def _depend(world: World, copy: Copy) -> None:
    world.commit(9, depends_on=[copy], stage="sft")


def _seal_a_dependent(world: World, copy: Copy) -> None:
    attempt = world.prepare(9, {"a": b"x"}, stage="sft", kind="incremental")
    world.owner.execute(
        "UPDATE lastgood.attempts SET state = 'sealed', manifest = %s WHERE attempt_id = %s",
        (f'{{"dependencies": ["{copy.manifest}"]}}'.encode(), attempt.attempt_id),
    )


def _fail_the_newest(world: World, copy: Copy) -> None:
    newest = world.row("SELECT max(copy_id) FROM lastgood.copies")[0]
    world.receipt(world.copy(newest), "fail")


def _lose_markers_of_newer(world: World, copy: Copy) -> None:
    for (prefix,) in world.owner.execute(
        "SELECT prefix FROM lastgood.copies WHERE copy_id > %s", (copy.copy_id,)
    ):
        marker = world.store.stat(Key(layout.marker_key(prefix)))
        assert marker is not None
        list(world.store.delete([marker]))


def _lose_an_object_of_newer(world: World, copy: Copy) -> None:
    for (prefix,) in world.owner.execute(
        "SELECT prefix FROM lastgood.copies WHERE copy_id > %s", (copy.copy_id,)
    ):
        objects = Prefix(f"{prefix}{layout.OBJECTS_NAME}")
        list(world.store.delete(list(world.store.list(objects))[:1]))


def _record_a_jump(world: World, copy: Copy) -> None:
    world.owner.execute(
        "INSERT INTO lastgood.clock_jumps (observed_at, jump_seconds, boot_id)"
        " VALUES (now(), 900, 'b')"
    )


def _show_a_later_event(world: World, copy: Copy) -> None:
    world.store.put_new(Key(layout.event_key(world.stage_name(), 999)), b'{"facts": {}}')


def _mark_while_held(world: World, copy: Copy) -> None:
    placed = _hold(world, copy)
    world.mark()
    release.release(
        world.catalog, world.stores, PROJECT, placed, because="a mistake", actor="operator:ann"
    )


def _mark_while_held_and_again(world: World, copy: Copy) -> None:
    _mark_while_held(world, copy)
    world.mark()


def _promote_and_roll_back(world: World, copy: Copy) -> None:
    world.promote({"lineage": False})
    world.promote()


def _promote_mark_and_roll_back(world: World, copy: Copy) -> None:
    world.promote({"lineage": False})
    world.mark()
    world.promote()
    world.mark()


def _let_receipts_age(world: World, copy: Copy) -> None:
    world.promote({"gate": {"level": "checksum", "receipt_max_age": "1ms"}})
    world.mark()


@pytest.mark.parametrize(
    ("happens", "fact"),
    [
        (_hold, "no_hold"),
        (_hold_by_selector, "no_hold"),
        (_read, "no_reader"),
        (_resume, "no_active_generation"),
        (_depend, "no_dependent"),
        (_seal_a_dependent, "no_dependent"),
        (_fail_the_newest, "roles_released"),
        (_lose_markers_of_newer, "newer_present"),
        (_lose_an_object_of_newer, "newer_present"),
        (_record_a_jump, "clock_sane"),
        (_show_a_later_event, "catalog_current"),
        (_mark_while_held, "marked: mark 2 keeps it"),
        (_mark_while_held_and_again, "marked: mark 1 is not the newest live one"),
        (_promote_and_roll_back, "marked: its policy took force again"),
        (_promote_mark_and_roll_back, "marked: mark 1 is not the newest live one"),
        (_let_receipts_age, "newer_passed"),
    ],
)
def test_what_happens_after_the_plan_keeps_the_copy(
    world: World, three: list[Copy], happens: Callable[[World, Copy], None], fact: str
) -> None:
    world.mark()
    planned = sweep.plan(world.catalog, PROJECT)
    assert [copy.copy_id for copy in planned.quarantine] == [three[0].copy_id]
    happens(world, three[0])
    told = sweep.execute(world.catalog, world.stores, planned, "dag:test")
    assert world.state(three[0]) == "present"
    assert fact in told["reasons"][str(three[0].checkpoint)]
    assert set(world.keys(three[0]).values()) == {False}


def test_a_plan_is_carried_out_under_newer_marks_that_say_the_same(
    world: World, three: list[Copy]
) -> None:
    world.mark()
    planned = sweep.plan(world.catalog, PROJECT)
    world.mark()
    replay = mark.run(world.catalog, PROJECT, at=world.now(), kind="replay")["mark_id"]
    told = sweep.execute(world.catalog, world.stores, planned, "dag:test")
    assert (told["mark"], told["quarantined"], told["kept"]) == (1, 1, 0)
    said = "SELECT mark_id, reason FROM lastgood.copy_transitions WHERE to_state = 'quarantined'"
    assert world.row(said) == (2, "candidate of mark 2")
    assert replay == 3


@pytest.mark.parametrize("hidden_again", [False, True])
def test_what_was_taken_back_since_the_plan_waits_for_a_grace_and_an_approval_of_its_own(
    world: World, three: list[Copy], hidden_again: bool
) -> None:
    world.mark()
    plans = [sweep.plan(world.catalog, PROJECT)]
    world.sweep()
    world.advance(GRACE)
    world.mark()
    plans.append(sweep.plan(world.catalog, PROJECT))
    assert [[copy.copy_id for copy in one.delete] for one in plans] == [[], [three[0].copy_id]]
    quarantine.undo(
        world.catalog, world.stores, three[0].checkpoint, actor="operator:ann", because="needed"
    )
    world.mark()
    if hidden_again:
        world.sweep()
    left = [
        sweep.execute(world.catalog, world.stores, planned, "dag:test")["left"] for planned in plans
    ]
    assert left == [0 if hidden_again else 1, 1]
    assert world.state(three[0]) == ("quarantined" if hidden_again else "present")


def test_without_a_verified_anchor_a_role_that_asks_for_one_lets_nothing_go(world: World) -> None:
    world.promote(
        {
            "roles": {
                "hot": {"keep": "newest", "count": 1, "leaves_when": "anchor_verified"},
                "anchor": {
                    "keep": "every",
                    "interval": "1d",
                    "within": "7d",
                    "validated": "restore",
                },
            }
        }
    )
    old, _ = world.commit(1), world.commit(2)
    world.mark()
    told = world.sweep()
    assert world.state(old) == "present"
    assert "prerequisite_met: the stage has no verified anchor" in str(told["reasons"])


class _Unreadable:
    """A store that lists and writes, and cannot read what ends so."""

    def __init__(self, store: Store, ending: str) -> None:
        self._store = store
        self._ending = ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        if key.endswith(self._ending):
            raise StoreError(store="local", key=key, reason="I/O error")
        return self._store.read(key, limit_bytes=limit_bytes)


def test_a_newer_copy_that_cannot_be_looked_up_is_unknown_and_asks_for_an_alert(
    world: World, three: list[Copy]
) -> None:
    world.mark()
    world.stores["local"] = cast(Store, _Unreadable(world.store, layout.MARKER_NAME))
    told = world.sweep()
    assert world.state(three[0]) == "present"
    assert "newer_present unknown" in told["alerts"][str(three[0].checkpoint)]


def test_why_tells_every_fact_of_the_gate_with_its_evidence(
    world: World, three: list[Copy]
) -> None:
    world.mark()
    _hold(world, three[0])
    told = why.why(world.catalog, world.stores, three[0].checkpoint).to_json()
    facts = told["copies"][0]["gate"]["facts"]
    assert list(facts) == FACTS
    assert facts["no_hold"]["truth"] == "false"
    assert "oncall" in facts["no_hold"]["evidence"]
    assert facts["newer_passed"]["truth"] == "true"
    assert [reason["kind"] for reason in told["kept"]] == ["hold"]


def test_a_copy_of_another_stage_proves_nothing(world: World) -> None:
    only = world.commit(1)
    world.commit(5, stage="sft")
    world.promote({"roles": {"best": {"keep": "best", "metric": "x", "mode": "min", "count": 1}}})
    world.mark()
    world.sweep()
    assert world.state(only) == "present"


def test_a_failed_copy_proves_nothing_and_takes_no_slot(world: World) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2)]
    for sequence in (3, 4, 5):
        world.commit(sequence, receipt="fail")
    world.mark()
    world.sweep()
    assert [world.state(copy) for copy in copies] == ["present", "present"]


def test_an_inconclusive_receipt_takes_no_earlier_pass_away(
    world: World, three: list[Copy]
) -> None:
    for copy in three:
        world.receipt(copy, "inconclusive")
    world.mark()
    world.sweep()
    assert [world.state(copy) for copy in three] == ["quarantined", "present", "present"]


def test_a_burst_of_a_writer_pushes_no_time_bucket_out(world: World) -> None:
    world.promote(
        {
            "roles": {
                "hot": {"keep": "newest", "count": 2},
                "warm": {"keep": "every", "interval": "1h", "within": "3h"},
            }
        }
    )
    good = []
    for sequence in (1, 2):
        good.append(world.commit(sequence))
        world.advance(timedelta(hours=1))
    burst = [world.commit(sequence) for sequence in range(10, 20)]
    world.mark()
    world.sweep()
    assert [world.state(copy) for copy in good] == ["present", "present"]
    assert sum(world.state(copy) == "quarantined" for copy in burst) == 8


def test_the_floor_stands_although_no_role_selects_it(world: World) -> None:
    world.promote({"roles": {"every": {"keep": "steps", "every": 1_000_000}}})
    proven = world.commit(1)
    unproven = [world.commit(sequence, receipt=None) for sequence in (2, 3)]
    world.mark()
    world.sweep()
    world.advance(GRACE)
    world.mark()
    world.sweep()
    assert world.state(proven) == "present"
    assert world.state(unproven[-1]) == "present"


def test_what_the_newest_was_resumed_from_stays(world: World) -> None:
    world.promote({"roles": {"hot": {"keep": "newest", "count": 1}}})
    origin = world.commit(1)
    later = world.commit(2)
    world.generation(2, resumed_from=origin.checkpoint.position)
    world.commit(5, generation=2, resumed_from=origin)
    world.release_writer()
    world.mark()
    world.sweep()
    assert world.state(origin) == "present"
    assert world.state(later) == "quarantined"


def test_the_end_of_a_reader_lets_its_checkpoint_go(world: World, three: list[Copy]) -> None:
    reading = read.acquire_reader(
        world.catalog, world.stage_name(), three[0].checkpoint, reader="eval"
    )
    world.mark()
    world.sweep()
    assert world.state(three[0]) == "present"
    read.end_reader(world.catalog, reading.lease)
    world.mark()
    world.sweep()
    assert world.state(three[0]) == "quarantined"


def test_a_lease_that_ran_out_is_observed_and_keeps_nothing_more(
    world: World, three: list[Copy]
) -> None:
    read.acquire_reader(
        world.catalog,
        world.stage_name(),
        three[0].checkpoint,
        reader="eval",
        ttl=timedelta(minutes=5),
    )
    world.advance(timedelta(minutes=6))
    world.mark()
    world.sweep()
    assert world.state(three[0]) == "quarantined"
    assert world.row("SELECT how FROM lastgood.reader_ends") == ("lapsed",)
