"""Each decision about a stage is by the rules that the policy has for that stage.

`pretrain` has the policy's own rules, `sft` those of an override; both lie in one document with one
digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from lastgood.catalog import locks
from lastgood.catalog.jobs import attempts, stages
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.retention import marks
from lastgood.catalog.validation import receipts
from lastgood.flows import overview, quarantine
from lastgood.flows.cleaning import cleanup_plan
from lastgood.flows.keeping import hold, release_preview
from lastgood.flows.retention import mark, roles
from lastgood.flows.retention.why import why
from lastgood.flows.sweeping import sweep
from lastgood.flows.validation import validate
from lastgood.flows.validation.examination import examine
from lastgood.flows.validation.levels import Examined, Ladder
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Level
from tests.retention.world import PROJECT, World, candidates_of_mark

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def override(world: World, sections: Mapping[str, Any], **own: Any) -> Policy:
    """Put a policy in force with other sections for the stage `sft`."""
    return world.promote({**own, "overrides": [{"workloads": "g*", "stages": "sft", **sections}]})


def commits(world: World, number: int, stage: str, **options: Any) -> list[Copy]:
    return [world.commit(sequence, stage=stage, **options) for sequence in range(1, number + 1)]


def candidates(world: World, mark_id: int) -> dict[int, str]:
    with world.catalog.transaction() as tx:
        return {each.copy_id: each.leaves for each in candidates_of_mark(tx, PROJECT, mark_id)}


def ids(copies: list[Copy]) -> set[int]:
    return {copy.copy_id for copy in copies}


ONE = {"roles": {"last": {"keep": "newest", "count": 1, "leaves_when": "newer_restored"}}}


def test_a_mark_the_roles_and_why_are_by_the_rules_of_each_stage(world: World) -> None:
    policy = override(world, ONE)
    own, other = commits(world, 4, "pretrain"), commits(world, 4, "sft")

    mark_id = world.mark()

    with world.catalog.transaction() as tx:
        assert marks.get(tx, PROJECT, mark_id).policy_digest == policy.digest
    left = candidates(world, mark_id)
    assert left == {copy.copy_id: "hot" for copy in own[:2]} | {
        copy.copy_id: "last" for copy in other[:3]
    }
    assert roles.of_stage(world.catalog, PROJECT, own[2].stage_id)[1, 3].names == ["hot"]
    assert roles.of_stage(world.catalog, PROJECT, other[2].stage_id)[1, 3].names == ["leaves: last"]
    told = why(world.catalog, world.stores, other[2].checkpoint)
    assert told.override == "workloads g*, stages sft"
    assert told.policy_digest == policy.digest
    assert told.leaving is not None
    assert (told.kept, told.leaving.role_name) == ((), "last")
    # The gate recomputes the roles under the lock, and asks for what the override's role asks.
    verdict = told.copies[0].verdict
    assert verdict is not None
    assert verdict.allowed, str(verdict)
    kept = why(world.catalog, world.stores, own[2].checkpoint)
    assert (kept.override, [reason.name for reason in kept.kept]) == (None, ["hot"])


def test_a_replay_is_by_the_overrides_of_the_policy_in_force_then(world: World) -> None:
    other = commits(world, 3, "sft")
    live = mark.run(world.catalog, PROJECT)
    with world.catalog.transaction() as tx:
        then = marks.get(tx, PROJECT, live["mark_id"]).at
    override(world, ONE)
    now = world.mark()

    def replayed(policy: str | None) -> dict[str, Any]:
        return mark.run(world.catalog, PROJECT, at=then, kind="replay", policy=policy)

    assert set(candidates(world, now)) == ids(other[:2])
    assert replayed(None)["digest"] == live["digest"]
    assert set(candidates(world, replayed(None)["mark_id"])) == ids(other[:1])
    assert set(candidates(world, replayed("short:2")["mark_id"])) == ids(other[:2])
    assert replayed("short:1")["digest"] == live["digest"]


def test_the_gate_asks_each_stage_for_its_own_level_and_age(world: World) -> None:
    override(world, {"gate": {"level": "format", "receipt_max_age": "1h"}})
    own, other = commits(world, 3, "pretrain"), commits(world, 3, "sft")
    world.mark()

    def newer_passed(copy: Copy) -> str:
        (told,) = why(world.catalog, world.stores, copy.checkpoint).copies
        assert told.verdict is not None
        return told.verdict.facts.newer_passed.truth.value

    assert (newer_passed(own[0]), newer_passed(other[0])) == ("true", "false")
    world.receipt(other[2], "pass", "format")
    assert newer_passed(other[0]) == "true"
    world.advance(2 * HOUR)
    assert (newer_passed(own[0]), newer_passed(other[0])) == ("true", "false")


def test_each_copy_waits_the_grace_of_its_stage_in_quarantine(world: World) -> None:
    override(world, {"quarantine": {"grace": "10m"}})
    (own, *_), (other, *_) = commits(world, 3, "pretrain"), commits(world, 3, "sft")
    world.mark()
    world.sweep()
    listed = {one.copy.copy_id: one for one in quarantine.listed(world.catalog, PROJECT)}
    waits = {copy_id: one.deletable_at - one.copy.state_at for copy_id, one in listed.items()}
    assert waits == {own.copy_id: HOUR, other.copy_id: 10 * MINUTE}

    world.advance(11 * MINUTE)
    world.mark()

    assert [copy.copy_id for copy in sweep.plan(world.catalog, PROJECT).delete] == [other.copy_id]
    world.sweep()
    assert (world.state(own), world.state(other)) == ("quarantined", "deleted")


def failed(world: World, stage: str) -> Attempt:
    attempt = world.prepare(2, {"a": b"a"}, stage=stage)
    with world.catalog.transaction() as tx:
        stages.locked(tx, PROJECT, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        for to in (attempts.State.SEALED, attempts.State.FAILED):
            now = attempts.get(tx, PROJECT, attempt.attempt_id)
            attempts.transition(tx, now, to, actor="runner:test", reason="digest", manifest=b"{}")
    return attempt


def test_each_upload_and_its_evidence_have_the_time_of_their_stage(world: World) -> None:
    override(world, {"uploads": {"abort_after": "3h"}, "forensic_retention": "5d"})
    evidence = [failed(world, "pretrain"), failed(world, "sft")]
    own = world.prepare(1, {"a": b"a"})
    other = world.prepare(1, {"a": b"a"}, stage="sft")

    world.advance(2 * HOUR)
    first = cleanup_plan.plan(world.catalog, PROJECT)
    world.advance(2 * HOUR)
    second = cleanup_plan.plan(world.catalog, PROJECT)

    assert [one.attempt_id for one in first.abort] == [own.attempt_id]
    assert "3:00:00" in first.waiting[other.attempt_id]
    assert {one.attempt_id for one in second.abort} == {own.attempt_id, other.attempt_id}
    world.advance(3 * DAY)
    old = cleanup_plan.plan(world.catalog, PROJECT).evidence
    assert [one.attempt_id for one in old] == [evidence[0].attempt_id]


class _Noting(Ladder):
    """Notes by what rules each copy is examined."""

    noted: ClassVar[list[str]] = []

    def examine(self, level: Level, store: Any, subject: Any, policy: Any) -> Examined:
        self.noted.append(policy.non_finite)
        return super().examine(level, store, subject, policy)


def test_validation_is_due_and_done_by_the_rules_of_each_stage(world: World) -> None:
    override(world, {"validate": {"checksum": "every", "format": "every", "non_finite": "warn"}})
    own = world.commit(1, receipt=None)
    other = world.commit(1, stage="sft", receipt=None)

    due = validate.due_levels(world.catalog, PROJECT)
    ladder = _Noting()
    for copy in (own, other):
        examine(
            world.catalog, world.stores, ladder, PROJECT, copy.copy_id, Level.CHECKSUM, "dag:test"
        )

    assert due == {
        own.copy_id: [Level.CHECKSUM],
        other.copy_id: [Level.CHECKSUM, Level.FORMAT],
    }
    assert ladder.noted == ["fail", "warn"]


@pytest.mark.parametrize(
    ("stage", "levels"), [("pretrain", {"checksum"}), ("sft", {"checksum", "format"})]
)
def test_a_walk_back_climbs_to_the_gates_level_of_the_stage(
    world: World, stage: str, levels: set[str]
) -> None:
    override(world, {"gate": {"level": "format"}})
    older, newer = commits(world, 2, stage, receipt=None)
    newest = world.store.root / newer.prefix / "objects/model.bin"  # type: ignore[attr-defined]
    newest.chmod(0o600)
    newest.write_bytes(b"x")

    validate.run(world.catalog, world.stores, newer.copy_id)

    with world.catalog.transaction() as tx:
        found = receipts.of_copy(tx, PROJECT, older.copy_id)
    assert {receipt.level for receipt in found} == levels


def test_what_the_end_of_a_hold_leaves_is_by_the_rules_of_each_stage(world: World) -> None:
    override(world, ONE)
    new = NewHold("research", "lab", "ablation", "operator:ann")
    held = {
        stage: hold.place(
            world.catalog, world.stores, PROJECT, new, commits(world, 3, stage)[1].checkpoint
        )
        for stage in ("pretrain", "sft")
    }

    told = {
        stage: [
            leaving.role
            for leaving in release_preview.preview(world.catalog, PROJECT, placed.hold_id)
        ]
        for stage, placed in held.items()
    }

    assert told == {"pretrain": [], "sft": ["last"]}


def test_each_stage_is_measured_against_its_own_objectives(world: World) -> None:
    override(
        world,
        {"objectives": {"rpo": "1m", "rto": "15m", "max_overhead": "5%"}},
        objectives={"rpo": "30m"},
    )
    world.commit(1)
    world.commit(1, stage="sft")
    world.advance(5 * MINUTE)

    alerts = overview.overview(world.catalog, world.stores, PROJECT).alerts

    late = [alert for alert in alerts if "since its last commit" in alert]
    assert len(late) == 1
    assert late[0].startswith("vision/gpt/sft:")
