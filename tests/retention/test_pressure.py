"""Capacity on a real catalog and real trees: states, order, reach, share guard, spill store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog import locks
from lastgood.catalog.capacity import capacity, capacity_states, reach_proofs
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping import holds
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.flows import control_keys, room
from lastgood.flows.capacity import admission, pressure
from lastgood.flows.keeping import hold
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import approval
from lastgood.flows.sweeping import sweep as sweep_flow
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.rules.capacity import CapacityState
from lastgood.rules.policy import Policy
from lastgood.rules.reach import Proof
from lastgood.stores.file import FileStore
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.retention.world import PROJECT, World

GRACE = timedelta(hours=1)
SIZE = 100_000
WATERMARKS = {"capacity": {"soft": "75%", "hard": "85%", "reserve": "0B"}}


@pytest.fixture
def policy(world: World) -> Policy:
    return world.promote(WATERMARKS)


def claimed(world: World, store: str = "local") -> int:
    with world.catalog.transaction() as tx:
        return capacity.use(tx, PROJECT, store).whole.claimed_bytes


def fill(world: World, total_bytes: int, store: str = "local") -> None:
    """Let the backend have so much in all."""
    world.owner.execute(
        "UPDATE lastgood.capacity_counters SET backend_total = %s, backend_at = now()"
        " WHERE store = %s",
        (total_bytes, store),
    )


def save(world: World, sequences: Sequence[int], size: int = SIZE, **options: Any) -> list[Copy]:
    return [world.commit(each, {"model.bin": bytes(size)}, **options) for each in sequences]


def observe(world: World) -> CapacityState:
    [found] = pressure.observe(world.catalog, PROJECT, cause="a test looked", actor="test")
    return found.standing.state


def changes(world: World) -> list[tuple[str, str]]:
    with world.catalog.transaction() as tx:
        return [(row.state, row.cause) for row in reversed(capacity_states.changes(tx, PROJECT))]


def waiting(world: World) -> list[tuple[str, str]]:
    rows = world.owner.execute(
        "SELECT project, kind FROM lastgood.outbox WHERE stage_id IS NULL AND delivered_at IS NULL"
        " ORDER BY 1, 2"
    )
    return [(row[0], row[1]) for row in rows]


def test_a_change_of_state_is_history_with_its_numbers_and_cause(
    world: World, policy: Policy
) -> None:
    save(world, [1, 2, 3])
    fill(world, 10 * SIZE)
    assert observe(world) is CapacityState.OPEN
    before = world.now()
    fill(world, 4 * SIZE)  # 75 % of it are 300,000 bytes, and manifests are above that
    assert (observe(world), observe(world)) == (CapacityState.SOFT, CapacityState.SOFT)
    pressed = world.now()
    assert waiting(world) == [(PROJECT, "receipts-wanted"), (PROJECT, "room-wanted")]
    fill(world, 3 * SIZE)
    assert observe(world) is CapacityState.CLOSED
    fill(world, 10 * SIZE)
    assert observe(world) is CapacityState.OPEN

    cause = "a test looked"
    assert changes(world) == [("soft", cause), ("closed", cause), ("open", cause)]
    assert room.as_of(world.catalog, before) == []
    [then] = room.as_of(world.catalog, pressed)
    assert (then.state, then.numbers["soft_bytes"], then.numbers["hard_bytes"]) == (
        "soft",
        300_000,
        340_000,
    )
    assert then.numbers["usage_bytes"] == claimed(world)
    [now] = room.now(world.catalog)
    assert (now.state, now.cause, now.proof) == ("open", cause, None)
    with pytest.raises(errors.InvalidInput, match="past"):
        room.as_of(world.catalog, world.now() + timedelta(hours=1))


def test_a_backend_total_is_carried_on_by_what_is_committed_and_deleted(world: World) -> None:
    save(world, [1])
    stored = claimed(world)
    world.owner.execute(
        "UPDATE lastgood.capacity_counters SET backend_bytes = %s, backend_known_bytes = %s,"
        " backend_total = 10000000, backend_at = now()",
        (stored + 500, stored),
    )
    assert claimed(world) == stored + 500  # the backend knows of more
    save(world, [2])
    assert claimed(world) == 2 * stored + 500
    with world.catalog.transaction() as tx:
        capacity.release_copy(tx, PROJECT, "local", stored)
    assert claimed(world) == stored + 500


def test_the_reserve_is_measured_and_lowers_hard(world: World) -> None:
    world.promote({"capacity": {"soft": "75%", "hard": "85%", "reserve": "measured"}})
    [largest] = save(world, [1], 2 * SIZE)
    save(world, [2])
    reserve = 2 * largest.stored_bytes + largest.stored_bytes // 20
    fill(world, 2 * reserve)
    [found] = room.now(world.catalog)
    numbers = found.numbers
    assert (numbers["reserve_bytes"], numbers["hard_bytes"]) == (reserve, reserve)
    assert numbers["soft_bytes"] == reserve  # 75 % would be above hard


def test_under_pressure_most_bytes_per_risk_go_first_and_no_more_than_wanted(
    world: World,
) -> None:
    world.promote({"capacity": {"soft": "50%", "hard": "85%", "reserve": "0B"}})
    small = save(world, [1, 2, 3, 4])  # gives up 1 and 2, where 3 and 4 stand
    large = save(world, [1, 2, 3], 3 * SIZE, stage="sft")  # gives up 1
    world.mark()
    fill(world, (claimed(world) - 2 * SIZE) * 2)  # 200,000 bytes above soft
    told = world.sweep()
    assert (told["quarantined"], told["left"]) == (1, 2)
    assert world.state(large[0]) == "quarantined"
    assert [world.state(copy) for copy in small[:2]] == ["present", "present"]
    assert changes(world)[0] == ("soft", "a sweep looked")

    told = world.sweep()  # what is in quarantine comes back anyway: no more is wanted
    assert (told["quarantined"], told["deleted"], told["left"]) == (0, 0, 2)
    world.advance(GRACE - timedelta(minutes=1))
    world.mark()
    assert world.sweep()["deleted"] == 0  # pressure shortens no grace
    world.advance(timedelta(minutes=1))
    world.mark()
    told = world.sweep()
    assert (told["deleted"], world.state(large[0])) == (1, "deleted")
    assert changes(world)[-1][0] == "open"
    told = world.sweep()  # as ever
    assert (told["quarantined"], told["left"]) == (2, 0)


def test_a_proof_counts_a_whole_chain_that_goes_in_one_run(world: World) -> None:
    world.promote(
        {
            "roles": {"hot": {"keep": "newest", "count": 1}},
            "capacity": {"soft": "1KB", "hard": "100KB", "reserve": "0B"},
        }
    )
    chain: list[Copy] = []
    for sequence in (1, 2, 3):
        chain.append(world.commit(sequence, {"m": b"x" * 300}, depends_on=chain[-1:]))
    world.commit(4, {"m": b"x" * 300})
    world.mark()
    assert world.sweep()["quarantined"] == 3
    with world.catalog.transaction() as tx:
        found = reach_proofs.newest(tx, PROJECT, "local")
    assert found is not None
    assert found.proof.returning_bytes == sum(copy.stored_bytes for copy in chain)
    assert (found.proof.blocked, found.proof.helps) == ({}, ())


def test_a_batch_bounds_one_run_and_is_larger_under_pressure(
    world: World, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lastgood.flows.sweeping import order

    monkeypatch.setattr(order, "BATCH_COPIES", 1)
    monkeypatch.setattr(order, "PRESSED_BATCH_COPIES", 3)
    save(world, range(1, 9))  # gives up six
    world.mark()
    plan = sweep_flow.plan(world.catalog, PROJECT)
    told = sweep_flow.execute(
        world.catalog,
        world.stores,
        plan,
        "test",
        order.Turn(plan.delete, plan.quarantine, batch=order.BATCH_COPIES),
    )
    assert (told["quarantined"], told["left"]) == (1, 5)
    fill(world, 10)  # all is wanted
    told = world.sweep()
    assert (told["quarantined"], told["left"]) == (3, 2)


def test_what_was_given_up_since_the_newest_mark_is_told_with_the_limit_that_is_crossed(
    world: World,
) -> None:
    limits = {"soft": f"{2 * SIZE}B", "hard": f"{90 * SIZE}B", "reserve": "0B"}
    world.promote({"capacity": limits})
    old = save(world, [1, 2])
    before = world.mark()
    save(world, [3, 4])
    fill(world, 10**9)
    world.sweep(mark_id=before)
    proof = _proof(world).proof
    unmarked = sum(copy.stored_bytes for copy in old)
    assert (proof.soft_bytes, proof.hard_bytes) == (2 * SIZE, 90 * SIZE)
    assert (proof.returning, proof.kept["no mark yet"]) == ((), unmarked)
    assert {help.what: help.size_bytes for help in proof.helps} == {
        "lastgood mark vision": unmarked
    }
    told = world.sweep()
    assert (told["mark"] > before, told["quarantined"]) == (True, 2)
    proof = _proof(world).proof
    assert ("no mark yet" in proof.kept, proof.returning_bytes) == (False, unmarked)


def test_under_pressure_a_sweep_marks_first_and_an_approval_stands_under_the_new_mark(
    world: World,
) -> None:
    limits = {"capacity": {"soft": "1B", "hard": "1GB", "reserve": "0B"}}
    world.promote(limits)
    save(world, [1, 2, 3])
    told = world.sweep()  # nobody has marked yet
    assert (told["mark"] is not None, told["quarantined"]) == (True, 1)
    world.advance(timedelta(days=1))  # far behind gate.mark_max_age
    save(world, [4])
    told = world.sweep()
    assert (told["deleted"], told["quarantined"]) == (1, 1)

    asks = {"grace": "1h", "share_guard": "100%", "approve_above": "1B"}
    world.promote({**limits, "quarantine": asks})
    save(world, [5])
    waits = world.sweep()
    assert waits["stop"].endswith("approve")
    approval.approve_now(world.catalog, PROJECT, actor="operator:ann", because="I looked")
    save(world, [6])
    told = world.sweep()
    assert (told["mark"] > waits["mark"], told["quarantined"], told["left"]) == (True, 1, 1)


def test_a_sweep_under_pressure_marks_again_only_where_the_last_mark_may_say_too_little(
    world: World,
) -> None:
    world.promote({"capacity": {"soft": "1B", "hard": "1GB", "reserve": "0B"}})
    save(world, [1, 2, 3], receipt=None)  # what is given up waits for a receipt
    shown = [_shown_first(world)]
    first = world.sweep()["mark"]
    shown.append(_shown_first(world))
    assert world.sweep()["mark"] == world.sweep()["mark"] == first

    save(world, [4], receipt=None)
    shown.append(_shown_first(world))
    second = world.sweep()["mark"]
    assert second > first
    world.advance(timedelta(minutes=20))
    shown.append(_shown_first(world))
    assert world.sweep()["mark"] > second
    world.advance(timedelta(hours=3))
    shown.append(_shown_first(world))
    under = [f"mark {one} as of" for one in (first, second)]
    for words, said in zip(shown, ["nothing was marked", "", *under, "mark_max_age"], strict=True):
        assert said in words
        assert bool(said) is bool(words)
    with pytest.raises(errors.MarkNotSweepable):
        sweep_flow.dry_run(world.catalog, PROJECT, first)


def _shown_first(world: World) -> str:
    """What a dry run says of the mark that the sweep would make; it makes none itself."""
    before = world.row("SELECT count(*), max(number) FROM lastgood.marks, lastgood.events")
    told = sweep_flow.dry_run(world.catalog, PROJECT)
    assert world.row("SELECT count(*), max(number) FROM lastgood.marks, lastgood.events") == before
    assert (told.marks_first or "") in str(told)
    return told.to_json()["marks_first"] or ""


def _proof(world: World) -> reach_proofs.ProofRow:
    with world.catalog.transaction() as tx:
        found = reach_proofs.newest(tx, PROJECT, "local")
    assert found is not None
    return found


class TestReach:
    """Three running jobs of 100,000 bytes each: one collects, one was never validated, one waits
    for a newer receipt."""

    @pytest.fixture
    def stages(self, world: World, policy: Policy) -> dict[str, list[Copy]]:
        found = {
            "pretrain": save(world, [1, 2, 3, 4]),
            "sft": save(world, [1, 2, 3, 4], stage="sft", receipt=None),
            "rl": save(world, [1, 2, 3, 4], stage="rl", receipt=None),
        }
        world.receipt(found["rl"][0])
        new = holds.NewHold(kind="research", owner="ann", reason="paper", placed_by="operator:ann")
        hold.place(world.catalog, world.stores, PROJECT, new, found["pretrain"][0].checkpoint)
        world.mark()
        return found

    def test_what_is_in_the_way_is_told_in_bytes_and_new_jobs_are_refused(
        self, world: World, policy: Policy, stages: dict[str, list[Copy]]
    ) -> None:
        stored = stages["pretrain"][0].stored_bytes
        total = claimed(world) * 100 // 80
        fill(world, total)
        world.sweep()

        row = _proof(world)
        proof = row.proof
        hard = total * 85 // 100
        assert (proof.claimed_bytes, proof.hard_bytes) == (claimed(world), hard)
        marker = len(layout.marker_bytes(stages["pretrain"][0].manifest))
        expected = sum(of[3].stored_bytes - marker for of in stages.values())
        assert proof.expected_bytes == expected > 3 * SIZE
        assert proof.needed_bytes == claimed(world) + expected - hard > 2 * SIZE
        assert [size for _, size in proof.returning] == [stored]  # 1.2 of pretrain
        assert (proof.reaches, proof.by) == (False, None)
        rl = stages["rl"][1].stored_bytes
        assert proof.blocked == {"newer_passed": rl, "newer_present": rl}
        assert proof.kept["hold"] == stored
        assert proof.kept["unproven"] == 4 * stages["sft"][0].stored_bytes
        said = {help.what: help.size_bytes for help in proof.helps}
        held = next(what for what in said if "held by" in what)
        assert held.startswith("vision/gpt/pretrain: end held by")
        assert said == {
            "validate the newest checkpoint of vision/gpt/sft at level checksum": 2
            * stages["sft"][0].stored_bytes,
            "validate the newest checkpoint of vision/gpt/rl at level checksum": rl,
            held: stored,
        }
        assert changes(world) == [("soft", "a sweep looked"), ("closed", "a proof of reach")]
        assert room.now(world.catalog)[0].proof == proof
        self._admission(world, policy, SIZE // 10)

        newest = [stages["sft"][3], stages["rl"][3]]
        for copy in newest:  # what would help
            validate.run(world.catalog, world.stores, copy.copy_id, "checksum")
        world.mark()
        world.sweep()
        proof = _proof(world).proof
        assert proof.reaches
        assert proof.by is not None
        assert proof.by >= world.now() + GRACE - timedelta(minutes=1)
        assert changes(world)[-1] == ("soft", "a proof of reach")
        anchors = [stages[name][3] for name in stages]
        assert {world.state(copy) for copy in anchors} == {"present"}

    def _admission(self, world: World, policy: Policy, asked: int) -> None:
        """Running jobs go on up to hard; a new one is told the numbers."""
        with pytest.raises(errors.NoRoom) as refused, world.catalog.transaction() as tx:
            self._admit(tx, world, policy, asked, new_job=True)
        facts = refused.value.facts
        assert (facts["state"], facts["missing_bytes"]) == ("closed", 0)
        assert facts["stores"]["local"]["hard_bytes"] == facts["hard_bytes"]
        with world.catalog.transaction() as tx:
            assert self._admit(tx, world, policy, asked, new_job=False) == "local"
            tx.connection.rollback()
        with pytest.raises(errors.NoRoom), world.catalog.transaction() as tx:
            self._admit(tx, world, policy, 3 * SIZE, new_job=False)

    def _admit(self, tx: Any, world: World, policy: Policy, asked: int, *, new_job: bool) -> str:
        locks.project_shared(tx, PROJECT)
        found = admission.admit(
            tx, PROJECT, policy.capacity, [world.store], asked, new_job=new_job, actor="test"
        )
        return found.name

    def test_refused_job_is_told_when_the_proof_has_its_room(
        self, world: World, policy: Policy, stages: dict[str, list[Copy]]
    ) -> None:
        fill(world, claimed(world) * 100 // 84)
        world.sweep()  # 1.2 of pretrain is in quarantine, for an hour
        _, room_after = 0, 2 * SIZE // 3
        with pytest.raises(errors.NoRoom) as refused, world.catalog.transaction() as tx:
            self._admit(tx, world, policy, room_after, new_job=False)
        told = timedelta(seconds=refused.value.facts["retry_after_seconds"])
        assert GRACE - timedelta(minutes=1) <= told <= GRACE + timedelta(minutes=15)


def test_a_new_job_that_asked_while_the_project_was_closing_is_refused(
    world: World, policy: Policy
) -> None:
    save(world, [1])
    fill(world, claimed(world) * 100 // 80)

    def ask() -> str:
        with world.catalog.transaction() as tx:
            locks.project_shared(tx, PROJECT)
            return admission.admit(
                tx, PROJECT, policy.capacity, [world.store], 1, new_job=True, actor="test"
            ).name

    unreachable = Proof(world.now(), SIZE, SIZE, SIZE, SIZE, 1, 1, (), {}, {}, ())
    with world.catalog.transaction() as tx:
        locks.project_shared(tx, PROJECT)
        used = capacity.locked_use(tx, PROJECT, "local")
        reach_proofs.record(tx, PROJECT, "local", None, unreachable)
        pressure.note(tx, PROJECT, "local", policy.capacity, used, cause="proven", actor="test")
        session = Session(ask)
        wait_until_blocked(world.owner)
    with pytest.raises(errors.NoRoom):
        session.result()
    assert changes(world) == [("closed", "proven")]


def test_what_is_committed_above_soft_gets_no_extra_role_until_it_is_open_again(
    world: World,
) -> None:
    roles = {
        "hot": {"keep": "newest", "count": 1},
        "warm": {"keep": "every", "interval": "1h", "within": "2d"},
        "anchor": {"keep": "every", "interval": "1d", "within": "7d"},
    }
    world.promote({**WATERMARKS, "roles": roles, "gate": {"level": "checksum"}})
    world.advance_to_morning()
    first = save(world, [1])
    world.advance(timedelta(hours=2))
    fill(world, SIZE)
    assert observe(world) is CapacityState.CLOSED
    pressed = world.now()
    later = []
    for sequence in (2, 3, 4):
        later += save(world, [sequence])
        world.advance(timedelta(hours=1))
    under_pressure = mark.run(world.catalog, PROJECT)
    assert under_pressure["counts"]["candidates"] == 2  # 1.2 and 1.3; warm still has 1.1
    at = world.now()
    fill(world, 100 * SIZE)
    assert observe(world) is CapacityState.OPEN
    assert mark.run(world.catalog, PROJECT)["counts"]["candidates"] == 0
    replay = mark.run(world.catalog, PROJECT, at=at, kind="replay")
    assert replay["digest"] == under_pressure["digest"]
    before = mark.run(world.catalog, PROJECT, at=pressed, kind="replay")
    assert before["counts"]["candidates"] == 0
    assert {world.state(copy) for copy in (*first, *later)} == {"present"}


class TestShareGuard:
    """Many small sweeps must not do what one large one has to ask for."""

    def _shrink(self, world: World, count: int) -> dict[str, Any]:
        roles = {"hot": {"keep": "newest", "count": count}}
        guard = {"grace": "3d", "share_guard": "50%", "share_guard_min": 2}
        world.promote({"quarantine": guard, "roles": roles})
        world.mark()
        return world.sweep()

    def test_a_day_of_small_sweeps_is_stopped_and_goes_on_when_approved(self, world: World) -> None:
        found = save(world, range(1, 13), 10)
        world.advance(timedelta(days=2))
        self._shrink(world, 1)
        approval.approve_now(world.catalog, PROJECT, actor="operator:ann", because="I looked")
        # It was of all that goes now, but under a policy that was replaced before anything went.
        for count in (10, 8, 6):
            told = self._shrink(world, count)
            assert (told["stop"], told["quarantined"]) == (None, 2)
            world.advance(timedelta(hours=1))
        told = self._shrink(world, 4)
        assert told["stop"].startswith(
            "with the 6 taken in the last day it would take 8 of 12 copies older than a day"
        )
        assert told["quarantined"] == 0
        approval.approve_now(world.catalog, PROJECT, actor="operator:ann", because="I looked")
        assert (world.sweep()["quarantined"], world.state(found[7])) == (2, "quarantined")
        world.advance(timedelta(days=1))  # another day
        told = self._shrink(world, 2)
        assert (told["stop"], told["quarantined"]) == (None, 2)

    def test_what_lived_shorter_than_a_day_is_no_matter_of_the_day(self, world: World) -> None:
        save(world, range(1, 13), 10)
        for count in (10, 8, 6, 4):
            told = self._shrink(world, count)
            assert (told["stop"], told["quarantined"]) == (None, 2)


class TestSpillStore:
    """A second store that the policy approves."""

    @pytest.fixture
    def spill(self, world: World, tmp_path: Path) -> FileStore:
        (tmp_path / "spill").mkdir()
        store = FileStore("spill", tmp_path / "spill")
        config = {"name": "spill", "kind": "file", "root": str(tmp_path / "spill")}
        with world.catalog.transaction() as tx:
            projects.put_store(tx, StoreRow("spill", "file", config, "rack-2", "fast"))
        control_keys.claim(world.catalog, store)
        world.stores["spill"] = store
        return store

    @pytest.fixture
    def policy(self, world: World) -> Policy:
        bounds = {"soft": "300kB", "hard": "400kB", "spill_store": "spill"}
        return world.promote({"capacity": bounds})

    def _admit(self, world: World, policy: Policy, asked: int, *, new_job: bool = False) -> str:
        with world.catalog.transaction() as tx:
            locks.project_shared(tx, PROJECT)
            both = list(world.stores.values())
            return admission.admit(
                tx, PROJECT, policy.capacity, both, asked, new_job=new_job, actor="test"
            ).name

    def test_what_finds_no_room_goes_there_and_then_is_refused_with_both_numbers(
        self, world: World, spill: FileStore, policy: Policy
    ) -> None:
        took = [self._admit(world, policy, 3 * SIZE) for _ in range(2)]
        assert took == ["local", "spill"]
        with pytest.raises(errors.NoRoom) as refused:
            self._admit(world, policy, 2 * SIZE)
        told = refused.value.facts["stores"]
        assert list(told) == ["local", "spill"]
        assert [one["in_flight_bytes"] for one in told.values()] == [3 * SIZE, 3 * SIZE]
        assert [one["missing_bytes"] for one in told.values()] == [SIZE, SIZE]
        rooms = room.now(world.catalog, PROJECT)
        assert [(one.store, one.state) for one in rooms] == [("local", "open"), ("spill", "open")]

    def test_a_new_job_goes_there_where_collection_cannot_make_room(
        self, world: World, spill: FileStore, policy: Policy
    ) -> None:
        assert self._admit(world, policy, 310_000) == "local"
        unreachable = Proof(world.now(), 310_000, 300_000, 400_000, SIZE, 1, 1, (), {}, {}, ())
        with world.catalog.transaction() as tx:
            reach_proofs.record(tx, PROJECT, "local", None, unreachable)
        took = [self._admit(world, policy, 10, new_job=each) for each in (True, False)]
        assert took == ["spill", "local"]

    def test_copies_there_are_validated_marked_swept_deleted_and_reconciled_like_others(
        self, world: World, spill: FileStore, policy: Policy, tmp_path: Path
    ) -> None:
        world.store = spill
        with world.catalog.transaction() as tx:
            capacity.locked_use(tx, PROJECT, "spill")  # as admission does
        copies = save(world, [1, 2, 3], receipt=None)
        assert {copy.store for copy in copies} == {"spill"}
        for copy in copies:
            told = validate.run(world.catalog, world.stores, copy.copy_id, "checksum")
            assert told["verdict"] == "pass"
        world.mark()
        world.sweep()
        assert world.state(copies[0]) == "quarantined"
        world.advance(GRACE)
        world.mark()
        assert world.sweep()["deleted"] == 1
        assert world.keys(copies[0]) == {}
        with world.catalog.transaction() as tx:
            used = capacity.use(tx, PROJECT, "spill").own.committed_bytes
        assert used == sum(copy.stored_bytes for copy in copies[1:])
        on_disk = sum(
            path.stat().st_size
            for path in (tmp_path / "spill").rglob("*")
            if path.is_file() and copies[1].prefix in str(path)
        )
        assert on_disk == copies[1].stored_bytes
        end = world.now()
        told = reconcile.run(
            world.catalog,
            world.stores,
            PROJECT,
            window=(end - timedelta(days=1), end),
            report_dir=tmp_path / "reports",
            actor="dag:test",
        )
        assert [(one["store"], one["passed"]) for one in told["reports"]] == [
            ("local", True),
            ("spill", True),
        ]


class TestSharedStore:
    """Two projects in one store: the shares bound what both have there."""

    @pytest.fixture
    def policy(self, world: World, policy: Policy) -> Policy:
        with world.catalog.transaction() as tx:
            projects.put(tx, Project("other", "team", "local", "short", {}, None))
            locks.project_exclusive(tx, "other")
            policy_versions.promote(
                tx, "other", "short", policy.digest, policy.to_json(), recorded_by="test"
            )
        fill(world, 1000)  # soft 750, hard 850
        return policy

    def _admit(self, tx: Any, world: World, project: str, policy: Policy, asked: int) -> str:
        locks.project_shared(tx, project)
        return admission.admit(
            tx, project, policy.capacity, [world.store], asked, actor="test"
        ).name

    def test_of_two_projects_one_takes_the_last_room_although_both_asked_at_once(
        self, world: World, policy: Policy
    ) -> None:
        def other() -> str:
            with world.catalog.transaction() as tx:
                return self._admit(tx, world, "other", policy, 600)

        with world.catalog.transaction() as tx:
            assert self._admit(tx, world, PROJECT, policy, 600) == "local"
            session = Session(other)
            wait_until_blocked(world.owner)
        with pytest.raises(errors.NoRoom) as refused:
            session.result()
        facts = refused.value.facts
        assert (facts["usage_bytes"], facts["missing_bytes"]) == (600, 350)

    def test_crossing_soft_wakes_both(self, world: World, policy: Policy) -> None:
        with world.catalog.transaction() as tx:
            self._admit(tx, world, PROJECT, policy, 750)
        assert waiting(world) == []
        with world.catalog.transaction() as tx:
            self._admit(tx, world, PROJECT, policy, 1)
        kinds = ["receipts-wanted", "room-wanted"]
        assert waiting(world) == [(name, kind) for name in ("other", PROJECT) for kind in kinds]
        assert changes(world) == [("soft", "admitted: 1 byte")]

    def test_what_others_gave_back_before_is_promised_by_nobody(
        self, world: World, policy: Policy
    ) -> None:
        """Their last proof stands for an hour; what came back since is not claimed any more."""
        now = world.now()
        later = now + timedelta(minutes=30)
        proof = Proof(now, 900, 750, 850, 0, 50, 150, ((now, 100), (later, 10)), {}, {}, ())
        with world.catalog.transaction() as tx:
            reach_proofs.record(tx, "other", "local", None, proof)
            assert reach_proofs.returning_to_others(tx, PROJECT, "local") == [(10, later)]

    def test_both_states_are_their_own(self, world: World, policy: Policy) -> None:
        with world.catalog.transaction() as tx:
            self._admit(tx, world, PROJECT, policy, 800)
        pressure.observe(world.catalog, "other", cause="looked", actor="test")
        found = {one.project: one.numbers for one in room.now(world.catalog)}
        assert found["other"]["usage_bytes"] + found["other"]["in_flight_bytes"] == 800
        assert (found["other"]["project_bytes"], found["other"]["state"]) == (0, "soft")
