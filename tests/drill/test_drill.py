"""A drill restores what a recovery would, lives a checkpoint's life on the real store, and writes
down what it saw before it fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from lastgood import errors
from lastgood.catalog import locks
from lastgood.catalog.validation import drills
from lastgood.catalog.validation.drills import Drill
from lastgood.flows import scheduled
from lastgood.flows.auditing import audit
from lastgood.flows.drills import drill, life
from lastgood.flows.drills.scratch import open_scratch, project_of
from lastgood.flows.overview import overview
from lastgood.rules import layout
from lastgood.stores.base import Prefix
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import MakeBucket
from tests.retention.world import PROJECT, World, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACTOR = "operator:ann"


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def run(world: World, **options: Any) -> Drill:
    """A drill for which time passes at once."""
    return drill.run(
        world.catalog, world.stores, PROJECT, actor=ACTOR, wait=world.advance, **options
    )


def left_in_scratch(world: World) -> set[str]:
    """The checkpoints that a drill left in its project, by position."""
    listed = world.store.list(Prefix("checkpoints/drill-local/"))
    return {one.key.split("/")[4] for one in listed}


def restores(world: World, **options: Any) -> Drill:
    return run(world, life=False, **options)


def test_the_life_of_a_scratch_checkpoint_shows_all_that_it_must(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(1, {"model.bin": b"model" * 100})
    mine = {one.key: one.size_bytes for one in world.store.list(Prefix(f"checkpoints/{PROJECT}/"))}

    told = run(world)

    assert drill.failures(told) == []
    assert told.passed
    assert [one.number for one in told.expectations] == list(range(1, 19))
    said = "\n".join(one.expectation for one in told.expectations)
    for needed in (
        "the interrupted writer is fenced",
        "the soft watermark is crossed",
        "quarantined, and nobody can read it",
        "undone within its grace, every byte of it is there again",
        "has a certificate, and the store has nothing of it",
        "the interrupted checkpoint is reclaimed",
        "what is held survives",
        "what is read survives",
        "the newest valid checkpoint survives and is the latest",
        "usage is below the target",
        "the audit of the catalog, and of an export without it, find nothing",
    ):
        assert needed in said
    assert mine == {
        one.key: one.size_bytes for one in world.store.list(Prefix(f"checkpoints/{PROJECT}/"))
    }
    assert len(left_in_scratch(world)) == 1, "the floor keeps one between drills, and nothing else"
    assert world.row("SELECT count(*) FROM lastgood.restore_blocks") == (0,)
    assert audit.run(world.catalog).breaks == []
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    assert scheduled.project_names() == [PROJECT]
    assert scheduled.every_project_name() == [project_of("local"), PROJECT]


@pytest.mark.parametrize("versioned", [False, True])
def test_the_same_life_is_lived_in_a_bucket(
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
    ceph_client: S3Client,
    make_ceph_bucket: MakeBucket,
    versioned: bool,
) -> None:
    bucket = S3Store("local", ceph_client, make_ceph_bucket(versioned=versioned), "at")
    with opened(catalog_dsn, owner_dsn, tmp_path, store=bucket) as world:
        assert drill.failures(run(world)) == []


def test_each_stage_is_restored_in_turn_and_timed(world: World) -> None:
    for stage in ("a", "b", "c"):
        world.commit(1, stage=stage)
    world.release_writer(stage="c")
    told = [restores(world, sample=2), restores(world, sample=2)]

    assert [[one.stage for one in each.restores] for each in told] == [
        ["vision/gpt/a", "vision/gpt/b"],
        ["vision/gpt/c", "vision/gpt/a"],
    ]
    first, ended = told[0].restores[0].result, told[1].restores[0].result
    assert (first["active"], ended["active"]) == (True, False)
    assert first["levels"]["checksum"]["verdict"] == "pass"
    assert 0 < first["rto_seconds"] < first["rto_objective_seconds"]
    assert 0 < first["rpo_seconds"] < first["rpo_objective_seconds"]
    assert first["first_step"] is False
    assert told[0].passed


def test_the_sample_reaches_every_stage_within_the_period(world: World) -> None:
    for stage in ("a", "b", "c", "d", "e"):
        world.commit(1, stage=stage)
    assert [len(restores(world).restores) for _ in range(3)] == [2, 2, 2]
    world.advance(timedelta(days=40))
    late = restores(world, sample=1)
    assert not late.passed
    assert "late: vision/gpt/" in drill.failures(late)[-1]


def test_a_writer_whose_last_checkpoint_is_old_fails_the_objective(world: World) -> None:
    world.promote({"objectives": {"rpo": "30m"}})
    world.commit(1)
    world.prepare(2, {"more.bin": b"x" * 4321})
    world.advance(timedelta(hours=1))
    world.owner.execute("UPDATE lastgood.generation_leases SET expires_at = 'infinity'")
    told = restores(world)
    assert not told.passed
    result = told.restores[0].result
    assert (result["verified"], result["within_rto"], result["within_rpo"]) == (True, True, False)
    assert result["waiting_bytes"] == 4321
    assert "older than 0:30:00" in drill.failures(told)[0]


def test_damage_fails_the_drill_after_its_record_is_written(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.commit(1, {"model.bin": b"model" * 100})
    path = world.store.root / layout.object_key(copy.prefix, "model.bin")  # type: ignore[attr-defined]
    path.chmod(0o600)
    path.write_bytes(b"MODEL" * 100)
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    monkeypatch.setattr(drill, "Life", _NoLife)

    told = scheduled.drill_project(PROJECT, None)

    with pytest.raises(drill.DrillFailed, match="checksum: fail"):
        scheduled.fail_if_drill_failed(told)
    with world.catalog.transaction() as tx:
        (recorded,) = drills.newest(tx, PROJECT)
    assert recorded.passed is False
    alerts = overview(world.catalog, world.stores).alerts
    assert any(f"drill {recorded.drill_id}" in alert for alert in alerts)


class _NoLife:
    def __init__(self, *_: object, **__: object) -> None: ...

    def run(self) -> None: ...


def test_a_life_that_breaks_off_is_told_and_what_it_held_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise errors.Unavailable(what="store local", reason="it went away")

    with monkeypatch.context() as patch:
        patch.setattr(life.quarantine, "undo", refuse)
        told = run(world)
        patch.setattr(life.holds, "standing", refuse)
        again = run(world)
    (failure,) = drill.failures(told)
    assert failure.startswith("the life is lived to its end")
    assert "it went away" in failure
    assert world.row("SELECT count(*) FROM lastgood.hold_releases") == (1,)
    assert "what it held is given back: the next drill does it" in drill.failures(again)[-1]
    assert drill.failures(run(world)) == []
    assert len(left_in_scratch(world)) == 1


def test_what_a_killed_drill_held_and_read_is_given_back_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(life.Life, "_quarantined", kill)
        with pytest.raises(Killed):
            run(world)
    world.advance(timedelta(days=1, minutes=1))
    assert any("was cut off" in alert for alert in overview(world.catalog, world.stores).alerts)
    world.owner.execute("UPDATE lastgood.reader_leases SET expires_at = now() + interval '9d'")
    assert drill.failures(run(world)) == []
    assert len(left_in_scratch(world)) == 1


def test_a_second_drill_of_the_store_fails_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "CARRYING_OUT_SECONDS", 1)
    with world.catalog.transaction() as lock:
        locks.carrying_out(lock, "drill of drill-local")
        told = run(world)
    (failure,) = drill.failures(told)
    assert failure.startswith("no other drill lives in the store meanwhile")
    assert told.passed is False


def test_a_drill_writes_in_nobodys_project(world: World) -> None:
    with world.catalog.transaction() as tx:
        tx.execute(
            "INSERT INTO projects SELECT 'drill-local', owner, store, policy, config"
            " FROM projects WHERE project = 'vision'"
        )
    told = run(world)
    assert "is no scratch project" in drill.failures(told)[0]


def test_a_scratch_project_is_not_drilled_itself(world: World) -> None:
    with pytest.raises(errors.NotFound):
        drill.run(world.catalog, world.stores, "drill-local", actor=ACTOR)
    open_scratch(world.catalog, "local")
    with pytest.raises(errors.InvalidInput, match="where drills write"):
        drill.run(world.catalog, world.stores, "drill-local", actor=ACTOR)


def test_the_record_of_a_drill_cannot_be_changed(world: World) -> None:
    world.commit(1)
    restores(world)
    for table in ("drills", "drill_restores", "drill_expectations", "drill_ends"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            world.owner.execute(f"DELETE FROM lastgood.{table}")  # type: ignore[call-overload]


def test_a_command_drills_and_exits_by_the_verdict(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from lastgood.cli.app import run as command

    world.commit(1)
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    with pytest.raises(SystemExit) as ended:
        command(["drill", PROJECT, "--no-life"])
    assert ended.value.code in (0, None)
    assert "vision/gpt/pretrain/1.1" in capsys.readouterr().out
    world.advance(timedelta(hours=1))
    world.owner.execute("UPDATE lastgood.generation_leases SET expires_at = 'infinity'")
    with pytest.raises(SystemExit) as ended:
        command(["drill", "run", PROJECT, "--no-life", "--json"])
    assert ended.value.code == 1
    with pytest.raises(SystemExit) as ended:
        command(["drill", "list"])
    assert capsys.readouterr().out.count("failed") >= 1
