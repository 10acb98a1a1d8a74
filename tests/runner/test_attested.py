"""Saving to a store that proves the SHA-256 of each part: the coordinator reads nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.flows.jobs import verify
from lastgood.stores import parts
from tests.ceph.attesting import AttestingServer
from tests.runner.conftest import RunningCoordinator, contents, write_checkpoint

MIB = 1 << 20
pytestmark = pytest.mark.parametrize("how", ["attested"], indirect=True)


@pytest.fixture
def big_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "PART_BYTES", 5 * MIB)
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "big.bin").write_bytes(os.urandom(11 * MIB))
    return folder


def test_a_checkpoint_is_committed_unread_and_restored_whole(
    coordinator: RunningCoordinator,
    attesting: AttestingServer,
    big_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verify, "INLINE_BYTES", 0)  # what has to be read is left to others
    attesting.read_bytes = 0
    with coordinator.workload().acquire() as run:
        saved = run.save(big_checkpoint, step=7)
    assert attesting.read_bytes < 20_000  # control keys, and the last byte of each object
    with coordinator.workload().acquire() as later:
        assert later.resume == saved
        later.download(tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(big_checkpoint)
