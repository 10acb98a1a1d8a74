"""A sweep, an undo or a clean-up that is killed at any of its steps is finished by the next run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from lastgood.catalog.jobs import attempt_objects, attempts
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.sweeping import tombstones
from lastgood.faults import CLEANUP_POINTS, SWEEP_POINTS, UNDO_POINTS
from lastgood.flows.auditing import audit
from lastgood.flows.cleaning import cleanup
from lastgood.rules import layout
from lastgood.stores.base import Key, Prefix
from tests.factories import upload_object
from tests.faults.dying import killed_at
from tests.retention.world import PROJECT, World, opened

GRACE = timedelta(hours=1)
QUARANTINE_POINTS = [point for point in SWEEP_POINTS if "quarantine" in point]
DELETION_POINTS = [point for point in SWEEP_POINTS if "quarantine" not in point]

PROGRAMS = {
    "sweep": "sweep.run(catalog, stores, 'vision', 'dag:test')",
    "cleanup": "cleanup.run(catalog, stores, 'vision', 'dag:test')",
    "undo": "quarantine.undo(catalog, stores, CheckpointId.parse(sys.argv[1]),"
    " because='needed', actor='operator:ann')",
    "hold": "hold.place(catalog, stores, 'vision', NewHold('legal', 'counsel', 'case 7',"
    " 'operator:ann'), CheckpointId.parse(sys.argv[1]))",
}
PREAMBLE = """
import sys
from lastgood.catalog.connect import open_catalog
from lastgood.catalog.keeping.holds import NewHold
from lastgood.flows.cleaning import cleanup
from lastgood.flows.keeping import hold
from lastgood.flows import quarantine
from lastgood.flows.sweeping import sweep
from lastgood.flows.services import stores_of
from lastgood.rules.names import CheckpointId
catalog = open_catalog()
stores = stores_of(catalog)
"""


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def killed(dsn: str, program: str, point: str, *arguments: str) -> None:
    """Run a flow in a process of its own that dies at this point, as by a power cut."""
    killed_at(point, PREAMBLE + PROGRAMS[program], *arguments, catalog=dsn)


@pytest.fixture
def old(world: World) -> Copy:
    """A candidate of three objects under a fresh mark, with everything in the store accounted."""
    first = world.commit(1, {"a.bin": b"aaaa", "b.bin": b"bb", "deep/c.bin": b"c"})
    world.commit(2)
    world.commit(3)
    world.mark()
    return first


@pytest.fixture
def due(world: World, old: Copy) -> Copy:
    world.sweep()
    world.advance(GRACE)
    world.mark()
    assert world.state(old) == "quarantined"
    return old


def require_equation(world: World) -> None:
    """The bytes of the store are the bytes that the counters say."""
    committed, in_flight = world.row(
        "SELECT committed_bytes, in_flight_bytes FROM lastgood.capacity_counters"
    )
    listed = sum(one.size_bytes for one in world.store.list(Prefix("checkpoints/")))
    assert (committed, in_flight) == (listed, 0)


@pytest.mark.parametrize("point", QUARANTINE_POINTS)
def test_a_killed_quarantine_is_carried_out_by_the_next_sweep(
    world: World, old: Copy, catalog_dsn: str, point: str
) -> None:
    killed(catalog_dsn, "sweep", point)
    assert world.state(old) == "quarantined"
    world.sweep()
    assert set(world.keys(old).values()) == {True}
    assert world.copy(old).carried_out == world.copy(old).transition
    require_equation(world)


@pytest.mark.parametrize("point", DELETION_POINTS)
def test_a_killed_deletion_is_finished_by_the_next_sweep(
    world: World, due: Copy, catalog_dsn: str, point: str
) -> None:
    killed(catalog_dsn, "sweep", point)
    assert world.state(due) in ("deleting", "deleted")
    told = world.sweep()
    assert world.state(due) == "deleted"
    assert told["failed"] == {}
    assert world.keys(due) == {}
    with world.catalog.transaction() as tx:
        chain = tombstones.of_stage(tx, PROJECT, due.stage_id)
    assert len(chain) == 1
    assert chain[0].proof is not None
    assert audit.run(world.catalog, PROJECT).breaks == []
    require_equation(world)


@pytest.mark.parametrize("program", ["undo", "hold"])
@pytest.mark.parametrize("point", UNDO_POINTS)
def test_a_killed_undo_is_carried_out_by_the_next_sweep(
    world: World, due: Copy, catalog_dsn: str, program: str, point: str
) -> None:
    killed(catalog_dsn, program, point, str(due.checkpoint))
    assert world.state(due) == "present"
    world.sweep()
    assert set(world.keys(due).values()) == {False}
    assert world.row("SELECT count(*) FROM lastgood.holds") == (int(program == "hold"),)
    require_equation(world)


@pytest.fixture
def abandoned(world: World) -> Attempt:
    """An attempt that nobody continues: objects, an upload under way, and all leases over."""
    objects = {"a.bin": b"a" * 64, "b.bin": b"b" * 32, "c.bin": b"c" * 8}
    attempt = world.prepare(1, objects)
    for path in ("a.bin", "b.bin"):
        upload_object(world.store, layout.object_key(attempt.prefix, path), objects[path])
    key = Key(layout.object_key(attempt.prefix, "c.bin"))
    upload = world.store.create_upload(key, 8)
    world.store.write_part(key, upload, 1, 8, [objects["c.bin"]])
    with world.catalog.transaction() as tx:
        attempt_objects.record_uploads(tx, attempt, {"c.bin": upload})
    world.advance(timedelta(hours=1))
    return attempt


@pytest.mark.parametrize("point", CLEANUP_POINTS)
def test_a_killed_clean_up_is_finished_by_the_next(
    world: World, abandoned: Attempt, catalog_dsn: str, point: str
) -> None:
    killed(catalog_dsn, "cleanup", point)
    cleanup.run(world.catalog, world.stores, PROJECT, "dag:test")
    with world.catalog.transaction() as tx:
        assert attempts.get(tx, PROJECT, abandoned.attempt_id).state is attempts.State.CLOSED
        tombstone = tombstones.of_attempt(tx, PROJECT, abandoned.attempt_id)
    assert tombstone is not None
    assert tombstone.proof is not None
    assert list(world.store.list(Prefix(abandoned.prefix))) == []
    assert list(world.store.uploads(Prefix(abandoned.prefix))) == []
    require_equation(world)
