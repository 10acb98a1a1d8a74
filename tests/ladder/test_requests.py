"""Operators ask for a validation: by the command line at once, by the API on the workers."""

from __future__ import annotations

import pytest

from lastgood import errors
from lastgood.flows.validation import validate
from lastgood.rules.names import CheckpointId
from tests.ladder.conftest import Contracts, commit_restorable
from tests.retention.world import PROJECT, World


def due(world: World) -> dict[int, list[str]]:
    return {
        copy_id: [level.value for level in levels]
        for copy_id, levels in validate.due_levels(world.catalog, PROJECT).items()
    }


def request(world: World, name: CheckpointId, level: str) -> None:
    validate.request(world.catalog, name, level, actor="operator:ann")


def test_what_was_asked_for_is_due_first_and_once(world: World, contracts: Contracts) -> None:
    world.promote({"validate": {"checksum": "every"}})
    old, new = commit_restorable(world, 1), commit_restorable(world, 2)

    request(world, old.checkpoint, "restore")

    assert list(due(world).items()) == [
        (old.copy_id, ["checksum", "restore"]),
        (new.copy_id, ["checksum"]),
    ]
    told = validate.climb(world.catalog, world.stores, old.copy_id, due(world)[old.copy_id])
    assert [one["verdict"] for one in told] == ["pass", "pass"]
    assert list(due(world)) == [new.copy_id]


def test_a_restore_of_what_names_no_contract_cannot_be_asked_for(world: World) -> None:
    copy = world.commit(1)

    with pytest.raises(errors.InvalidInput, match="names no contract"):
        request(world, copy.checkpoint, "restore")


def test_a_quarantined_copy_cannot_be_asked_for(world: World) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()

    with pytest.raises(errors.CopyState, match="quarantined"):
        request(world, old.checkpoint, "checksum")
