"""The coordinator as a process of its own, so that a test can see it killed."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import uvicorn

from lastgood.coordinator.serve import standalone
from tests.faults.dying import FORKED, environment_of, in_environment

WAIT_SECONDS = 60


class ServerProcess:
    """A coordinator that dies at `fault`, if one is named."""

    def __init__(self, dsn: str, fault: str | None = None) -> None:
        ours, theirs = FORKED.Pipe(duplex=False)
        environment = environment_of(fault)
        self._process = FORKED.Process(target=_serve, args=(dsn, environment, theirs))
        self._process.start()
        theirs.close()
        told = ours.recv()
        ours.close()
        assert isinstance(told, int), told
        self.url = f"http://127.0.0.1:{told}"

    def died(self) -> int | None:
        """Wait for its end; answers the exit status, negative for a signal."""
        self._process.join(WAIT_SECONDS)
        return self._process.exitcode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()


def _serve(dsn: str, environment: dict[str, str], told: Connection) -> None:
    def serve() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            told.send(listening.getsockname()[1])
            config = uvicorn.Config(standalone(dsn), log_level="warning")
            uvicorn.Server(config).run(sockets=[listening])

    in_environment(environment, serve, told)
