"""Processes that die at a fault, as by a power cut."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.forking import FORKED


def environment_of(point: str | None) -> dict[str, str]:
    """The test's own environment, in which a process dies at this point."""
    named = {} if point is None else {"LASTGOOD_FAULT": point}
    return {**os.environ, "LASTGOOD_FAULTS_ALLOWED": "1", **named}


def killed_at(point: str, program: str, *arguments: str, catalog: str) -> None:
    """Run a program with the URL of a catalog in a process of its own, and see it die."""
    environment = {**environment_of(point), "LASTGOOD_CATALOG": catalog}
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_run, args=(program, arguments, environment, theirs))
    process.start()
    theirs.close()
    process.join()
    said = "nothing"
    if process.exitcode != -signal.SIGKILL and ours.poll():
        said = ours.recv()
    ours.close()
    assert process.exitcode == -signal.SIGKILL, said


def _run(
    program: str, arguments: tuple[str, ...], environment: dict[str, str], told: Connection
) -> None:
    def run() -> None:
        sys.argv = ["-c", *arguments]
        exec(program, {})
        told.send("it came to its end")

    in_environment(environment, run, told)


def in_environment(environment: dict[str, str], act: Callable[[], Any], told: Connection) -> None:
    """Act in this process as one that was started in the environment; its error is told."""
    os.environ.clear()
    os.environ.update(environment)
    try:
        act()
    except BaseException:
        told.send(traceback.format_exc())
        raise
