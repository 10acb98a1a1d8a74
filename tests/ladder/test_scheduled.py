"""The tasks of the validation DAG, one after another, as a scheduler runs them."""

from __future__ import annotations

import pytest

from lastgood.flows import scheduled
from tests.ladder.conftest import Contracts, commit_restorable, receipts_of
from tests.retention.world import PROJECT, World


@pytest.fixture
def daily(world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose catalog tasks find; its policy climbs."""
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    world.promote({"validate": {"checksum": "every", "format": "every", "restore": "daily"}})
    return world


def test_all_are_read_and_loaded_and_the_newest_is_restored(
    daily: World, contracts: Contracts
) -> None:
    old, new = commit_restorable(daily, 1), commit_restorable(daily, 2)
    assert scheduled.due_restores() == []  # what has to be read first is read first

    (shard,) = scheduled.due_validations()
    told = scheduled.validate_shard(**shard)
    assert told["verdicts"] == {"checksum pass": 2, "format pass": 2}
    assert scheduled.due_validations() == []

    (restore,) = scheduled.due_restores()
    assert restore == {"project": PROJECT, "copy_id": new.copy_id}
    assert scheduled.restore_copy(**restore)["verdict"] == "pass"
    assert "no longer due" in scheduled.restore_copy(**restore)["skipped"]
    assert scheduled.due_restores() == []
    assert [one.level for one in receipts_of(daily, old)] == ["checksum", "format"]
    assert [one.level for one in receipts_of(daily, new)] == ["checksum", "format", "restore"]


def test_what_fails_a_level_climbs_no_further(daily: World, contracts: Contracts) -> None:
    copy = daily.commit(1, {"broken.json": b"{"}, receipt=None)

    (shard,) = scheduled.due_validations()
    told = scheduled.validate_shard(**shard)

    assert told["verdicts"] == {"checksum pass": 1, "format fail": 1}
    assert (scheduled.due_validations(), scheduled.due_restores()) == ([], [])
    assert receipts_of(daily, copy)[-1].verdict == "fail"


def test_a_contract_may_ask_for_a_pod(daily: World, contracts: Contracts) -> None:
    contracts.register(more="executor: kubernetes\npod: {image: 'train:1', template: pod.yaml}\n")
    copy = commit_restorable(daily, 1)
    (shard,) = scheduled.due_validations()
    scheduled.validate_shard(**shard)

    assert scheduled.due_restores() == []
    assert scheduled.due_pods() == [
        {
            "image": "train:1",
            "pod_template_file": "pod.yaml",
            "arguments": ["lastgood", "verify", str(copy.checkpoint), "--level", "restore"],
        }
    ]
