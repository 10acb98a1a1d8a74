"""A failure stands until what it was about was looked at anew, and all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.jobs import read
from lastgood.flows.validation import checksum, unblock, validate
from tests.ladder.conftest import Contracts, commit_restorable, receipts_of
from tests.retention.world import World


def change_a_value(world: World, copy: Copy) -> bytes:
    """Another digit of a JSON file, which no format can see; what it was before."""
    path = path_of(world, copy)
    before = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(b'{"layers": 3}')
    return before


def path_of(world: World, copy: Copy) -> Path:
    root: Path = world.store.root  # type: ignore[attr-defined]
    return root / copy.prefix / "objects" / "config.json"


def run(world: World, copy: Copy, level: str) -> dict[str, Any]:
    return validate.run(world.catalog, world.stores, copy.copy_id, level)


def test_a_format_says_nothing_against_changed_bytes(world: World) -> None:
    copy = world.commit(1, {"config.json": b'{"layers": 2}'}, receipt=None)
    before = change_a_value(world, copy)
    failed = run(world, copy, "checksum")

    told = run(world, copy, "format")

    assert (failed["verdict"], told["verdict"]) == ("fail", "inconclusive")
    assert failed["receipt"][:12] in told["reason"]
    with pytest.raises(errors.Conflict, match="no present copy whose newest receipt passed"):
        unblock.unblock(
            world.catalog, world.stores, copy.checkpoint, because="it loads", actor="operator:ann"
        )
    with pytest.raises(errors.RestoreBlocked):
        read.latest(world.catalog, world.stage_name())
    path_of(world, copy).write_bytes(before)
    assert run(world, copy, "checksum")["verdict"] == "pass"
    assert run(world, copy, "format")["verdict"] == "pass"


def test_each_failure_is_taken_back_by_its_own_level(world: World, contracts: Contracts) -> None:
    """Bytes that changed so that nothing reads them, and came back as they were."""
    copy = world.commit(1, {"config.json": b'{"layers": 2}'}, receipt=None)
    before = change_a_value(world, copy)
    path_of(world, copy).write_bytes(b"{")
    for level in ("checksum", "format"):
        assert run(world, copy, level)["verdict"] == "fail"
    path_of(world, copy).write_bytes(before)

    assert run(world, copy, "checksum")["verdict"] == "inconclusive"
    assert run(world, copy, "format")["verdict"] == "pass"
    assert run(world, copy, "checksum")["verdict"] == "pass"


def test_a_restore_takes_no_other_failure_back(world: World, contracts: Contracts) -> None:
    copy = commit_restorable(world, 1)
    root: Path = world.store.root  # type: ignore[attr-defined]
    marker = root / copy.prefix / "COMMITTED"
    content = marker.read_bytes()
    marker.unlink()
    assert run(world, copy, "checksum")["verdict"] == "fail"

    assert run(world, copy, "restore")["verdict"] == "inconclusive"
    marker.write_bytes(content)
    assert run(world, copy, "checksum")["verdict"] == "pass"


def test_what_was_read_before_a_failure_was_found_does_not_take_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow validator has read bytes that change while it goes on; a second one finds that."""
    copy = world.commit(1, {"config.json": b'{"layers": 2}'}, receipt=None)
    check = checksum.check

    def slow(*args: Any) -> Any:
        found = check(*args)
        monkeypatch.setattr(checksum, "check", check)
        change_a_value(world, copy)
        assert run(world, copy, "checksum")["verdict"] == "fail"
        return found

    monkeypatch.setattr(checksum, "check", slow)

    told = run(world, copy, "checksum")

    assert (told["verdict"], told["blocked"]) == ("inconclusive", True)
    assert [one.verdict for one in receipts_of(world, copy)][:2] == ["fail", "inconclusive"]
