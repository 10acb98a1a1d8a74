"""What proves nothing is tried again, unless trying again cannot prove more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood.flows.validation import restore_level, unblock, validate
from lastgood.flows.validation.levels import Ladder
from lastgood.rules.retention_rules import Level
from tests.ladder.conftest import LOSS, Contracts, commit_restorable, receipts_of
from tests.retention.world import PROJECT, World

READING = {"checksum": "every", "format": "every"}


@dataclass(frozen=True)
class Changed(Ladder):
    """Validators of another version."""

    version: str = "next"

    @property
    def versions(self) -> Mapping[Level, str]:  # type: ignore[override]
        return {Level.CHECKSUM: self.version, Level.FORMAT: self.version}


def due(world: World, ladder: Ladder | None = None) -> dict[int, list[str]]:
    return {
        copy_id: [level.value for level in levels]
        for copy_id, levels in validate.due_levels(world.catalog, PROJECT, ladder).items()
    }


@pytest.mark.parametrize(
    ("unknown", "verdict", "again"),
    [("warn", "inconclusive", []), ("fail", "fail", []), ("ignore", "pass", [])],
)
def test_a_checkpoint_of_no_known_format_is_settled_as_the_policy_says(
    world: World, unknown: str, verdict: str, again: list[str]
) -> None:
    world.promote({"validate": {**READING, "checksum": "never", "unknown_formats": unknown}})
    copy = world.commit(1, {"weights.onnx": b"?"}, receipt=None)

    told = validate.run(world.catalog, world.stores, copy.copy_id, "format")

    assert told["verdict"] == verdict
    assert due(world).get(copy.copy_id, []) == again
    assert due(world, Changed()) == {copy.copy_id: ["format"]}


def test_a_file_of_no_known_format_beside_others_is_named(world: World) -> None:
    copy = world.commit(1, {"config.json": b"{}", "notes.xyz": b"?"}, receipt=None)

    told = validate.run(world.catalog, world.stores, copy.copy_id, "format")

    assert told["verdict"] == "pass"
    assert receipts_of(world, copy)[0].body["problems"] == [
        {
            "path": "notes.xyz",
            "tensor": None,
            "problem": "it is of no format that is known here",
            "severity": "warn",
        }
    ]


def test_parameters_that_a_contract_refuses_are_refused_once(
    world: World, contracts: Contracts
) -> None:
    world.promote({"validate": {"checksum": "never", "restore": "every"}})
    copy = commit_restorable(world, 1, parameters={"mode": "-c"})
    validate.run(world.catalog, world.stores, copy.copy_id, "restore")
    assert due(world) == {}

    contracts.register(version="2")

    assert due(world) == {copy.copy_id: ["restore"]}


def test_a_limit_that_was_reached_is_tried_again(world: World, contracts: Contracts) -> None:
    world.promote({"validate": {"checksum": "never", "restore": "every"}})
    copy = commit_restorable(world, 1, "crash")
    validate.run(world.catalog, world.stores, copy.copy_id, "restore")

    assert due(world) == {copy.copy_id: ["restore"]}


def test_another_version_of_a_validator_looks_again_at_what_passed_and_what_failed(
    world: World,
) -> None:
    world.promote({"validate": READING})
    good = world.commit(1, {"config.json": b"{}"}, receipt=None)
    bad = world.commit(2, {"config.json": b"{"}, receipt=None)
    for copy in (good, bad):
        validate.climb(world.catalog, world.stores, copy.copy_id, ["checksum", "format"])
    assert due(world) == {}

    assert due(world, Changed()) == {
        good.copy_id: ["checksum", "format"],
        bad.copy_id: ["format"],
    }


def test_every_kept_copy_is_read_again_within_the_period(world: World) -> None:
    """Over two simulated months, in which a checkpoint is committed now and then."""
    world.promote({"validate": {"checksum": "daily", "reread_all_within": "10d"}})
    ladder = Ladder()
    copies, last = [], {}
    longest = timedelta(0)
    for day in range(60):
        if day % 12 == 0:
            copies.append(world.commit(len(copies) + 1, receipt=None))
            last[copies[-1].copy_id] = world.now()
        for copy_id in due(world, ladder):
            longest = max(longest, world.now() - last[copy_id])
            validate.run(world.catalog, world.stores, copy_id, ladder=ladder)
            last[copy_id] = world.now()
        world.advance(timedelta(days=1))
    overdue = [world.now() - read for read in last.values()]

    assert max(longest, *overdue) <= timedelta(days=10)
    assert len(receipts_of(world, copies[0])) >= 60 // 10


def test_a_file_that_is_swapped_after_the_download_is_not_what_restores(
    world: World, contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = commit_restorable(world, 1)
    root: Path = world.store.root  # type: ignore[attr-defined]
    path = root / copy.prefix / "objects" / "loss.txt"
    download = restore_level.download

    def swap_then(*args: Any) -> Any:
        found = download(*args)
        path.chmod(0o600)
        path.write_text("0.5")
        return found

    monkeypatch.setattr(restore_level, "download", swap_then)

    told = validate.run(world.catalog, world.stores, copy.copy_id, "restore")
    assert told["verdict"] == "pass"
    assert repr(LOSS) in told["reason"]
    assert validate.run(world.catalog, world.stores, copy.copy_id)["verdict"] == "fail"


RESTORED = {"gate": {"level": "restore", "receipt_max_age": "7d"}}


@pytest.mark.parametrize(
    "rules",
    [RESTORED, {"overrides": [{"workloads": "g*", **RESTORED}]}],
    ids=["of the policy", "of an override"],
)
def test_an_operator_may_unblock_below_the_gate_and_the_record_says_so(
    world: World, contracts: Contracts, rules: Mapping[str, Any]
) -> None:
    world.promote(rules)
    older = world.commit(1)  # names no contract: nobody can restore it in a drill
    commit_restorable(world, 2, "crash")
    bad = commit_restorable(world, 3, "corrupt")
    validate.run(world.catalog, world.stores, bad.copy_id, "restore")

    found = unblock.unblock(
        world.catalog, world.stores, older.checkpoint, because="looked at", actor="operator:ann"
    )

    assert found.id == older.checkpoint
    assert world.row(
        "SELECT because FROM lastgood.restore_blocks ORDER BY number DESC LIMIT 1"
    ) == ("looked at (it passed level checksum; the gate asks for restore)",)
