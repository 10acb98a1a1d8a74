"""Processes are known by pid and start time, and those of a stack by the tag that they inherit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lastgood.stack import children
from lastgood.stack.airflow import STACK_TAG, Component
from lastgood.stack.children import Child
from lastgood.stack.processes import ProcessIdentity, wait_until_gone
from tests.waiting import wait_for


@contextmanager
def sleeper(**environment: str) -> Iterator[ProcessIdentity]:
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    try:
        yield identity
    finally:
        process.kill()
        process.wait()


def python(program: str, stop_seconds: float = 5) -> Component:
    class Program(Component):
        def command(self) -> list[str]:
            return [sys.executable, "-c", program]

    return Program("program", (), stop_seconds)


def started(component: Component, folder: Path, **environment: str) -> Child:
    child = Child.start(component, {**os.environ, **environment}, folder, folder / "program.log")
    wait_for(child.log.read_text)
    return child


def test_process_with_a_reused_pid_is_never_signalled() -> None:
    with sleeper() as living:
        former = ProcessIdentity(living.pid, living.started - 100)
        assert not former.is_alive()
        assert former.send(signal.SIGKILL) is False
        assert living.is_alive()


def test_ended_process_that_nobody_collected_counts_as_gone() -> None:
    process = subprocess.Popen(["true"])
    identity = ProcessIdentity.of(process.pid)
    if identity is not None:
        assert not wait_until_gone([identity], 10)
    process.wait()


def test_strays_are_found_although_their_parent_is_gone(tmp_path: Path) -> None:
    orphan = _orphan(tmp_path)
    with sleeper(**{STACK_TAG: "/another/checkout/var"}) as other:
        assert children.strays(tmp_path) == {orphan}
        assert children.kill_strays(tmp_path)
        assert other.is_alive()
    assert not orphan.is_alive()


def test_a_stray_that_forks_while_the_others_are_looked_for_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill, forked = children.kill, list[ProcessIdentity]()

    def kill_late(identities: Iterable[ProcessIdentity]) -> None:
        if not forked:
            forked.append(_orphan(tmp_path))
        kill(identities)

    monkeypatch.setattr(children, "kill", kill_late)
    _orphan(tmp_path)

    assert children.kill_strays(tmp_path)
    assert not forked[0].is_alive()
    assert not children.kill_strays(tmp_path)


def _orphan(var: Path) -> ProcessIdentity:
    pid_file = var / "pid"
    subprocess.run(
        ["sh", "-c", 'sleep 600 >/dev/null 2>&1 & echo $! > "$0"', str(pid_file)],
        env={**os.environ, STACK_TAG: str(var)},
        check=True,
    )
    orphan = ProcessIdentity.of(int(pid_file.read_text()))
    assert orphan is not None
    return orphan


def test_stop_ends_the_children_of_a_component_too(tmp_path: Path) -> None:
    program = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    child = started(python(program), tmp_path)
    grandchild = ProcessIdentity.of(int(child.log.read_text()))
    assert grandchild is not None

    children.stop([child])

    assert child.exit_status() == -signal.SIGTERM
    assert not grandchild.is_alive()


def test_component_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\n"
        "time.sleep(600)"
    )
    child = started(python(program, stop_seconds=0.2), tmp_path)
    children.stop([child])
    assert child.exit_status() == -signal.SIGKILL


def test_death_notice_names_the_component_and_shows_its_last_words(tmp_path: Path) -> None:
    child = started(python("print('no room for me', flush=True); raise SystemExit(7)"), tmp_path)
    child.wait(60)
    assert child.exit_status() == 7
    notice = child.death_notice()
    assert "program ended with status 7" in notice
    assert notice.endswith("no room for me")


def test_a_machine_without_semaphores_is_told_before_anything_is_started() -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as where nothing may be written to /dev/shm
from lastgood.stack.errors import StackError
from lastgood.stack.semaphores import require_semaphores
try:
    require_semaphores()
except StackError as error:
    raise SystemExit(0 if "/dev/shm" in str(error) else str(error))
raise SystemExit("it was not noticed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
