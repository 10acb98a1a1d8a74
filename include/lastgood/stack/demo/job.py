"""The training job of examples/train.py, run as a user would run it: in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lastgood.stack.errors import StackError

STEPS, EVERY, DIES_IN_SAVE = 120, 10, 7
"""Twelve checkpoints: six before the job dies in its seventh save, six after."""
_PATIENCE_SECONDS = 900


@dataclass(frozen=True)
class TrainingJob:
    """A job that may be run again and again. `log` gets what every run prints."""

    program: Path
    url: str
    workload: str
    environment: Mapping[str, str]
    log: Path

    def uninterrupted(self, weights: Path) -> None:
        """Train without a coordinator: the reference. Raises StackError."""
        self._succeed("--offline", "--weights-out", str(weights))

    def killed_in_a_save(self) -> int:
        """Train until all ranks are killed in the middle of a save; the exit status."""
        return self._run(*self._online(), "--die-in-save", str(DIES_IN_SAVE))

    def replaced(self, weights: Path) -> None:
        """Take over from the dead writer, resume, and train to the end. Raises StackError."""
        self._succeed(*self._online(), "--replace", "--weights-out", str(weights))

    def _online(self) -> tuple[str, ...]:
        return ("--url", self.url, "--workload", self.workload)

    def _succeed(self, *arguments: str) -> None:
        status = self._run(*arguments)
        if status != 0:
            raise StackError(f"the training job ended with status {status}; see {self.log}")

    def _run(self, *arguments: str) -> int:
        lengths = ("--steps", str(STEPS), "--checkpoint-every", str(EVERY))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, self.program, *lengths, *arguments],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # one signal ends all ranks
            )
        try:
            return process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise StackError(
                f"the training job did not end within {_PATIENCE_SECONDS} s; see {self.log}"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
