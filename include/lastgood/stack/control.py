"""Starting and stopping a stack from outside it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable

from lastgood.stack import children as processes
from lastgood.stack import object_store
from lastgood.stack.airflow import STACK_TAG
from lastgood.stack.children import tail
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.postgres import remove, stop_leftover
from lastgood.stack.processes import wait_until_gone
from lastgood.stack.state import StackState

_STOP_SECONDS = 120.0
_LOOK_SECONDS = 0.1

Tell = Callable[[str], None]


def up(layout: StackLayout, tell: Tell) -> StackState:
    """Start the stack, unless it runs, and wait until it is ready.

    `tell` gets one line per step. Raises StackError with the reason when the stack fails to start;
    what had started is ended then. An interruption ends it too.
    """
    state = running(layout)
    if state is None:
        supervisor = _spawn(layout)
        try:
            return _follow(layout, tell, supervisor)
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
    return _follow(layout, tell, None)


def running(layout: StackLayout) -> StackState | None:
    """Return the state of the stack that runs, or None."""
    state = StackState.read(layout.state)
    return state if state and state.is_supervised else None


def down(layout: StackLayout) -> bool:
    """Stop the stack and whatever is left of it; False when nothing ran."""
    state = running(layout)
    if state:
        state.supervisor.send(signal.SIGTERM)
        if wait_until_gone([state.supervisor], _STOP_SECONDS):
            state.supervisor.send(signal.SIGKILL)
            wait_until_gone([state.supervisor], _STOP_SECONDS)
    strays = processes.kill_strays(layout.var)
    stop_leftover(layout.postgres)
    object_store.stop(layout)
    return bool(state) or strays


def clean(layout: StackLayout) -> None:
    """Stop the stack and delete all that it ever stored. There is no way back."""
    down(layout)
    remove(layout.postgres)
    if not layout.var.exists():
        return
    # Committed checkpoints are read-only, folders too.
    for folder, _, _ in os.walk(layout.var):
        os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(layout.var)


def _spawn(layout: StackLayout) -> subprocess.Popen[bytes]:
    layout.create()
    with layout.log_of("supervisor").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "lastgood.stack", "supervise"],
            cwd=layout.var,
            env={
                **os.environ,
                "LASTGOOD_VAR": str(layout.var),
                STACK_TAG: str(layout.var),
                "PYTHONUTF8": "1",
                # What it imports of Airflow itself must not write to anybody's home.
                "AIRFLOW_HOME": str(layout.airflow_home),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _follow(
    layout: StackLayout, tell: Tell, supervisor: subprocess.Popen[bytes] | None
) -> StackState:
    told = ""
    while True:
        ended = supervisor is not None and supervisor.poll() is not None
        state = StackState.read(layout.state)
        ours = state and (supervisor is None or state.supervisor.pid == supervisor.pid)
        if state and ours:
            if state.phase == "ready":
                return state
            if state.phase == "failed":
                raise StackError(state.doing)
            if state.doing != told:
                told = state.doing
                tell(f"{state.seconds_since_start:5.1f} s  {told}")
        if ended or (state and supervisor is None and not state.is_supervised):
            log = layout.log_of("supervisor")
            raise StackError(f"the supervisor ended; the end of {log}:\n{tail(log)}")
        time.sleep(_LOOK_SECONDS)
