"""The tasks of the validation DAG, one after another, as a scheduler runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.flows import scheduled
from tests.ladder.conftest import Contracts, commit_restorable, receipts_of
from tests.retention.world import PROJECT, World

POD_CONTRACT = """\
name: tiny
version: "1"
command: [/opt/restore, "{parameters.mode}", "{report}"]
parameters: {mode: {type: text, pattern: "[a-z-]+"}}
world_size: 2
timeout: 1m
memory: 1GB
executor: kubernetes
pod: {image: "train:1", template: pod.yaml}
"""


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


def test_a_contract_may_ask_for_a_pod(daily: World, contracts: Contracts, tmp_path: Path) -> None:
    (tmp_path / "config" / "contracts" / "tiny.yaml").write_text(POD_CONTRACT)
    copy = commit_restorable(daily, 1)
    (shard,) = scheduled.due_validations()
    scheduled.validate_shard(**shard)

    assert scheduled.due_restores() == []
    (pod,) = scheduled.due_pods()
    assert pod == {"project": PROJECT, "copy_id": copy.copy_id}
    # Without something that runs pods it proves nothing, and stays due for one that has it.
    assert scheduled.restore_copy(**pod)["verdict"] == "inconclusive"
    assert scheduled.due_pods() == [pod]
