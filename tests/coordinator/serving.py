"""The coordinator as a process of its own, so that a test can see it killed.

Run as `python -m tests.coordinator.serving DSN`; it prints the port that it listens on.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from lastgood.coordinator.serve import standalone

ROOT = Path(__file__).parents[2]


class ServerProcess:
    """A coordinator that dies at `fault`, if one is named."""

    def __init__(self, dsn: str, fault: str | None = None) -> None:
        environment = {**os.environ, "LASTGOOD_FAULTS_ALLOWED": "1"}
        if fault is not None:
            environment["LASTGOOD_FAULT"] = fault
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.coordinator.serving", dsn],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, f"the coordinator ended with {self._process.wait()}"
        self.url = f"http://127.0.0.1:{port}"

    def died(self) -> int:
        """Wait for its end; answers the exit status, negative for a signal."""
        return self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(standalone(sys.argv[1]), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
