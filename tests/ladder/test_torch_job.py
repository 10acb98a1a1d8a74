"""The PyTorch example: saved by DCP from two ranks, killed, resumed, and restored in a drill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import copies
from lastgood.catalog.validation import receipts
from lastgood.flows.services import Services
from lastgood.flows.validation import validate
from lastgood.rules.names import CheckpointId
from tests.runner.conftest import (  # noqa: F401 - fixtures
    RunningCoordinator,
    coordinator,
    coordinators,
    how,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("torch") is None, reason="PyTorch is not installed: the extra `torch` has it"
    ),
]
PROGRAM = Path("examples/train_torch.py").absolute()


def train(
    coordinator: RunningCoordinator,  # noqa: F811
    stage: str,
    folder: Path,
    *options: str,
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2"),
            *(PROGRAM, "--url", coordinator.url, "--stage", stage, "--folder", folder),
            *("--steps", "12", "--checkpoint-every", "4", *options),
        ],
        env=os.environ
        | {
            "LASTGOOD_PROJECT_KEY": coordinator.project_key,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def losses(done: subprocess.CompletedProcess[str]) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"step (\d+) loss (\S+)", done.stdout)}


def test_killed_and_resumed_it_has_the_losses_of_an_uninterrupted_run_and_restores(
    coordinator: RunningCoordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    stage = coordinator.stage
    killed = train(coordinator, stage, tmp_path / "killed", "--die-in-save", "2")
    assert killed.returncode != 0
    resumed = train(coordinator, stage, tmp_path / "resumed", "--replace")
    assert resumed.returncode == 0, resumed.stderr
    assert f"resumed from demo/torch/{stage}/1.1 (step 4)" in resumed.stdout
    whole = train(coordinator, f"{stage}-whole", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    assert set(losses(resumed)) == set(range(5, 13))
    assert losses(killed) | losses(resumed) == losses(whole)

    with Catalog(coordinator.dsn) as catalog:
        services = Services.of(catalog)
        with catalog.transaction() as tx:
            name = CheckpointId.parse(f"demo/torch/{stage}/2.2")
            (copy,) = copies.of_checkpoint(tx, name)
        levels = ["checksum", "format", "restore"]
        told = validate.climb(catalog, services.stores, copy.copy_id, levels)
        with catalog.transaction() as tx:
            last = receipts.of_copy(tx, copy.project, copy.copy_id)[-1]

    assert [one["verdict"] for one in told] == ["pass"] * 3, last.body
    assert last.reason.startswith("step 13 has loss ")
