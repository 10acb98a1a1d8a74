"""A restore drill proves what its contract lets it compare, and nothing that it does harms us."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs import blocks
from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.jobs import read
from lastgood.flows.validation import validate
from lastgood.rules.names import CheckpointId
from tests.ladder.conftest import LOSS, Contracts, commit_restorable, receipts_of
from tests.retention.world import PROJECT, World


def restore(world: World, copy: Copy) -> dict[str, Any]:
    return validate.run(world.catalog, world.stores, copy.copy_id, "restore")


def test_the_next_step_with_the_recorded_loss_passes(world: World, contracts: Contracts) -> None:
    copy = commit_restorable(world, 1)

    assert restore(world, copy)["verdict"] == "pass"
    (receipt,) = receipts_of(world, copy)
    topology = receipt.body["topology"]
    assert receipt.reason == f"step 101 has loss {LOSS!r}, recorded was {LOSS!r}"
    assert receipt.validator_version.startswith("tiny@1-")
    assert (topology["contract"], topology["world_size"], topology["of_world_size"]) == (
        "tiny", 2, 8,
    )  # fmt: skip
    assert topology["seconds"]["reported"] == 0.5
    assert topology["seconds"]["restore"] > 0
    assert topology["limits"]["memory_bytes"] == 200_000_000
    assert receipt.body["last_lines"] == ["mode well"]


@pytest.mark.parametrize(
    ("mode", "verdict", "says"),
    [
        ("other-step", "fail", "it went to step 102; after 100 comes the next"),
        ("other-loss", "fail", "recorded was"),
        ("near-loss", "fail", "recorded was"),
        ("nan", "fail", "the loss of step 101 is nan"),
        ("beyond-floats", "fail", "the loss of step 101 is 1000"),
        ("corrupt", "fail", "the optimizer is of another model"),
        ("no-loss", "inconclusive", "the report has no loss"),
        ("silent", "inconclusive", "not an object with a step"),
        ("link", "inconclusive", "not an object with a step"),
        ("crash", "inconclusive", "ended with exit code 1"),
        ("hang", "inconclusive", "limit of time"),
        ("fork", "inconclusive", "limit of "),
        ("memory", "inconclusive", "limit of memory"),
        ("disk", "inconclusive", "limit of disk"),
        ("escape", "inconclusive", "ended with exit code 1"),
    ],
)
def test_only_proof_fails_and_each_limit_is_named(
    world: World, contracts: Contracts, mode: str, verdict: str, says: str, tmp_path: Path
) -> None:
    if says == "limit of time":  # a busy machine gets to every other end first
        contracts.register(timeout="3s")
    copy = commit_restorable(world, 1, mode)

    told = restore(world, copy)

    assert (told["verdict"], told["blocked"]) == (verdict, verdict == "fail")
    assert says in told["reason"]
    (receipt,) = receipts_of(world, copy)
    first_lines = receipt.body["last_lines"][:1]  # a hurried one may be stopped before it says any
    assert first_lines == ["mode " + mode] or (says == "limit of time" and not first_lines)
    assert not list((tmp_path / "scratch").iterdir())
    with world.catalog.transaction() as tx:
        assert bool(blocks.blocked_stages(tx, PROJECT)) == (verdict == "fail")


def test_a_tolerance_of_the_contract_allows_a_difference(
    world: World, contracts: Contracts
) -> None:
    contracts.register(tolerance="0.000001")

    assert restore(world, commit_restorable(world, 1, "near-loss"))["verdict"] == "pass"
    assert restore(world, commit_restorable(world, 2, "other-loss"))["verdict"] == "fail"


def test_without_a_recorded_loss_the_step_alone_is_proof(
    world: World, contracts: Contracts
) -> None:
    told = restore(world, commit_restorable(world, 1, "other-loss", recorded=None))

    assert told["verdict"] == "pass"
    assert "none was recorded to compare" in told["reason"]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({}, "needs 'mode'"),
        ({"mode": "well", "command": "rm"}, "does not declare 'command'"),
        ({"mode": "-c"}, "could be more than a value"),
        ({"mode": "well; rm -rf /"}, "is not [a-z-]+"),
        ({"mode": 1}, "is not of type text"),
        ({"mode": "well\n"}, "could be more than a value"),
    ],
)
def test_a_manifest_brings_only_declared_parameters(
    world: World, contracts: Contracts, parameters: dict[str, Any], says: str
) -> None:
    copy = commit_restorable(world, 1, parameters=parameters)

    told = restore(world, copy)

    assert told["verdict"] == "inconclusive"
    assert says in told["reason"]


def test_a_contract_that_nobody_registered_is_refused(world: World, contracts: Contracts) -> None:
    copy = commit_restorable(world, 1, contract="mine")

    with pytest.raises(errors.InvalidInput, match="'mine' is not registered here"):
        restore(world, copy)


def test_only_the_named_variables_of_the_worker_are_passed_on(
    world: World, contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_FAMILY", "mlp")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    copy = commit_restorable(world, 1, "secrets")

    restore(world, copy)

    said = receipts_of(world, copy)[0].body["last_lines"][1]
    assert "'MODEL_FAMILY'" in said
    assert "AWS" not in said
    assert "LASTGOOD" not in said


def test_changed_bytes_fail_the_download(world: World, contracts: Contracts) -> None:
    copy = commit_restorable(world, 1)
    root: Path = world.store.root  # type: ignore[attr-defined]
    path = root / copy.prefix / "objects" / "loss.txt"
    path.chmod(0o600)
    path.write_text("0.7931471805599453")

    told = restore(world, copy)

    assert told["verdict"] == "fail"
    assert receipts_of(world, copy)[0].body["problems"][0]["path"] == "loss.txt"


def test_sound_bytes_say_nothing_against_a_failed_restore(
    world: World, contracts: Contracts
) -> None:
    copy = commit_restorable(world, 1, "other-loss")
    failed = restore(world, copy)

    told = validate.run(world.catalog, world.stores, copy.copy_id, "checksum")

    assert told["verdict"] == "inconclusive"
    assert failed["receipt"][:12] in told["reason"]
    assert told["blocked"]


def test_after_a_failed_restore_an_older_one_is_established_that_restores(
    world: World, contracts: Contracts
) -> None:
    world.promote({"gate": {"level": "restore", "receipt_max_age": "7d"}})
    good = commit_restorable(world, 1)
    commit_restorable(world, 2, "nan")
    bad = commit_restorable(world, 3, "corrupt")

    told = restore(world, bad)

    assert told["verdict"] == "fail"
    assert told["established"] == str(good.checkpoint)
    levels = [(one.level, one.verdict) for one in receipts_of(world, good)]
    assert levels == [("checksum", "pass"), ("format", "pass"), ("restore", "pass")]
    stage = world.stage_name()
    with world.catalog.transaction() as tx:
        assert not blocks.blocked_stages(tx, PROJECT)
    latest = read.latest(world.catalog, stage)
    assert latest is not None
    assert latest.checkpoint is not None
    assert latest.checkpoint.id == CheckpointId.of(stage, 1, 1)


@pytest.mark.parametrize("contract", [None, "elsewhere"])
def test_what_cannot_be_tried_at_the_gates_level_is_not_established(
    world: World, contracts: Contracts, contract: str | None
) -> None:
    """Every byte of it is as committed: that is less than the gate asks for."""
    world.promote({"gate": {"level": "restore", "receipt_max_age": "7d"}})
    commit_restorable(world, 1)
    if contract is None:
        world.commit(2, {"state.json": b"{}"}, receipt=None)
    else:
        commit_restorable(world, 2, contract=contract)
    bad = commit_restorable(world, 3, "corrupt")

    told = restore(world, bad)

    assert (told["established"], told["blocked"]) == (None, True)
    with pytest.raises(errors.RestoreBlocked):
        read.latest(world.catalog, world.stage_name())


def test_a_restore_that_proves_nothing_is_not_stepped_over(
    world: World, contracts: Contracts
) -> None:
    world.promote({"gate": {"level": "restore", "receipt_max_age": "7d"}})
    commit_restorable(world, 1)
    commit_restorable(world, 2, "crash")
    bad = commit_restorable(world, 3, "corrupt")

    told = restore(world, bad)

    assert (told["established"], told["blocked"]) == (None, True)


# --- when ---------------------------------------------------------------------------------------

DAILY = {"validate": {"checksum": "every", "format": "every", "restore": "daily"}}


def due(world: World) -> dict[int, list[str]]:
    return {
        copy_id: [level.value for level in levels]
        for copy_id, levels in validate.due_levels(world.catalog, PROJECT).items()
    }


def test_every_level_is_due_for_the_newest_and_the_reading_ones_for_all(
    world: World, contracts: Contracts
) -> None:
    world.promote(DAILY)
    first, second = commit_restorable(world, 1), commit_restorable(world, 2)

    assert list(due(world).items()) == [
        (second.copy_id, ["checksum", "format", "restore"]),
        (first.copy_id, ["checksum", "format"]),
    ]


def test_a_changed_contract_is_tried_again(world: World, contracts: Contracts) -> None:
    world.promote({"validate": {"checksum": "never", "restore": "daily"}})
    copy = commit_restorable(world, 1)
    restore(world, copy)
    assert due(world) == {}

    contracts.register(version="2")

    assert due(world) == {copy.copy_id: ["restore"]}


def test_what_names_no_registered_contract_is_not_due_for_a_restore(
    world: World, contracts: Contracts
) -> None:
    world.promote({"validate": {"checksum": "never", "restore": "every"}})
    world.commit(1, receipt=None)
    commit_restorable(world, 2, contract="mine")

    assert due(world) == {}


def test_a_failed_copy_is_not_read_again_at_other_levels(
    world: World, contracts: Contracts
) -> None:
    world.promote(DAILY)
    copy = commit_restorable(world, 1, "corrupt")
    validate.climb(world.catalog, world.stores, copy.copy_id, ["checksum", "format", "restore"])
    world.advance(timedelta(days=40))

    assert due(world) == {}


def test_drills_do_not_wait_for_their_day_above_the_soft_watermark(
    world: World, contracts: Contracts
) -> None:
    world.promote({"validate": {"checksum": "never", "restore": "daily"}})
    restore(world, commit_restorable(world, 1))
    newest = commit_restorable(world, 2)
    assert due(world) == {}

    low = {"soft": "1B", "hard": "1TB", "reserve": "0B"}
    world.promote({"validate": {"checksum": "never", "restore": "daily"}, "capacity": low})

    assert due(world) == {newest.copy_id: ["restore"]}
