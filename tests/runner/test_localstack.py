"""Saving straight to a server that checks digests and completes conditionally as AWS does, into a
bucket with Object Lock: the coordinator reads nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.flows.jobs import verify
from lastgood.stores import parts
from tests.faults.s3_proxy import Rule, S3Proxy
from tests.runner.conftest import RunningCoordinator, contents, write_checkpoint

MIB = 1 << 20
COMPLETION = r"^POST .*uploadId="
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("how", ["localstack"], indirect=True),
]


@pytest.mark.parametrize(
    "rules", [[], [Rule(COMPLETION, cut_bytes=0)]], ids=["quietly", "an answer is lost"]
)
def test_a_checkpoint_is_committed_unread_and_restored_whole(
    coordinator: RunningCoordinator,
    localstack_proxy: S3Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rules: list[Rule],
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 5 * MIB)
    monkeypatch.setattr(verify, "INLINE_BYTES", 0)  # what has to be read is left to others
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "big.bin").write_bytes(os.urandom(11 * MIB))
    localstack_proxy.set(*rules)
    localstack_proxy.read_bytes = 0
    with coordinator.workload().acquire() as run:
        saved = run.save(folder, step=7)
    assert localstack_proxy.faults == len(rules)
    assert localstack_proxy.read_bytes < 20_000  # control keys, and the last byte of each object
    with coordinator.workload().acquire() as later:
        assert later.resume == saved
        later.download(tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(folder)
