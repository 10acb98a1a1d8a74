"""Run a program that must not harm: bounded in all that it uses, and cut off from all but its task.

The program gets an environment of a few names, a folder of its own to write in, read access to what
it is told to read, no network where the platform allows that, and limits. When it ends, or passes a
limit, or we die, all that it started dies with it. Whatever it does, the caller gets an `Outcome`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

_STARTING_SECONDS = 60.0  # beyond the program's own time, for a warden on a busy machine
_MEMORY_WORDS = re.compile(r"MemoryError|bad_alloc|Cannot allocate memory|[Oo]ut of memory")
_TASK_WORDS = re.compile(r"Resource temporarily unavailable|can't start new thread")
_DISK_WORDS = re.compile(r"File too large|No space left on device|Disk quota exceeded")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use, all its processes together. `tasks` are processes and threads."""

    time: timedelta = timedelta(minutes=30)
    cpu: timedelta = timedelta(minutes=30)
    memory_bytes: int = 2 << 30
    disk_bytes: int = 1 << 30
    tasks: int = 64

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.time.total_seconds(),
            "cpu_seconds": self.cpu.total_seconds(),
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "tasks": self.tasks,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended, and what it used.

    `ended` is `exit` (see `code`), `signal`, the limit that ended it (`time`, `cpu`, `memory`,
    `disk`, `processes`), `not-started`, or `lost` if the machinery itself was killed.
    """

    ended: str
    code: int | None = None
    signal: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    disk_peak_bytes: int = 0
    tasks_peak: int = 0
    confinement: Mapping[str, Any] = field(default_factory=dict)
    last_lines: Sequence[str] = ()

    @property
    def succeeded(self) -> bool:
        return self.ended == "exit" and self.code == 0

    def __str__(self) -> str:
        match self.ended:
            case "exit":
                return f"ended with exit code {self.code}"
            case "signal":
                return f"was killed by {self.signal}"
            case "not-started":
                return f"could not be started: {self.reason}"
            case "lost":
                return f"was lost: {self.reason}"
        return f"was stopped: it reached its limit of {self.ended}"

    def summary(self) -> dict[str, Any]:
        """All but the last lines, as a receipt keeps it."""
        return {
            "ended": self.ended,
            "code": self.code,
            "signal": self.signal,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "memory_peak_bytes": self.memory_peak_bytes,
            "disk_peak_bytes": self.disk_peak_bytes,
            "tasks_peak": self.tasks_peak,
            "confinement": dict(self.confinement),
        }


def run(
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    *,
    reads: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Outcome:
    """Run a command (its first word is an absolute path) to its end, in `folder`.

    `folder` is the only one that it writes to; `reads` are what it reads beside the system and this
    interpreter; `environment` is added to a minimal one; `without` names layers of confinement to
    leave out (see `confinement`). Never raises for what the program does.
    """
    names = {str(path.absolute()) for path in (folder, *reads)} | {str(command[0])}
    folder = folder.resolve()
    request = {
        "command": [str(word) for word in command],
        "folder": str(folder),
        "reads": [str(path.resolve()) for path in reads],
        "names": sorted(names),  # by which the program may know them, should links lead to them
        "environment": {**_minimal_environment(folder), **(environment or {})},
        "limits": limits.to_json(),
        "without": list(without),
    }
    told = _ask_warden(request, limits.time.total_seconds() + _STARTING_SECONDS)
    return _named_limit(Outcome(**told))


def interpreter() -> list[str]:
    """The beginning of a command that runs a module of ours."""
    return [sys.executable, "-I", "-B", "-u", "-m"]


def _minimal_environment(folder: Path) -> dict[str, str]:
    binaries = os.path.dirname(sys.executable)
    return {
        "PATH": f"{binaries}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _ask_warden(request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    process = subprocess.Popen(
        [*interpreter(), "lastgood.validators.warden"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    overdue = threading.Timer(seconds, process.kill)
    overdue.daemon = True
    overdue.start()
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.read().decode(errors="replace")
    except BrokenPipeError:
        answer = process.stdout.read().decode(errors="replace")
    finally:
        overdue.cancel()
        process.stdin.close()  # the life line: should we be interrupted, the group is killed now
        process.stdout.close()
        process.wait()
    lines = answer.splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        reason = f"the warden ended with {process.returncode}"
        return {"ended": "lost", "reason": reason, "last_lines": lines[-40:]}


def _named_limit(outcome: Outcome) -> Outcome:
    """A program to which the kernel refused something ends by itself: name the limit."""
    if outcome.ended not in ("exit", "signal") or outcome.succeeded:
        return outcome
    said = "\n".join(outcome.last_lines[-5:])
    named = {"memory": _MEMORY_WORDS, "disk": _DISK_WORDS, "processes": _TASK_WORDS}
    limit = next((limit for limit, words in named.items() if words.search(said)), None)
    return outcome if limit is None else replace(outcome, ended=limit)
