"""What of the proof of deletions outlives the catalog: the witnesses of daily digests in the store,
and the scratch project of drills."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from lastgood import errors
from lastgood.catalog.auditing import daily_digests
from lastgood.catalog.jobs import copies
from lastgood.catalog.validation.drills import Drill
from lastgood.flows.auditing import audit, audit_file, daily_digest
from lastgood.flows.drills import drill
from lastgood.flows.keeping import release
from lastgood.flows.rebuilding.result import Result
from lastgood.flows.validation import validate
from lastgood.rules import layout
from lastgood.stores.base import Key, StoreError
from tests.rebuild.conftest import Lose, Older, publish, rebuilt
from tests.retention.world import PROJECT, World

DAY = timedelta(days=1)


def _deleted(world: World, *sequences: int) -> None:
    """Commit these, and delete what the policy gives up."""
    for sequence in sequences:
        world.commit(sequence)
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=1))
    world.mark()
    assert world.sweep()["deleted"]
    publish(world)


def _make(world: World) -> list[int]:
    """The numbers of all digests, after those that are missing were made."""
    daily_digest.make(world.catalog, world.stores, PROJECT)
    with world.catalog.transaction() as tx:
        return [one.number for one in daily_digests.of_project(tx, PROJECT)]


def _newest(world: World) -> str:
    with world.catalog.transaction() as tx:
        newest = daily_digests.newest(tx, PROJECT)
    assert newest is not None
    return newest.digest


def _go_on(again: World, before: World, told: Result) -> None:
    """Let the rebuilt catalog delete something, too."""
    again._offset = before._offset
    again.advance(timedelta(0))
    with again.catalog.transaction() as tx:
        present = [one.copy_id for one in copies.in_state(tx, PROJECT, copies.State.PRESENT)]
    for copy_id in present:
        assert validate.run(again.catalog, again.stores, copy_id)["verdict"] == "pass"
    for hold in told.holds.values():
        release.release(
            again.catalog, again.stores, PROJECT, UUID(hold), because="looked", actor="operator:ann"
        )
    again.commit(1, generation=5)
    again.commit(2, generation=5)
    again.release_writer()
    again.mark()
    again.sweep()
    again.advance(timedelta(hours=1))
    again.mark()
    assert again.sweep()["deleted"]
    publish(again)


def test_the_chain_of_days_goes_on_from_the_store_after_the_catalog_was_lost(
    world: World, lose: Lose, tmp_path: Path
) -> None:
    _deleted(world, 1, 2, 3, 4)
    world.advance(2 * DAY)
    numbers = _make(world)
    assert numbers[0] == 1
    kept = _newest(world)
    world.release_writer()
    publish(world)
    again = lose(world)

    told = rebuilt(again)

    assert told.flawless
    assert told.stores["local"]["foreign_keys"] == 0, "a witness is a key of ours"
    _go_on(again, world, told)
    again.advance(2 * DAY)
    numbers_after = _make(again)
    assert numbers_after[0] == numbers[-1] + 1
    with again.catalog.transaction() as tx:
        first = daily_digests.of_project(tx, PROJECT)[0]
    assert first.previous == kept
    assert first.body["continues"]["digest"] == kept
    assert audit.run(again.catalog).breaks == []
    path = tmp_path / "export.jsonl"
    audit_file.export(again.catalog, PROJECT, path)
    assert audit_file.check(path, expect=_newest(again)).breaks == []
    (lost,) = audit_file.check(path, expect=kept).breaks
    assert lost.kind == "digest", "the records that it covered went with the catalog"
    assert _make(again) == numbers_after


def test_an_outdated_catalog_makes_no_other_chain_beside_the_one_in_the_store(
    world: World, older: Older
) -> None:
    _deleted(world, 1, 2, 3, 4)
    world.advance(2 * DAY)
    _make(world)
    reopen = older(world)
    world.advance(DAY)
    numbers = _make(world)
    kept = _newest(world)
    again = reopen(world)
    again._offset = world._offset
    again.advance(DAY)
    with pytest.raises(errors.CatalogBehind, match="daily digest"):
        daily_digest.make(again.catalog, again.stores, PROJECT)

    rebuilt(again)
    again.advance(DAY)

    assert _make(again)[-1] > numbers[-1]
    with again.catalog.transaction() as tx:
        continuing = [
            one
            for one in daily_digests.of_project(tx, PROJECT)
            if one.body["continues"] is not None
        ]
    assert [one.previous for one in continuing] == [kept]
    assert audit.run(again.catalog).breaks == []


def test_a_witness_of_another_chain_is_refused(world: World) -> None:
    _deleted(world, 1, 2, 3, 4)
    world.advance(DAY)
    told = {"incarnation": 1, "facts": {"day": "2020-01-01", "digest": "0" * 64}}
    world.store.put_new(Key(layout.digest_key(PROJECT, 1)), json.dumps(told).encode())
    with pytest.raises(errors.CatalogBehind):
        _make(world)


def test_every_witness_is_looked_at_again(world: World) -> None:
    _deleted(world, 1, 2, 3, 4)
    world.advance(4 * DAY)
    numbers = _make(world)
    assert len(numbers) >= 3
    root: Path = world.store.root  # type: ignore[attr-defined]
    first, second, newest = (
        root / layout.digest_key(PROJECT, number) for number in (1, 2, numbers[-1])
    )
    written = first.read_bytes()
    first.unlink()
    assert _make(world) == numbers
    assert first.read_bytes() == written
    for path, content, refusal in (
        (second, written, errors.CatalogBehind),
        (newest, b"no JSON", StoreError),
        (newest, b"[]", StoreError),
        (newest, b'{"facts": {"day": "x"}}', StoreError),
        (root / layout.CATALOG_KEY, b"{}", StoreError),
    ):
        before = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content)
        with pytest.raises(refusal, match=path.stem):
            _make(world)
        path.write_bytes(before)
    assert _make(world) == numbers


def test_drills_go_on_in_a_rebuilt_catalog(world: World, lose: Lose) -> None:
    world.commit(1)
    publish(world)
    assert drill.failures(_drilled(world)) == []
    again = lose(world)
    again._offset = world._offset
    again.advance(timedelta(0))

    told = rebuilt(again)

    assert told.flawless
    assert drill.failures(_drilled(again)) == []


def _drilled(world: World) -> Drill:
    return drill.run(
        world.catalog,
        world.stores,
        PROJECT,
        actor="operator:ann",
        sample=0,
        wait=world.advance,
    )
