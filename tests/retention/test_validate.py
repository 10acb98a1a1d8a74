"""A receipt says what the bytes are; only proven corruption stops a stage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs import checkpoints, generations, stages
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping import holds
from lastgood.catalog.reconciliation import reports
from lastgood.catalog.validation import receipts, validations
from lastgood.catalog.views import measurements
from lastgood.flows import quarantine
from lastgood.flows.auditing import audit
from lastgood.flows.inventories import tally
from lastgood.flows.jobs import read
from lastgood.flows.reconciliation import damage as damage_flow
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.validation import checksum, validate
from lastgood.rules import layout
from lastgood.stores.base import Key, Store, StoreError
from tests.retention.world import PROJECT, World


def run(world: World, copy: Copy) -> dict[str, Any]:
    return validate.run(world.catalog, world.stores, copy.copy_id)


def path_of(world: World, copy: Copy, name: str = "objects/model.bin") -> Path:
    root: Path = world.store.root  # type: ignore[attr-defined]
    return root / copy.prefix / name


def flip_a_byte(world: World, copy: Copy) -> None:
    path = path_of(world, copy)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def shorten(world: World, copy: Copy) -> None:
    path = path_of(world, copy)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])


def lose_the_object(world: World, copy: Copy) -> None:
    path_of(world, copy).unlink()


def lose_the_manifest(world: World, copy: Copy) -> None:
    path_of(world, copy, layout.MANIFEST_NAME).unlink()


def replace_the_manifest(world: World, copy: Copy) -> None:
    path = path_of(world, copy, layout.MANIFEST_NAME)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b'"step":', b'"step" :'))


def lose_the_marker(world: World, copy: Copy) -> None:
    path_of(world, copy, layout.MARKER_NAME).unlink()


CORRUPTIONS = [
    flip_a_byte,
    shorten,
    lose_the_object,
    lose_the_manifest,
    replace_the_manifest,
    lose_the_marker,
]


def latest(world: World) -> tuple[int, int] | None:
    with world.catalog.transaction() as tx:
        stage = stages.find_locked(tx, world.stage_name())
        found = checkpoints.latest(tx, stage)
        return None if found is None else found.id.position


def test_a_sound_copy_passes_and_every_byte_was_read(world: World) -> None:
    copy = world.commit(1, {"a": b"x" * 1000, "b/c": b"", "d": b"yy"}, receipt=None)
    told = run(world, copy)
    assert (told["verdict"], told["bytes_read"]) == ("pass", 1002)
    assert list(validate.due_levels(world.catalog, PROJECT)) == []


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_every_kind_of_corruption_fails_fences_and_walks_back(
    world: World, corrupt: Callable[[World, Copy], None]
) -> None:
    good, bad = world.commit(1, receipt=None), world.commit(2, receipt=None)
    corrupt(world, bad)
    told = run(world, bad)
    assert told["verdict"] == "fail"
    assert told["established"] == str(good.checkpoint)
    assert told["blocked"] is False
    assert latest(world) == (1, 1)
    with world.catalog.transaction() as tx:
        chain = receipts.of_stage(tx, PROJECT, bad.stage_id)
        generation = generations.get(tx, PROJECT, bad.stage_id, 1)
    assert [(each.copy_id, each.verdict) for each in chain] == [
        (bad.copy_id, "fail"),
        (good.copy_id, "pass"),
    ]
    assert audit.run(world.catalog, PROJECT).breaks == []
    assert generation.fenced is not None
    assert world.row(
        "SELECT blocked, established FROM lastgood.restore_blocks ORDER BY number DESC LIMIT 1"
    ) == (False, good.checkpoint_id)
    kinds = [kind for (kind,) in world.owner.execute("SELECT kind FROM lastgood.events")]
    assert [kind for kind in kinds if kind in ("restore-blocked", "pointer-reset")] == [
        "restore-blocked",
        "pointer-reset",
    ]


def test_with_no_earlier_checkpoint_that_passes_the_stage_stays_blocked(world: World) -> None:
    copies = [world.commit(sequence, receipt=None) for sequence in (1, 2)]
    for copy in copies:
        flip_a_byte(world, copy)
    told = run(world, copies[1])
    assert (told["blocked"], told["established"]) == (True, None)
    with pytest.raises(errors.RestoreBlocked):
        read.latest(world.catalog, world.stage_name())


def test_an_old_copy_that_fails_does_not_move_a_pointer_that_passes(world: World) -> None:
    bad, newest = world.commit(1, receipt=None), world.commit(2, receipt=None)
    flip_a_byte(world, bad)
    told = run(world, bad)
    assert told["established"] == str(newest.checkpoint)
    assert latest(world) == (1, 2)


def test_a_corrupted_copy_is_kept_as_evidence_and_leaves_afterwards(world: World) -> None:
    world.promote({"forensic_retention": "10d"})
    bad = world.commit(1, receipt=None)
    flip_a_byte(world, bad)
    assert run(world, bad)["verdict"] == "fail"
    world.advance(timedelta(days=4))
    assert run(world, bad)["verdict"] == "fail"  # a failure found again does not prolong it
    with world.catalog.transaction() as tx:
        (hold,) = holds.on_checkpoint(tx, PROJECT, bad.checkpoint_id)
    assert (hold.kind, hold.owner) == ("incident", "lastgood")
    assert hold.expires_at is not None
    kept_for = hold.expires_at - hold.recorded_at
    assert abs(kept_for - timedelta(days=10)) < timedelta(minutes=1)
    for sequence in (2, 3, 4):
        world.commit(sequence)
    world.advance(timedelta(days=5))
    world.receipt(world.commit(5))
    world.mark()
    world.sweep()
    assert world.state(bad) == "present"
    world.advance(timedelta(days=1, minutes=1))
    world.receipt(world.commit(6))
    world.mark()
    world.sweep()
    assert world.state(bad) == "quarantined"


def test_a_generation_that_resumed_from_a_corrupt_checkpoint_is_fenced(world: World) -> None:
    bad = world.commit(1, receipt=None)
    world.commit(2, receipt=None)
    world.generation(2, resumed_from=bad.checkpoint.position)
    flip_a_byte(world, bad)
    run(world, bad)
    with world.catalog.transaction() as tx:
        assert generations.get(tx, PROJECT, bad.stage_id, 2).fenced is not None


class _Failing:
    """A store that cannot open some keys just now."""

    def __init__(self, store: Store, part: str) -> None:
        self._store = store
        self.part: str | None = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, key: Key, **options: Any) -> Any:
        if self.part is not None and self.part in key:
            raise StoreError(store="local", key=key, reason="I/O error")
        return self._store.open(key, **options)


def test_a_store_that_cannot_be_read_is_inconclusive_and_stops_nothing(world: World) -> None:
    copy = world.commit(1, receipt=None)
    failing = _Failing(world.store, "model.bin")
    world.stores["local"] = failing
    told = run(world, copy)
    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    assert "I/O error" in told["reason"]
    assert list(validate.due_levels(world.catalog, PROJECT)) == [copy.copy_id]
    failing.part = None
    assert run(world, copy)["verdict"] == "pass"


def test_the_walk_back_does_not_step_over_what_cannot_be_read(world: World) -> None:
    world.commit(1, receipt=None)
    unread = world.commit(2, receipt=None)
    bad = world.commit(3, receipt=None)
    flip_a_byte(world, bad)
    failing = _Failing(world.store, unread.prefix)
    world.stores["local"] = failing
    told = run(world, bad)
    assert (told["blocked"], told["established"]) == (True, None)
    assert next(iter(validate.due_levels(world.catalog, PROJECT))) == unread.copy_id
    failing.part = None
    told = run(world, unread)
    assert told["established"] == str(unread.checkpoint)
    assert latest(world) == (1, 2)


def test_a_store_that_is_not_mounted_proves_no_corruption(world: World) -> None:
    copy = world.commit(1, receipt=None)
    root: Path = world.store.root  # type: ignore[attr-defined]
    mounted = [path for path in root.iterdir() if path.name in ("checkpoints", "control")]
    for path in mounted:
        path.rename(root.parent / path.name)
    told = run(world, copy)
    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    assert not (root / "control").exists()


def test_a_commit_that_still_has_its_marker_to_write_is_no_corruption(world: World) -> None:
    copy = world.commit(1, receipt=None)
    world.owner.execute("UPDATE lastgood.attempts SET finished_at = NULL")
    lose_the_marker(world, copy)
    assert list(validate.due_levels(world.catalog, PROJECT)) == []
    assert run(world, copy)["verdict"] == "inconclusive"


def test_a_quarantined_copy_is_not_read_and_one_that_comes_back_not_before_its_store_shows_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    with pytest.raises(errors.CopyState, match="quarantined"):
        run(world, old)
    assert old.copy_id not in validate.due_levels(world.catalog, PROJECT)

    def away(*_: object) -> None:
        raise StoreError(store="local", key="", reason="it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "unquarantine", away)
        with pytest.raises(StoreError, match="does not answer"):
            quarantine.undo(
                world.catalog, world.stores, old.checkpoint, because="x", actor="operator:ann"
            )
    assert world.state(old) == "present"
    told = run(world, old)  # what is hidden is not lost
    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    quarantine.follow(world.catalog, world.stores, PROJECT)
    assert run(world, old)["verdict"] == "pass"


def test_a_copy_being_read_cannot_be_swept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    states: list[str] = []
    check = checksum.check

    def sweep_meanwhile(*args: Any) -> Any:
        world.mark()
        world.sweep()
        states.append(world.state(old))
        return check(*args)

    monkeypatch.setattr(checksum, "check", sweep_meanwhile)
    assert run(world, old)["verdict"] == "pass"
    assert states == ["present"]
    assert world.row("SELECT how FROM lastgood.reader_ends") == ("released",)


def test_what_was_committed_or_grows_old_is_due(world: World) -> None:
    world.promote({"validate": {"checksum": "every", "reread_all_within": "30d"}})
    first, second = world.commit(1, receipt=None), world.commit(2, receipt=None)
    assert list(validate.due_levels(world.catalog, PROJECT)) == [second.copy_id, first.copy_id]
    for copy in (first, second):
        run(world, copy)
    assert list(validate.due_levels(world.catalog, PROJECT)) == []
    world.advance(timedelta(days=6))
    assert list(validate.due_levels(world.catalog, PROJECT)) == [second.copy_id]
    world.advance(timedelta(days=20))
    assert set(validate.due_levels(world.catalog, PROJECT)) == {first.copy_id, second.copy_id}


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_what_an_inventory_does_not_show_whole_is_validated_at_once_and_counts_no_more(
    world: World, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    kept, lost = (world.commit(number, receipt=None) for number in (1, 2))
    assert [run(world, copy)["verdict"] for copy in (kept, lost)] == ["pass", "pass"]
    damage(tmp_path / "store" / layout.object_key(lost.prefix, "model.bin"))
    assert list(validate.due_levels(world.catalog, PROJECT)) == []

    def reconciled() -> int:
        end = world.now()
        window = (end - timedelta(days=1), end)
        folder = tmp_path / "reports"
        reconcile.run(
            world.catalog, world.stores, PROJECT, window=window, report_dir=folder, actor="dag:test"
        )
        wakes = "SELECT count(*) FROM lastgood.outbox WHERE kind = 'validation-requested'"
        return int(world.row(wakes)[0])

    assert (reconciled(), reconciled()) == (1, 1)  # asked for once
    assert validate.due_levels(world.catalog, PROJECT) == {lost.copy_id: ["checksum"]}
    told = run(world, lost)  # before that a mark counts it as proven
    assert (told["verdict"], told["established"]) == ("fail", str(kept.checkpoint))
    assert (reconciled(), list(validate.due_levels(world.catalog, PROJECT))) == (
        1,
        [],
    )  # known by now


def test_damage_beyond_what_an_inventory_names_or_asks_for_is_asked_for_in_the_end(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "PLACES_LIMIT", 1)
    monkeypatch.setattr(damage_flow, "ASKED_LIMIT", 2)
    monkeypatch.setattr(damage_flow, "_BATCH_COPIES", 1)
    monkeypatch.setattr(damage_flow, "_PREFIXES", 2)
    lost = [world.commit(number, {"a": b"1", "b": b"2"}, stage=f"s{number}") for number in range(5)]
    world.commit(1)
    for copy in lost:
        for name in ("a", "b"):
            (tmp_path / "store" / layout.object_key(copy.prefix, name)).unlink()

    told = []
    for _ in range(4):
        end = world.now()
        (report,) = reconcile.run(
            world.catalog,
            world.stores,
            PROJECT,
            window=(end - timedelta(days=1), end),
            report_dir=tmp_path / "reports",
            actor="dag:test",
        )["reports"]
        with world.catalog.transaction() as tx:
            asked = validations.requested(tx, PROJECT, end)
            (measured,) = measurements.explained(tx)
            shown = reports.get(tx, report["report_id"]).document["damaged"]
        told.append((report["validations_asked"], report["validations_left"]))
        assert shown == {"asked": told[-1][0], "left": measured.damaged_left}
        assert measured.damaged_left == report["validations_left"]
        for copy_id, _ in asked:
            validate.run(world.catalog, world.stores, copy_id)
    assert told == [(2, 3), (2, 1), (1, 0), (0, 0)]


def test_an_unknown_level_is_refused(world: World) -> None:
    copy = world.commit(1)
    with pytest.raises(errors.InvalidInput, match="levels are checksum, format, restore"):
        validate.run(world.catalog, world.stores, copy.copy_id, level="thorough")


def test_a_level_that_cannot_be_tried_is_refused(world: World) -> None:
    copy = world.commit(1)
    with pytest.raises(errors.InvalidInput, match="names no contract"):
        validate.run(world.catalog, world.stores, copy.copy_id, level="restore")
