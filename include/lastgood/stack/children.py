"""Starting, watching and stopping the processes of one stack, and finding those that strayed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from lastgood.stack.airflow import STACK_TAG, Component
from lastgood.stack.errors import StackError
from lastgood.stack.processes import ProcessIdentity, wait_until_gone

_log = logging.getLogger(__name__)
_KILL_SECONDS = 30.0
_TAIL_LINES = 25


class Child:
    """One running component."""

    def __init__(self, component: Component, process: subprocess.Popen[bytes], log: Path) -> None:
        identity = ProcessIdentity.of(process.pid)
        self.component = component
        self.log = log
        self._process = process
        # A child that already ended keeps its pid until we have waited for it, so it is still its.
        self.identity = identity or ProcessIdentity(process.pid, 0.0)

    @classmethod
    def start(
        cls, component: Component, environment: Mapping[str, str], folder: Path, log: Path
    ) -> Child:
        """Start the component in a session of its own, so that no signal of a terminal or of a
        process group reaches it but ours."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                component.command(),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(component, process, log)

    def exit_status(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Wait for its end, but not longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0))

    def death_notice(self) -> str:
        """Say that it ended, how, and what it wrote last."""
        status = self.exit_status()
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return f"{self.component.name} ended with {how}; the end of {self.log}:\n{tail(self.log)}"


def stop(children: Iterable[Child]) -> None:
    """Ask all to end, wait for each as long as it may take, and kill what is left of them."""
    children = list(children)
    families = [child.identity.family() for child in children]
    started = time.monotonic()
    # The first request may be lost in a library that catches everything; to the scheduler the
    # second one means that it need not wait for running tasks any more.
    for share in (0.5, 1.0):
        for child in children:
            child.identity.send(signal.SIGTERM)
        for child in children:
            child.wait(started + share * child.component.stop_seconds - time.monotonic())
    for child in children:
        if child.exit_status() is None:
            _log.warning("%s does not end; killing it", child.component.name)
        families.append(child.identity.family())
    kill(frozenset().union(*families))
    for child in children:
        child.wait(_KILL_SECONDS)
    _log.info("ended after %.1f s", time.monotonic() - started)


def kill(identities: Iterable[ProcessIdentity]) -> None:
    """Kill these very processes. Raises StackError naming the pids that outlive it."""
    identities = list(identities)
    for identity in identities:
        identity.send(signal.SIGKILL)
    if stuck := wait_until_gone(identities, _KILL_SECONDS):
        pids = ", ".join(str(identity.pid) for identity in stuck)
        raise StackError(f"these processes do not end even when killed: {pids}")


def kill_strays(var: Path) -> bool:
    """Kill every process of the stack of this folder; False when there was none.

    One may fork while the others are looked for, so this looks until none is left. Raises
    StackError naming the pids that outlive it.
    """
    killed = False
    while left := strays(var):
        kill(left)
        killed = True
    return killed


def strays(var: Path) -> frozenset[ProcessIdentity]:
    """Find every process of the stack of this folder, wherever its parents are, but ourselves.

    A process is known by the tag in its environment, which its children inherit.
    """
    ourselves = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = (
        ProcessIdentity.of(process.pid)
        for process in psutil.process_iter()
        if process.pid not in ourselves and _tag_of(process) == str(var)
    )
    return frozenset(identity for identity in found if identity)


def _tag_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(STACK_TAG)
    except (psutil.Error, OSError):
        return None


def tail(log: Path) -> str:
    """Return the last lines of a log; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:])
