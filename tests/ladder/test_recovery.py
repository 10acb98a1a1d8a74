"""Restore times and commit gaps are measured, and held against the policy's objectives."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood.catalog.validation import recovery
from lastgood.flows.overview import overview
from lastgood.flows.validation import validate
from tests.ladder.conftest import Contracts, commit_restorable
from tests.retention.world import World


def test_gaps_and_restores_have_their_percentiles(world: World, contracts: Contracts) -> None:
    for sequence, pause in enumerate((0, 10, 10, 10, 100), start=1):
        world.advance(timedelta(seconds=pause))
        copy = commit_restorable(world, sequence)
    for _ in range(2):
        validate.run(world.catalog, world.stores, copy.copy_id, "restore")

    with world.catalog.transaction() as tx:
        (found,) = recovery.measured(tx)

    assert (found.project, found.workload_class) == ("vision", "default")
    assert found.gaps is not None
    assert found.gaps.number == 4
    assert found.gaps.p50 == pytest.approx(10, abs=3)
    assert found.gaps.p95 == pytest.approx(86.5, abs=6)
    assert found.restores is not None
    assert found.restores.number == 2
    assert 0 < found.restores.p50 <= found.restores.p95 < 60


def test_an_objective_that_is_missed_is_an_alert(world: World, contracts: Contracts) -> None:
    world.promote({"objectives": {"rpo": "1m", "rto": "1ms"}})
    commit_restorable(world, 1)
    world.advance(timedelta(minutes=5))
    copy = commit_restorable(world, 2)
    validate.run(world.catalog, world.stores, copy.copy_id, "restore")

    alerts = [one for one in overview(world.catalog, world.stores).alerts if "class default" in one]

    assert len(alerts) == 2
    assert "1 of 20 restores takes" in alerts[0]
    assert "1 of 20 commits comes after 5 min" in alerts[1]


def test_nothing_measured_is_nothing_said(world: World) -> None:
    world.commit(1)
    with world.catalog.transaction() as tx:
        assert recovery.measured(tx) == []
