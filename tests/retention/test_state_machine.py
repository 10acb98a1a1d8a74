"""Commits, holds, readers, receipts, retirements, policies, marks, sweeps, crashes, time and jumps
of the clock in any order, against a small model of what must always hold."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lastgood import errors
from lastgood.catalog import clock, history
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.jobs.readers import ReaderLease
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.faults import SWEEP_POINTS, UNDO_POINTS
from lastgood.flows import quarantine
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, release, retire
from lastgood.flows.sweeping import deletion, sweep
from lastgood.rules.scope import Scope
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores.base import Prefix
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.retention import invariants
from tests.retention.world import PROJECT, World, opened

STAGES = ("pretrain", "sft")
READER_TTL = timedelta(hours=1)
MARK_MAX_AGE = timedelta(hours=2)
TAKEN = (State.QUARANTINED, State.DELETING, State.DELETED)
_PREFIX_PARTS = 6  # checkpoints, project, workload, stage, position, attempt


POLICIES: dict[str, dict[str, Any]] = {
    name: {"retire": {"grace": "1h"}, **changes}
    for name, changes in {
        "short": {},
        "narrow": {"roles": {"hot": {"keep": "newest", "count": 1}}},
        "wide": {"roles": {"hot": {"keep": "newest", "count": 5}}},
        "by-age": {
            "roles": {
                "hot": {"keep": "newest", "count": 1},
                "warm": {
                    "keep": "every",
                    "interval": "1h",
                    "within": "3h",
                    "leaves_when": "age_met",
                },
            }
        },
        "by-stage": {
            "overrides": [
                {
                    "workloads": "*",
                    "stages": "sft",
                    "roles": {"hot": {"keep": "newest", "count": 4}},
                }
            ]
        },
    }.items()
}


class Crash(Exception):
    """The process died here."""


@contextmanager
def dying(at: str) -> Iterator[None]:
    """Die at a point, as a process does that is killed there."""

    def die(name: str) -> None:
        if name == at:
            raise Crash(name)

    with pytest.MonkeyPatch.context() as patch:
        for module in (sweep, quarantine, deletion, hold):
            patch.setattr(module, "point", die)
        yield


@dataclass
class Known:
    """What the model knows of one copy."""

    copy: Copy
    verdict: str | None = None
    holds: set[UUID] = field(default_factory=set)
    readers: dict[UUID, datetime] = field(default_factory=dict)
    needed_by: list[int] = field(default_factory=list)


@dataclass
class Retiring:
    """What the model knows of a retirement; `stage` None: of the whole project."""

    stage: str | None
    ends: datetime | None = None  # of the grace, once it is approved

    def covers(self, stage: str) -> bool:
        return self.stage in (None, stage)

    def ended(self, stage: str, now: datetime) -> bool:
        return self.covers(stage) and self.ends is not None and self.ends <= now


class Retention(RuleBasedStateMachine):
    """The system beside its model."""

    made = Bundle("made")
    placed = Bundle("placed")
    leases = Bundle("leases")
    asked = Bundle("asked")

    def __init__(self, server: EmbeddedPostgres, template: str) -> None:
        super().__init__()
        self.cleaning = ExitStack()
        name = f"machine_{secrets.token_hex(6)}"
        server.create_database(name, template=template, owner=OWNER_ROLE)
        self.cleaning.callback(server.drop_database, name)
        root = Path(self.cleaning.enter_context(tempfile.TemporaryDirectory()))
        app, owner = server.dsn(name, APP_ROLE), server.dsn(name, OWNER_ROLE)
        self.world: World = self.cleaning.enter_context(opened(app, owner, root / "store"))
        self.known: dict[int, Known] = {}
        self.sequence = dict.fromkeys(STAGES, 0)
        self.generation = dict.fromkeys(STAGES, 1)
        self.writing: dict[str, tuple[datetime, tuple[int, int] | None]] = {}
        self.selectors: list[tuple[UUID, str]] = []
        self.retirements: dict[UUID, Retiring] = {}
        self.marked_at: datetime | None = None
        self.policy_changed = False
        self.crashed = False
        self.steps = 0

    def teardown(self) -> None:
        try:
            self._require_kept()
            invariants.require(self.world)
        finally:
            self.cleaning.close()

    @initialize(target=made, data=st.data())
    def begin(self, data: st.DataObject) -> Any:
        for stage in STAGES:
            self._acquire(stage, None)
        first = [self._commit(stage, True, data) for stage in STAGES for _ in range(4)]
        self.let_the_scheduler_run(1)
        return multiple(*first)

    def _acquire(self, stage: str, resumed_from: tuple[int, int] | None) -> None:
        self.world.generation(
            self.generation[stage], stage=stage, resumed_from=resumed_from, lease=READER_TTL
        )
        self.writing[stage] = (self.world.now() + READER_TTL, resumed_from)

    # --- what training does ---

    @rule(
        target=made,
        stage=st.sampled_from(STAGES),
        passes=st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=3),
        data=st.data(),
    )
    def train(self, stage: str, passes: list[bool], data: st.DataObject) -> Any:
        return multiple(*[self._commit(stage, each, data) for each in passes])

    def _commit(self, stage: str, passes: bool, data: st.DataObject) -> Copy:
        present = self._present()
        needed = data.draw(st.lists(st.sampled_from(present), max_size=1)) if present else []
        return self._record(stage, passes, needed if data.draw(st.integers(0, 3)) == 3 else [])

    def _record(self, stage: str, passes: bool, needed: list[Known]) -> Copy:
        self.sequence[stage] += 1
        made = self.world.commit(
            self.sequence[stage],
            generation=self.generation[stage],
            stage=stage,
            depends_on=[each.copy for each in needed],
            receipt="pass" if passes else None,
        )
        self.known[made.copy_id] = Known(made, "pass" if passes else None)
        for each in needed:
            each.needed_by.append(made.copy_id)
        for hold_id, held_stage in self.selectors:
            if held_stage == stage:
                self.known[made.copy_id].holds.add(hold_id)
        return made

    @rule(stage=st.sampled_from(STAGES), data=st.data())
    def replace_the_writer(self, stage: str, data: st.DataObject) -> None:
        present = [
            each.copy.checkpoint.position
            for each in self._present()
            if each.copy.checkpoint.stage == stage
        ]
        origin = data.draw(st.sampled_from(present)) if present else None
        self.generation[stage] += 1
        self._acquire(stage, origin)

    @rule(copy=made, verdict=st.sampled_from(["pass", "pass", "fail", "inconclusive"]))
    def validate(self, copy: Copy, verdict: Any) -> None:
        if self.world.copy(copy).state is State.PRESENT:
            self.world.receipt(copy, verdict)
            if verdict != "inconclusive":
                self.known[copy.copy_id].verdict = verdict

    # --- what people do ---

    @rule(target=placed, copy=made)
    def hold_one(self, copy: Copy) -> tuple[UUID, str | None]:
        gone = self.world.copy(copy).state in (State.DELETING, State.DELETED)
        new = NewHold("incident", "oncall", "why", "operator:ann")
        try:
            done = hold.place(self.world.catalog, self.world.stores, PROJECT, new, copy.checkpoint)
        except errors.CopyGone:
            assert gone
            return UUID(int=0), None
        assert not gone
        self.known[copy.copy_id].holds.add(done.hold_id)
        return done.hold_id, None

    @rule(target=placed, stage=st.sampled_from(STAGES))
    def hold_a_stage(self, stage: str) -> tuple[UUID, str | None]:
        new = NewHold("legal", "counsel", "why", "operator:ann", selector=Selector(stage=stage))
        done = hold.place(self.world.catalog, self.world.stores, PROJECT, new)
        states = self._states()
        for copy_id, each in self.known.items():
            if each.copy.checkpoint.stage == stage and states[copy_id] not in copies.GONE:
                each.holds.add(done.hold_id)
                assert states[copy_id] is State.PRESENT
        self.selectors.append((done.hold_id, stage))
        return done.hold_id, stage

    @rule(held=consumes(placed))
    def release_hold(self, held: tuple[UUID, str | None]) -> None:
        hold_id, _ = held
        if hold_id.int == 0:
            return
        release.release(
            self.world.catalog, self.world.stores, PROJECT, hold_id, because="x", actor="operator:a"
        )
        self.selectors = [each for each in self.selectors if each[0] != hold_id]
        for each in self.known.values():
            each.holds.discard(hold_id)

    @rule(target=leases, copy=made)
    def read_one(self, copy: Copy) -> ReaderLease | None:
        now = self.world.copy(copy)
        state = now.state
        known = self.known[copy.copy_id]
        name = self.world.stage_name(copy.checkpoint.stage)
        try:
            lease = read.acquire_reader(
                self.world.catalog, name, copy.checkpoint, reader="eval", ttl=READER_TTL
            ).lease
        except (errors.CopyState, errors.NotFound, errors.Conflict):
            hidden = now.carried_out < now.transition  # a crash left it to the next sweep to show
            assert state is not State.PRESENT or hidden or not self._is_sound(known)
            return None
        assert state is State.PRESENT
        assert self._is_sound(known)
        known.readers[lease.lease_id] = lease.expires_at
        return lease

    @rule(lease=consumes(leases))
    def end_reading(self, lease: ReaderLease | None) -> None:
        if lease is not None:
            read.end_reader(self.world.catalog, lease)
            self.known[lease.copy_id].readers.pop(lease.lease_id, None)

    @rule(copy=made)
    def undo(self, copy: Copy) -> None:
        state = self.world.copy(copy).state
        try:
            quarantine.undo(
                self.world.catalog,
                self.world.stores,
                copy.checkpoint,
                because="x",
                actor="operator:ann",
            )
        except errors.CopyState:
            assert state is not State.QUARANTINED
            return
        assert state is State.QUARANTINED

    @rule(target=asked, stage=st.sampled_from([*STAGES, None]))
    def ask_to_retire(self, stage: str | None) -> UUID | None:
        scope = Scope(PROJECT, stage and "gpt", stage)
        try:
            done = retire.ask(
                self.world.catalog, self.world.stores, scope, reason="over", actor="operator:ann"
            )
        except errors.Conflict:
            assert any(one.stage == stage for one in self.retirements.values())
            return None
        self.retirements[done.retirement_id] = Retiring(stage)
        return done.retirement_id

    @rule(retirement=asked)
    def approve_to_retire(self, retirement: UUID | None) -> None:
        known = self.retirements.get(retirement) if retirement else None
        if retirement is None or known is None:
            return
        with suppress(errors.Conflict):  # approved before
            approved = retire.approve(
                self.world.catalog, self.world.stores, PROJECT, retirement, actor="operator:ben"
            )
            assert known.ends is None
            known.ends = approved.effective_at

    @rule(retirement=consumes(asked))
    def undo_to_retire(self, retirement: UUID | None) -> None:
        known = self.retirements.get(retirement) if retirement else None
        if retirement is None or known is None:
            return
        over = known.ends is not None and known.ends <= self.world.now()
        try:
            retire.undo(
                self.world.catalog,
                self.world.stores,
                PROJECT,
                retirement,
                because="x",
                actor="operator:a",
            )
        except errors.Conflict:
            assert over
            return
        assert not over
        del self.retirements[retirement]

    @rule(policy=st.sampled_from(list(POLICIES)))
    def change_the_policy(self, policy: str) -> None:
        self.world.promote(POLICIES[policy], name=policy)
        self.policy_changed = True

    @rule(minutes=st.sampled_from([20, 61, 150]))
    def wait(self, minutes: int) -> None:
        self.world.advance(timedelta(minutes=minutes))

    @rule(target=made, minutes=st.sampled_from([-90, 30, 600]))
    def let_the_clock_jump(self, minutes: int) -> Any:
        """Nothing destructive happens until somebody accepts it. Ahead, a checkpoint is committed
        meanwhile, and the clock goes back."""
        made = None
        with self.world.catalog.transaction() as tx:
            clock.read(tx)
        offset = self.world.offset
        self.world.set_clock(offset + timedelta(minutes=minutes))
        with pytest.raises(errors.ClockJump):
            self.world.sweep()
        if minutes > 0:
            made = self._record("pretrain", True, [])
            self.world.set_clock(offset)
        with self.world.catalog.transaction() as tx:
            clock.read(tx)
        with self.world.catalog.transaction() as tx:
            for jump in clock.unaccepted(tx):
                clock.accept(tx, jump.jump_id, accepted_by="ann", because="looked at it")
        return multiple(*([made] if made else []))

    # --- what the scheduler does ---

    def mark(self) -> None:
        self.world.mark()
        self.marked_at = self._project_now()
        self.policy_changed = False

    @rule(minutes=st.sampled_from([1, 20, 61]))
    def let_the_scheduler_run(self, minutes: int) -> None:
        self.wait(minutes)
        self.mark()
        self.sweep()

    @precondition(lambda self: self.marked_at is not None)
    @rule()
    def sweep(self) -> None:
        self._sweep()
        if not self.crashed:
            self._require_stores_follow()

    @rule(at=st.sampled_from(SWEEP_POINTS))
    def mark_sweep_and_crash(self, at: str) -> None:
        self.mark()
        with dying(at):
            self._sweep()

    @rule(copy=made, at=st.sampled_from(UNDO_POINTS))
    def undo_and_crash(self, copy: Copy, at: str) -> None:
        with suppress(Crash), dying(at):
            self.undo(copy)

    @rule(target=placed, copy=made, at=st.sampled_from(UNDO_POINTS))
    def hold_and_crash(self, copy: Copy, at: str) -> Any:
        """The decision stands, whoever died after it: it is found by whom it protects."""
        with suppress(Crash), dying(at):
            return self.hold_one(copy)
        row = self.world.row(
            "SELECT hold_id FROM lastgood.hold_checkpoints WHERE checkpoint_id = %s"
            " ORDER BY recorded_at DESC LIMIT 1",
            copy.checkpoint_id,
        )
        self.known[copy.copy_id].holds.add(row[0])
        return row[0], None

    @precondition(lambda self: self.marked_at is not None)
    @rule()
    def look_back(self) -> None:
        """Nothing appeared at or before the instant of the newest mark."""
        invariants.require(self.world, replay=True)

    def _project_now(self) -> datetime:
        """A mark ages by the history, too, where that lies ahead of the clock."""
        with self.world.catalog.transaction() as tx:
            return history.project_now(tx, PROJECT)

    def _sweep(self) -> None:
        before = self._states()
        self.crashed = False
        try:
            told = self.world.sweep()
            assert told["failed"] == {}
        except Crash:
            self.crashed = True
        except errors.MarkNotSweepable:
            assert self.marked_at is not None
            age = self._project_now() - self.marked_at
            assert self.policy_changed or age > MARK_MAX_AGE - timedelta(minutes=1)
            return
        now, after = self.world.now(), self._states()
        for copy_id, each in self.known.items():
            if after[copy_id] in TAKEN and before[copy_id] not in (after[copy_id], State.DELETING):
                self._require_free(each, now, after)

    # --- the model's judgement ---

    def _states(self) -> dict[int, State]:
        """Of every copy, now."""
        rows = self.world.owner.execute("SELECT copy_id, state FROM lastgood.copies").fetchall()
        return {copy_id: State(state) for copy_id, state in rows}

    def _present(self) -> list[Known]:
        states = self._states()
        return [each for each in self.known.values() if states[each.copy.copy_id] is State.PRESENT]

    def _keys(self) -> dict[str, list[bool]]:
        """Whether each key in the store is hidden, by the prefix of its copy."""
        found: defaultdict[str, list[bool]] = defaultdict(list)
        for one in self.world.store.list(Prefix("checkpoints/")):
            found["/".join(one.key.split("/")[:_PREFIX_PARTS]) + "/"].append(one.hidden)
        return found

    def _is_sound(self, each: Known) -> bool:
        """Neither it nor anything that it depends on was found damaged."""
        return each.verdict != "fail" and all(
            self._is_sound(other)
            for other in self.known.values()
            if each.copy.copy_id in other.needed_by
        )

    def _require_free(self, each: Known, now: datetime, states: Mapping[int, State]) -> None:
        position = each.copy.checkpoint.position
        stage = each.copy.checkpoint.stage
        assert not each.holds
        assert all(end <= now for end in each.readers.values())
        lease_end, origin = self.writing[stage]
        assert lease_end <= now or origin != position
        quarantined = states[each.copy.copy_id] is State.QUARANTINED
        free = TAKEN if quarantined else copies.GONE
        for copy_id in each.needed_by:
            assert states[copy_id] in free
        if lease_end <= now and any(one.ended(stage, now) for one in self.retirements.values()):
            return  # a retirement ends nothing that somebody writes: then the policy alone decides
        assert any(
            other.copy.checkpoint.position > position
            and other.verdict == "pass"
            and self._is_sound(other)
            and states[other.copy.copy_id] is State.PRESENT
            for other in self.known.values()
            if other.copy.checkpoint.stage == stage
        )

    def _require_stores_follow(self) -> None:
        states, keys = self._states(), self._keys()
        for copy_id, each in self.known.items():
            hidden = keys.get(each.copy.prefix, [])
            match states[copy_id]:
                case State.PRESENT:
                    assert hidden == [False] * 3
                case State.QUARANTINED:
                    assert hidden == [True] * 3
                case _:
                    assert hidden == []
        listed = sum(one.size_bytes for one in self.world.store.list(Prefix("checkpoints/")))
        assert self.world.row("SELECT committed_bytes FROM lastgood.capacity_counters") == (listed,)

    def _require_kept(self) -> None:
        states, keys = self._states(), self._keys()
        for copy_id, each in self.known.items():
            if states[copy_id] not in copies.GONE:
                assert len(keys[each.copy.prefix]) == 3

    @invariant()
    def nothing_that_is_kept_is_lost_and_the_history_breaks_no_rule(self) -> None:
        """After every third step, and at the end: a lost byte stays lost, and history stays. A look
        costs more than most steps."""
        self.steps += 1
        if self.steps % 3 == 0:
            self._require_kept()
            assert invariants.violations(self.world) == []


@pytest.mark.slow
def test_in_any_order_nothing_kept_is_lost(
    postgres: EmbeddedPostgres, template_catalog: str
) -> None:
    run_state_machine_as_test(
        lambda: Retention(postgres, template_catalog),
        settings=settings(
            max_examples=200 if os.environ.get("LASTGOOD_SOAK") else 21,
            stateful_step_count=100,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
