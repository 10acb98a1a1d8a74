"""The example: killed in the middle of a save, replaced, and bit for bit as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.runner.conftest import RunningCoordinator

TRAIN = Path("examples/train.py").absolute()


def train(scratch: Path, *options: str, key: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TRAIN, "--steps", "24", "--checkpoint-every", "6", *options],
        env=os.environ | {"LASTGOOD_PROJECT_KEY": key, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_killed_and_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    online = ["--url", coordinator.url, "--stage", coordinator.stage]
    key = coordinator.project_key
    uninterrupted, resumed = str(tmp_path / "uninterrupted"), str(tmp_path / "resumed")

    killed = train(tmp_path, *online, "--die-in-save", "3", key=key)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    latest = coordinator.workload().latest()
    assert latest
    assert latest.step == 12

    again = train(tmp_path, *online, "--replace", "--weights-out", resumed, key=key)
    assert again.returncode == 0, again.stderr
    assert f"resumed from demo/mlp/{coordinator.stage}/1.2 (step 12)" in again.stdout

    reference = train(tmp_path, "--offline", "--weights-out", uninterrupted)
    assert reference.returncode == 0, reference.stderr
    assert Path(resumed).read_bytes() == Path(uninterrupted).read_bytes()
    final = coordinator.workload().latest()
    assert final
    assert (final.step, final.generation, final.final) == (24, 2, True)
    assert "eval/loss" in final.metrics


def test_a_second_copy_of_the_job_is_refused(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    with coordinator.workload().acquire():
        online = ["--url", coordinator.url, "--stage", coordinator.stage]
        second = train(tmp_path, *online, key=coordinator.project_key)

    assert second.returncode == 1
    assert "is written by test" in second.stderr
