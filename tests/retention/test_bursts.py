"""A burst of one writer becomes a finding, and pushes no good checkpoint out."""

from __future__ import annotations

from datetime import timedelta

from lastgood.catalog.reconciliation import findings
from lastgood.flows.reconciliation import bursts
from tests.retention.world import PROJECT, World


def test_a_burst_becomes_one_finding_and_the_stage_keeps_its_buckets(world: World) -> None:
    world.promote(
        {
            "roles": {
                "hot": {"keep": "newest", "count": 2},
                "warm": {"keep": "every", "interval": "1h", "within": "2d"},
            }
        }
    )
    steady = []
    for sequence in range(1, 12):
        world.advance(timedelta(hours=1))
        steady.append(world.commit(sequence))
    assert bursts.note(world.catalog, PROJECT, "dag:test") == 0

    world.advance(timedelta(hours=1, minutes=1))
    for sequence in range(12, 32):
        world.commit(sequence)
    assert [bursts.note(world.catalog, PROJECT, "dag:test") for _ in range(2)] == [1, 1]
    with world.catalog.transaction() as tx:
        [found] = findings.current(tx, projects=[PROJECT])
    assert (found.cause, found.key_range, found.objects) == (bursts.CAUSE, "gpt/pretrain", 20)
    assert found.owner == "team"
    assert "where there were never more than" in str(found.samples[0]["detail"])

    world.mark()
    world.sweep()
    assert {world.state(copy) for copy in steady} == {"present"}
