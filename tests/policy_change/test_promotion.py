"""A policy takes the place of another only by a fresh difference, and its sweeps wait and ask."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.retention.promotions import Promotion
from lastgood.catalog.settings import policy_versions
from lastgood.flows import scheduled
from lastgood.flows.policy_change import policy_diff, promotion
from lastgood.flows.retention import mark
from lastgood.flows.settings import apply as applying
from lastgood.flows.sweeping import sweep
from tests.policy_change.test_policy_diff import record
from tests.retention.world import PROJECT, World

ONE = {"hot": {"keep": "newest", "count": 1}}
FIVE = {"hot": {"keep": "newest", "count": 5}}
HOUR = timedelta(hours=1)


def in_force(world: World) -> str:
    with world.catalog.transaction() as tx:
        return policy_versions.current(tx, PROJECT).name


def diff(world: World, current: str, candidate: str, **options: Any) -> None:
    policy_diff.run(world.catalog, PROJECT, current, candidate, actor="operator:ann", **options)


def promote(world: World, name: str, **options: Any) -> Promotion:
    given = {"because": "less room", "actor": "operator:ann", **options}
    return promotion.promote(world.catalog, PROJECT, name, **given)


def promoted(world: World, name: str, **options: Any) -> Promotion:
    diff(world, in_force(world), name)
    return promote(world, name, **options)


def commits(world: World, sequences: Sequence[int]) -> list[Copy]:
    return [world.commit(sequence) for sequence in sequences]


def test_a_promotion_needs_a_fresh_difference_against_the_policy_in_force(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(world, (1, 2, 3))
    one = record(world, "candidate", ONE)
    with pytest.raises(errors.Conflict, match=r"no difference .* was recorded; run `lastgood pol"):
        promote(world, one)
    diff(world, one, "short@v1")  # the other way round shows nothing
    with pytest.raises(errors.Conflict, match="no difference"):
        promote(world, one)
    diff(world, "short@v1", one)
    world.advance(timedelta(days=1, minutes=1))
    with pytest.raises(
        errors.Conflict, match=r"longer ago than promotion\.difference_max_age of 1d"
    ):
        promote(world, one)
    diff(world, "short@v1", one, until=world.now() - timedelta(days=2))
    with pytest.raises(errors.Conflict, match=r"difference \d+ ends at"):
        promote(world, one)
    with monkeypatch.context() as older:
        older.setattr(policy_diff, "made_by", lambda: ("0.0.9", "2020a"))
        diff(world, "short@v1", one)
    with pytest.raises(
        errors.Conflict,
        match=r"made by code 0\.0\.9 with time-zone data 2020a, .*; where this one runs, run `last",
    ):
        promote(world, one)
    diff(world, "short@v1", one)
    (fits,) = world.row("SELECT max(difference_id) FROM lastgood.policy_differences")
    with monkeypatch.context() as older:  # what is newer and does not fit hides nothing
        older.setattr(policy_diff, "made_by", lambda: ("0.0.9", "2020a"))
        diff(world, "short@v1", one)
    diff(world, "short@v1", one, until=world.now() - timedelta(days=2))
    told = promote(world, one)
    assert told.difference_id == fits
    assert (told.name, told.replaces, told.asked_by) == (one, "short@v1", "operator:ann")
    assert in_force(world) == one
    with pytest.raises(errors.Conflict, match="in force already"):
        promote(world, one)
    world.promote({"roles": FIVE})  # applied since: the difference was against another
    with pytest.raises(errors.Conflict, match="no difference"):
        promote(world, one)


def test_the_first_mark_under_a_promotion_says_so_and_its_sweep_waits(world: World) -> None:
    old = commits(world, (1, 2, 3))
    before = mark.run(world.catalog, PROJECT)
    under_way = sweep.plan(world.catalog, PROJECT)
    one = record(world, "candidate", ONE)
    asked = promoted(world, one)
    told = sweep.execute(world.catalog, world.stores, under_way, "dag:test")
    assert (len(under_way.quarantine), told["quarantined"]) == (1, 0)
    assert "was made under another policy" in told["reasons"][str(old[0].checkpoint)]
    with pytest.raises(errors.MarkNotSweepable, match="no more in force"):
        world.sweep()
    told = mark.run(world.catalog, PROJECT)
    assert (before["first_under"], told["first_under"]) == (
        None,
        f"promotion {asked.promotion_id} of {one}",
    )
    assert mark.run(world.catalog, PROJECT)["first_under"] is None
    waiting = world.sweep()
    assert waiting["quarantined"] == 0
    assert "was promoted and took effect" in waiting["stop"]
    assert {world.state(copy) for copy in old} == {"present"}
    assert f"waits: {one} was promoted" in str(sweep.plan(world.catalog, PROJECT))
    world.advance(HOUR)
    world.mark()
    assert world.sweep()["quarantined"] == 2
    with world.catalog.transaction() as tx:
        first = promotion.promotions.get(tx, PROJECT, asked.promotion_id).first_mark
    assert first == told["mark_id"]


def test_the_former_share_guard_holds_over_the_first_sweep_and_asks_once_it_may_go(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    world.promote(
        {
            "roles": {"hot": {"keep": "newest", "count": 9}},
            "quarantine": {"grace": "1h", "share_guard": "50%", "share_guard_min": 1},
        }
    )
    commits(world, range(1, 9))
    lax = {"grace": "1h", "share_guard": "100%", "share_guard_min": 100}
    one = record(world, "candidate", ONE, quarantine=lax)
    promoted(world, one)
    world.mark()
    assert scheduled.plans_to_approve() == []
    world.advance(2 * HOUR)
    world.mark()
    told = world.sweep()
    assert told["quarantined"] == 0
    assert "more than quarantine.share_guard" in told["stop"]
    assert [one["project"] for one in scheduled.plans_to_approve()] == [PROJECT]


def test_a_second_promotion_lifts_neither_the_wait_nor_the_guard_of_the_first(
    world: World,
) -> None:
    """A lax step between must not make the way free."""
    strict = {"grace": "1h", "share_guard": "50%", "share_guard_min": 1}
    lax = {"grace": "1h", "share_guard": "100%", "share_guard_min": 100}
    none = {"cooling": "0s"}
    nine = {"hot": {"keep": "newest", "count": 9}}
    world.promote({"roles": nine, "quarantine": strict, "promotion": {"cooling": "6h"}})
    commits(world, range(1, 9))
    first = promoted(world, record(world, "lax", nine, quarantine=lax, promotion=none))
    world.advance(timedelta(minutes=1))
    one = record(world, "candidate", ONE, quarantine=lax, promotion=none)
    diff(world, "lax@v1", one)
    told = policy_diff.run(world.catalog, PROJECT, "lax@v1", one, actor="operator:ann").document
    assert told["first_sweep"]["must_be_approved"]
    assert promote(world, one).cooling == timedelta()
    world.mark()
    assert f"{first.name} was promoted" in world.sweep()["stop"]
    world.advance(6 * HOUR)
    world.mark()
    told = world.sweep()
    assert (told["quarantined"], "share_guard" in told["stop"]) == (0, True)


def test_a_promotion_that_is_to_come_is_undone_by_a_rollback_to_what_is_in_force(
    world: World,
) -> None:
    commits(world, (1, 2, 3))
    one = record(world, "candidate", ONE)
    diff(world, "short@v1", one)
    with pytest.raises(errors.Conflict, match="in force already"):
        promote(world, "short@v1", kind="rollback")
    coming = promote(world, one, at=world.now() + 3 * HOUR)
    with pytest.raises(errors.Conflict, match="rollback short@v1 -p vision` undoes prom"):
        promote(world, "short@v1")
    with pytest.raises(errors.InvalidInput, match="undone at once"):
        promote(world, "short@v1", kind="rollback", at=world.now() + HOUR)
    undo = promote(world, "short@v1", kind="rollback")
    assert (undo.replaces, undo.difference_id, undo.cooling) == (
        "short@v1",
        coming.difference_id,
        timedelta(),
    )
    with world.catalog.transaction() as tx:
        shown = promotion.listed(tx, PROJECT)
        taken = [one.name for one in policy_versions.times_in_force(tx, PROJECT)]
    assert [one["overtaken"] for one in shown] == [False, True]
    assert taken == ["short@v1", "short@v1"]
    world.advance(3 * HOUR + timedelta(minutes=1))
    assert in_force(world) == "short@v1"
    world.mark()
    assert (world.sweep()["quarantined"], world.sweep()["stop"]) == (1, None)
    with pytest.raises(errors.Conflict, match="in force already"):  # nothing is to come
        promote(world, "short@v1", kind="rollback")


def test_a_promotion_waits_for_its_instant_and_a_later_rollback_undoes_it(world: World) -> None:
    commits(world, (1, 2))
    one = record(world, "candidate", ONE)
    diff(world, "short@v1", one)
    with pytest.raises(errors.InvalidInput, match="has passed"):
        promote(world, one, at=world.now() - HOUR)
    with pytest.raises(errors.Conflict, match=r"by more than promotion\.diff.* nearer to that ins"):
        promote(world, one, at=world.now() + timedelta(days=1, minutes=1))
    at = world.now() + 3 * HOUR
    asked = promote(world, one, at=at)
    assert (asked.takes_effect, in_force(world)) == (at, "short@v1")
    told = mark.run(world.catalog, PROJECT)
    assert (told["policy"], told["first_under"]) == ("short version 1", None)
    world.advance(4 * HOUR)
    with world.catalog.transaction() as tx:
        assert [one["overtaken"] for one in promotion.listed(tx, PROJECT)] == [False]
    told = mark.run(world.catalog, PROJECT)
    assert (told["policy"], bool(told["first_under"])) == ("candidate version 1", True)
    with pytest.raises(errors.Conflict, match="no difference"):
        promote(world, "short@v1", kind="rollback")
    back = promoted(world, "short@v1", kind="rollback", because="too few")
    assert (back.kind, in_force(world)) == ("rollback", "short@v1")
    again = mark.run(world.catalog, PROJECT)
    assert again["first_under"] == f"promotion {back.promotion_id} of short@v1"
    then = mark.run(world.catalog, PROJECT, at=at + HOUR / 2, kind="replay")
    assert then["policy"] == "candidate version 1"
    never = record(world, "other", FIVE)
    diff(world, "short@v1", never)
    with pytest.raises(errors.Conflict, match="was never in force"):
        promote(world, never, kind="rollback")


def test_another_operator_approves_where_the_policy_in_force_asks_for_it(world: World) -> None:
    world.promote({"promotion": {"approve": True, "cooling": "6h"}})
    commits(world, (1, 2, 3))
    one = record(world, "candidate", ONE)  # asks for nothing itself
    asked = promoted(world, one)
    assert (asked.takes_effect, asked.cooling, in_force(world)) == (None, 6 * HOUR, "short@v2")
    with pytest.raises(errors.Forbidden, match="asked for themselves"):
        promotion.approve(
            world.catalog, PROJECT, asked.promotion_id, because="mine", actor="operator:ann"
        )
    world.advance(HOUR)
    done = promotion.approve(
        world.catalog, PROJECT, asked.promotion_id, because="seen", actor="operator:bob"
    )
    assert (done.approved_by, done.takes_effect) == ("operator:bob", done.approved_at)
    assert in_force(world) == one
    told = promotion.to_json(done)
    assert told["sweeps_wait_until"] == done.approved_at + 6 * HOUR  # type: ignore[operator]
    with pytest.raises(errors.Conflict, match="waits for nobody"):
        promotion.approve(
            world.catalog, PROJECT, asked.promotion_id, because="twice", actor="operator:bob"
        )


def test_an_approval_needs_a_fresh_difference_too_and_that_nothing_was_decided_since(
    world: World,
) -> None:
    world.promote({"promotion": {"approve": True}})
    commits(world, (1, 2, 3))
    one = record(world, "candidate", ONE)

    def approve(asked: Promotion) -> Promotion:
        return promotion.approve(
            world.catalog, PROJECT, asked.promotion_id, because="seen", actor="operator:bob"
        )

    asked = promoted(world, one)
    world.advance(timedelta(days=30))
    with pytest.raises(errors.Conflict, match=r"longer ago .*; run `.* diff short@v2 .*-p vision`"):
        approve(asked)
    diff(world, "short@v2", one)
    again = promote(world, one, at=world.now() + HOUR)
    assert approve(again).takes_effect == again.effective_from
    promote(world, "short@v2", kind="rollback")  # undoes it before its instant
    with pytest.raises(errors.Conflict, match="was decided since promotion 1 was asked for"):
        approve(asked)
    with world.catalog.transaction() as tx:
        assert [one["overtaken"] for one in promotion.listed(tx, PROJECT)] == [False, True, True]


def test_an_approval_comes_too_late_once_another_policy_is_in_force(world: World) -> None:
    world.promote({"promotion": {"approve": True}})
    asked = promoted(world, record(world, "candidate", ONE))
    world.promote({"roles": FIVE})
    with pytest.raises(errors.Conflict, match="was shown against short@v2"):
        promotion.approve(
            world.catalog, PROJECT, asked.promotion_id, because="seen", actor="operator:bob"
        )


def _configuration(folder: Path, count: int, setting: str) -> Path:
    for kind in ("stores", "projects", "policies"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "stores/disk.yaml").write_text(
        f"name: disk\nkind: file\nroot: {folder}/bytes\nfailure_domain: here\ntier: fast\n"
    )
    (folder / "projects/speech.yaml").write_text(
        "name: speech\nowner: me\nstore: disk\npolicy: plain\nfinding_owner: me\n"
        f"promotion: {setting}\n"
    )
    (folder / "policies/plain.yaml").write_text(
        f"name: plain\nroles: {{hot: {{keep: newest, count: {count}}}}}\n"
    )
    return folder


def test_apply_does_not_go_round_a_required_promotion(world: World, tmp_path: Path) -> None:
    def applied(count: int, setting: str = "required") -> list[tuple[str, str]]:
        folder = _configuration(tmp_path / "config", count, setting)
        changes = applying.apply(world.catalog, folder, actor="operator:ann")
        return [(one.name, one.how) for one in changes if one.what == "policy"]

    def holds() -> str:
        with world.catalog.transaction() as tx:
            return policy_versions.current(tx, "speech").name

    assert applied(4) == [("speech/plain", "added")]  # the first takes force at once
    assert applied(3) == [("speech/plain@v2", "recorded")]
    assert applied(3) == []
    # Lifting the rule counts from the next change on.
    assert applied(2, "on-apply") == [("speech/plain@v3", "recorded")]
    assert applied(2, "on-apply") == [("speech/plain@v3", "waits")]  # nor has its repetition it
    assert holds() == "plain@v1"
    assert applied(1, "on-apply") == [("speech/plain", "changed")]
    assert holds() == "plain@v4"
    policy_diff.run(world.catalog, "speech", "plain@v4", "plain@v1", actor="operator:ann")
    promotion.promote(
        world.catalog, "speech", "plain@v1", because="back", actor="operator:ann", kind="rollback"
    )
    assert applied(1, "on-apply") == []  # the file is as it was: the rollback stands
    assert holds() == "plain@v1"
