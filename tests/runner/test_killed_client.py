"""SIGKILL of the client at any step of a save: the next generation has a whole checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.runner.conftest import RunningCoordinator, contents, write_checkpoint
from tests.runner.faults import Hold, LoseAnswer
from tests.waiting import wait_for

SAVE = """
import sys
from lastgood.runner import Workload

url, key, stage, folder = sys.argv[1:]
run = Workload(url, key, workload="mlp", stage=stage, holder="victim").acquire()
run.save(folder, step=1)
print("saved", flush=True)
sys.stdin.readline()
run.save(folder + "-2", step=2)
"""


@pytest.mark.parametrize(
    ("method", "path", "resumes_at"),
    [
        ("POST", "/checkpoints/prepare", {1}),
        ("PUT", "/objects/", {1}),
        ("POST", "/checkpoints/commit", {1, 2}),  # on its way, it may still arrive
    ],
)
def test_a_client_killed_during_a_request(
    coordinator: RunningCoordinator,
    checkpoint: Path,
    tmp_path: Path,
    method: str,
    path: str,
    resumes_at: set[int],
) -> None:
    saved = {1: checkpoint, 2: write_checkpoint(tmp_path / "checkpoint-2", seed=2)}
    victim = start(coordinator, checkpoint)
    released = threading.Event()
    coordinator.faults.on(method, path, Hold(released), times=100)
    before = coordinator.faults.count(method, path)
    go_on(victim)
    wait_for(lambda: coordinator.faults.count(method, path) > before)
    kill(victim)
    released.set()

    resumed = resumed_step(coordinator, tmp_path / "restored")

    assert resumed in resumes_at
    assert contents(tmp_path / "restored") == contents(saved[resumed])


def test_a_client_killed_before_it_hears_that_it_committed(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    second = write_checkpoint(tmp_path / "checkpoint-2", seed=2)
    victim = start(coordinator, checkpoint)
    coordinator.faults.on("POST", "/checkpoints/commit", LoseAnswer(), times=100)
    go_on(victim)
    wait_for(lambda: getattr(coordinator.workload().latest(), "step", 0) == 2)
    kill(victim)

    assert resumed_step(coordinator, tmp_path / "restored") == 2
    assert contents(tmp_path / "restored") == contents(second)


def start(coordinator: RunningCoordinator, folder: Path) -> subprocess.Popen[str]:
    """A client that has saved its first checkpoint."""
    arguments = [coordinator.url, coordinator.project_key, coordinator.stage, str(folder)]
    victim = subprocess.Popen(
        [sys.executable, "-c", SAVE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "saved\n"
    return victim


def go_on(victim: subprocess.Popen[str]) -> None:
    assert victim.stdin is not None
    victim.stdin.write("\n")
    victim.stdin.flush()


def kill(victim: subprocess.Popen[str]) -> None:
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL


def resumed_step(coordinator: RunningCoordinator, folder: Path) -> int:
    """What the replacement resumes from, and downloads."""
    coordinator.faults.end()
    workload = coordinator.workload()
    with workload.acquire(after=workload.writer().number) as run:
        assert run.resume
        run.download(folder)
        return run.resume.step
